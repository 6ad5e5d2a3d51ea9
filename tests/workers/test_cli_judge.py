"""`hotspare judge` as a shell script uses it: one object on stdout, the verdict as exit status, one clear error otherwise."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from checks.judges.judgement import CAUSES
from tests.checks.judging import DATA, SAMPLES, TOOL_OF
from workers.cli import judge as command
from workers.cli.app import app, exit_status

STATUS = {"OK": 0, "WARN": 1, "CRITICAL": 2, "UNKNOWN": 3}
SLOW = str(DATA / "nvbandwidth_h100_gpu6_pcie_slow.txt")
LINK = str(DATA / "ib_write_bw_ndr400_ok.txt")


def type_in(*words: str, given: bytes | None = None) -> tuple[int, str, str]:
    """Run the command; returns exit status, stdout and stderr."""
    answer = CliRunner().invoke(app, ["judge", *words], input=given, catch_exceptions=False)
    return answer.exit_code, answer.stdout, answer.stderr


def ask(*words: str, given: bytes | None = None) -> Any:
    status, out, _ = type_in(*words, "--json", given=given)
    answer = json.loads(out)
    assert status == STATUS[answer["verdict"]]
    return answer


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_sample_answers_one_object_whose_verdict_is_the_exit_status(sample: str) -> None:
    answer = ask("--tool", TOOL_OF[sample[:4]], "--link-gbits", "400", str(DATA / sample))
    assert {"verdict", "cause", "culprits", "next", "evidence"} <= set(answer)
    assert answer["cause"] in CAUSES
    assert answer["evidence"]["text"]
    status, out, _ = type_in("--tool", TOOL_OF[sample[:4]], "--link-gbits", "400", str(DATA / sample))
    assert status == STATUS[answer["verdict"]]
    assert out.startswith(answer["verdict"])


def test_the_evidence_is_the_line_the_number_the_floor_and_its_source() -> None:
    answer = ask("--tool", "nvbandwidth", SLOW)
    evidence = answer["evidence"]
    assert (answer["culprits"], evidence["number"], evidence["floor"], evidence["unit"]) == (["GPU 6"], 24.56, 49.5, "GB/s")
    assert "24.56" in evidence["line"]
    assert "PCIe 5" in evidence["floor_source"]


def test_standard_input_is_read() -> None:
    assert ask("--tool", "ib_write_bw", "--link-gbits", "400", "-", given=Path(LINK).read_bytes())["verdict"] == "OK"
    assert ask("--tool", "dcgm", "-", given=b"")["verdict"] == "UNKNOWN"


def test_bytes_of_any_encoding_are_read() -> None:
    text = Path(LINK).read_text()
    for data in (text.encode("utf-16"), text.encode("utf-8-sig"), b"\xff\xfe\xfd\n" + b"\x80" + text.encode()):
        assert ask("--tool", "ib_write_bw", "--link-gbits", "400", "-", given=data)["cause"] in ("healthy", "unreadable")
    assert ask("--tool", "ib_write_bw", "--link-gbits", "400", "-", given=text.encode("utf-16"))["verdict"] == "OK"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_output_is_read_from_a_file_and_from_standard_input(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    packed = tmp_path / "output"
    packed.write_bytes(pack(Path(LINK).read_bytes()))
    words = ("--tool", "ib_write_bw", "--link-gbits", "400")
    assert ask(*words, str(packed))["verdict"] == "OK"
    assert ask(*words, "-", given=packed.read_bytes())["verdict"] == "OK"
    packed.write_bytes(packed.read_bytes()[:-20])
    status, _, err = type_in(*words, str(packed))
    assert status == 64
    assert "to its end" in err


def test_own_floors_come_from_the_command_line_and_from_a_named_settings_file(tmp_path: Path) -> None:
    sample = str(DATA / "nccl_04_gen2_h100_2node_rdma_ok.txt")
    words = ("--tool", "nccl-tests", "--instance-type", "p5.48xlarge", "--nodes", "2", sample)
    assert ask(*words)["verdict"] == "OK"
    assert ask(*words, "--floor", "p5.48xlarge/2=480")["cause"] == "low_bandwidth"
    config = tmp_path / "hotspare.toml"
    config.write_text('[cluster]\nname = "lab"\n[burn_in]\nfloors_gbs = { "p5.48xlarge/2" = 480.0 }\n')
    assert ask(*words, "--config", str(config))["cause"] == "low_bandwidth"
    assert ask(*words, "--config", str(config), "--floor", "p5.48xlarge/2=400")["verdict"] == "OK"


def test_the_status_of_the_tool_is_taken_into_account() -> None:
    answer = ask("--tool", "gpu-burn", "--exit-status", "1", str(DATA / "gpuburn_ok.txt"))
    assert answer["cause"] == "could_not_run"


@pytest.mark.parametrize(
    "words",
    [
        ["--tool", "memtest", LINK],
        ["--tool", "dcgm"],
        [LINK],
        ["--tool", "nccl-tests", "--nodes", "0", LINK],
        ["--tool", "ib_write_bw", "--link-gbits", "0", LINK],
        ["--tool", "ib_write_bw", "--link-gbits", "fast", LINK],
        ["--tool", "nccl-tests", "--floor", "p5.48xlarge/2", LINK],
        ["--tool", "nccl-tests", "--floor", "p5.48xlarge/2=nan", LINK],
        ["--tool", "dcgm", "/nowhere/output.json"],
        ["--tool", "dcgm", str(DATA)],
        ["--tool", "dcgm", "--config", "/nowhere/hotspare.toml", LINK],
    ],
)
def test_wrong_usage_and_unreadable_files_are_64(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["judge", *words]) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip()


def test_an_unreadable_file_is_named_with_the_reason() -> None:
    status, out, err = type_in("--tool", "dcgm", "/nowhere/output.json", "--json")
    assert status == 64
    assert "cannot read /nowhere/output.json: No such file or directory" in err
    assert json.loads(out)["kind"] == "BadInput"


def test_output_that_is_far_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MOST_BYTES", 1000)
    status, _, err = type_in("--tool", "ib_write_bw", LINK)
    assert status == 64
    assert "longer than" in err


def test_what_a_file_holds_cannot_steer_the_terminal() -> None:
    hostile = b"nvbandwidth Version: v0.8\nRunning a.\n[CUDA_ERROR_ECC] \x1b[2J\x07\x9b31m bad [red]x[/red]\n"
    status, out, _ = type_in("--tool", "nvbandwidth", "-", given=hostile)
    assert status == 2
    assert "[red]x[/red]" in out
    assert all(letter.isprintable() or letter == "\n" for letter in out)
