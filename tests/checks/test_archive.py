"""The archive that travels to nodes: equal checks give equal bytes, and it works where nothing else is installed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from checks.archive import PynvmlMissing, build_archive
from tests.checks.node import TestNode


@pytest.fixture
def node(tmp_path: Path) -> TestNode:
    node = TestNode(tmp_path / "root")
    node.write("kernel.log", "[    0.000000] Linux version 6.8.0\n")
    return node


def run(folder: Path, node: TestNode, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", str(folder / "run_checks.py"), *arguments]
    return subprocess.run(command, env=node.environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    with tarfile.open(fileobj=io.BytesIO(build_archive().content)) as tar:
        tar.extractall(folder)
    return folder


def test_equal_checks_give_equal_archives() -> None:
    assert build_archive() == build_archive()


def test_the_archive_holds_the_entry_the_data_and_the_bindings_and_no_byte_code() -> None:
    with tarfile.open(fileobj=io.BytesIO(build_archive().content)) as tar:
        names = tar.getnames()
    assert {"run_checks.py", "pynvml.py", "checks/model.py", "checks/catalog/xid.csv", "checks/probes/nvml.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert names == sorted(names)


def test_absent_bindings_say_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checks.archive.find_spec", lambda name: None)
    with pytest.raises(PynvmlMissing, match="pip install nvidia-ml-py"):
        build_archive()


def test_the_unpacked_archive_probes_a_node_with_nothing_else_installed(unpacked: Path, node: TestNode) -> None:
    node.write("kernel.log", "[ 4990.0] NVRM: Xid (PCI:0000:86:00): 79, GPU has fallen off the bus.\n")
    done = run(unpacked, node, "probe", "--depth", "quick", "--settling-s", "120")
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert (document["verdict"], done.returncode) == ("CRITICAL", 2)
    assert (document["diagnosis"]["fault_class"], document["diagnosis"]["action"]) == ("gpu_lost", "REBOOT_NODE")
    assert len(document["gpus"]) == 8


def test_lines_dealt_with_before_are_left_out_on_request(unpacked: Path, node: TestNode) -> None:
    node.write("kernel.log", "[ 4990.0] NVRM: Xid (PCI:0000:86:00): 95, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No\n")
    before = json.loads(run(unpacked, node, "probe", "--no-nvml").stdout)
    assert before["diagnosis"]["fault_class"] == "memory_uncorrectable"
    after = json.loads(run(unpacked, node, "probe", "--no-nvml", "--handled-until", str(before["taken_at"])).stdout)
    assert after["diagnosis"]["fault_class"] == "none"
    assert "CRITICAL" not in {finding["verdict"] for finding in after["findings"]}


@pytest.mark.parametrize(
    "arguments",
    [
        ["prboe"],
        ["probe", "--depth", "shallow"],
        ["probe", "--thresholds", '{"no": 1}'],
        ["probe", "--overrides", '{"79": {}}'],
        [],
    ],
)
def test_wrong_usage_has_an_exit_status_of_its_own(unpacked: Path, node: TestNode, arguments: list[str]) -> None:
    done = run(unpacked, node, *arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr
