"""`hotspare evidence` as a person uses it: the newest bundle of a node, one in a file, a new one, the text for a support case."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from activities.clients.evidence_store_folder import FolderEvidenceStore
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import FakeFault
from activities.errors import BadInput
from activities.probing import ChecksArchive, Probe
from activities.settings_access import AccessSettings
from workers.cli import evidence as command
from workers.cli.app import app


class FleetWiring:
    """What the command sees of the clients, over a fleet in memory."""

    def __init__(self, fleet: FakeFleet, folder: Path) -> None:
        archive = folder / "checks.tar.gz"
        archive.write_bytes(b"not unpacked")
        store = FolderEvidenceStore(folder / "evidence")
        self.inventory = fleet.inventory
        self.evidence = fleet.evidence(Probe(ChecksArchive(archive, "d1"), AccessSettings()), folder)
        self.evidence_stores = (store, store)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def wired(fleet: FakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hotspare.toml").write_text('[cluster]\nname = "lab"\n')
    monkeypatch.setenv("HOTSPARE_CONFIG", str(tmp_path / "hotspare.toml"))
    monkeypatch.setattr(command, "Wiring", lambda settings: FleetWiring(fleet, tmp_path))


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def type_in(*words: str) -> tuple[int, str, str]:
    """Run the command; returns exit status, stdout and stderr."""
    answer = CliRunner().invoke(app, ["evidence", *words], catch_exceptions=False)
    return answer.exit_code, answer.stdout, answer.stderr


def ask(*words: str) -> Any:
    status, out, err = type_in(*words, "--json")
    assert status == 0, (out, err)
    return json.loads(out)


def file_of(document: Any) -> Path:
    return Path(urlsplit(document["bundle"]).path)


def test_a_node_without_a_bundle_is_unknown_and_the_answer_says_how_to_take_one() -> None:
    status, out, _ = type_in("node-1")
    assert status == 3
    assert "hotspare evidence node-1 --take" in out


def test_a_bundle_is_taken_by_hand_and_shown_as_the_newest(fleet: FakeFleet) -> None:
    first = ask("node-1", "--take")
    fleet.inject("node-1", FakeFault(xid=64))
    second = ask("node-1", "--take")
    assert first["bundle"] != second["bundle"]
    assert ask(fleet.node("node-1").instance_id) == second
    status, out, _ = type_in("node-1")
    assert status == 0
    assert "dmesg.txt" in out
    assert "serial numbers became marks" in out
    assert "All reserved rows" in type_in("node-1", "--part", "dmesg.txt")[1]


def test_the_text_for_a_support_case_is_printed_alone(fleet: FakeFleet) -> None:
    fleet.inject("node-1", FakeFault(xid=79))
    ask("node-1", "--take")
    status, out, _ = type_in("node-1", "--case")
    assert status == 0
    assert out.startswith("Subject\n")
    assert f"Instance id: {fleet.node('node-1').instance_id}" in out
    assert fleet.count("run.nvidia-smi") == 0


def test_nvml_is_left_alone_when_a_person_asks_for_it(fleet: FakeFleet) -> None:
    assert ask("node-1", "--take", "--no-nvml")["manifest"]["nvml"].startswith("NVML is not touched")
    assert fleet.count("run.nvidia-smi") == 0


def test_a_bundle_in_a_file_is_read_without_any_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = ask("node-1", "--take")
    monkeypatch.delenv("HOTSPARE_CONFIG")
    assert ask(str(file_of(taken))) == taken
    assert ask(taken["bundle"]) == taken


def test_a_bundle_that_was_changed_is_critical_and_names_the_part() -> None:
    file = file_of(ask("node-1", "--take"))
    changed = io.BytesIO()
    with tarfile.open(file) as source, tarfile.open(fileobj=changed, mode="w:gz") as target:
        for member in source:
            text = source.extractfile(member)
            assert text is not None
            content = text.read() if member.name != "dmesg.txt" else b"nothing happened\n"
            member.size = len(content)
            target.addfile(member, io.BytesIO(content))
    file.write_bytes(changed.getvalue())
    status, out, _ = type_in(str(file))
    assert status == 2
    assert "not what was stored: dmesg.txt" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/nowhere/x.tar.gz"], "cannot be read"),
        (["node-77"], "did you mean"),
        (["node-1", "--take", "--part", "nothing.txt"], "the bundle has no part nothing.txt"),
    ],
)
def test_what_cannot_be_shown_is_said_and_is_wrong_usage(words: list[str], said: str) -> None:
    status, _, err = type_in(*words)
    assert status == 64
    assert said in err


def test_a_folder_of_another_user_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "evidence").touch()
    with pytest.raises(BadInput, match="cannot be read"):
        FolderEvidenceStore(tmp_path / "evidence").names("")
