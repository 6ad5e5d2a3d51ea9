"""`hotspare explain`: codes, rules and lines for people and for programs, without any connection or settings file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workers.cli.app import exit_status


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without settings, and no Temporal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOTSPARE_CONFIG", raising=False)
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")


def told(capsys: pytest.CaptureFixture[str], *topic: str) -> str:
    assert exit_status(["explain", *topic]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *topic: str) -> dict[str, Any]:
    found = json.loads(told(capsys, *topic, "--json"))
    assert isinstance(found, dict)
    return found


def test_a_code_is_explained_with_its_action_its_ladder_and_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "79")
    for part in ("XID 79", "reboot the node", "REBOOT_NODE -> POWER_CYCLE -> REPLACE_NODE", "https://docs.nvidia.com"):
        assert part in text


def test_a_number_of_the_switch_is_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "hotspare explain sxid 20034" in told(capsys, "20034")
    assert "explain sxid" not in told(capsys, "79")


@pytest.mark.parametrize("topic", [["79"], ["xid", "79"], ["XID:79"], ["xid 79"], ["Xid79"], ["xid-79"]])
def test_a_code_may_be_written_as_people_write_it(capsys: pytest.CaptureFixture[str], topic: list[str]) -> None:
    found = document(capsys, *topic)
    assert (found["topic"], found["action"], found["fault_class"]) == ("xid:79", "REBOOT_NODE", "gpu_lost")
    assert found["ladder"] == ["REBOOT_NODE", "POWER_CYCLE", "REPLACE_NODE"]


def test_a_switch_fault_is_explained_by_the_word_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "sxid", "20034")
    assert found["actions"] == {
        "Fatal": "REBOOT_NODE",
        "Non-fatal": "NONE",
        "Correctable": "NONE",
        "no word": "CONTACT_SUPPORT",
    }
    assert "20034" in told(capsys, "sxid", "20034")


def test_memory_rules_come_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    rules = document(capsys, "ecc")["rules"]["memory errors"]
    assert [rule["rule"] for rule in rules] == [str(number) for number in range(1, 15)]
    assert all(rule["action"] and rule["source"] for rule in rules)
    assert "row remap" in told(capsys, "ecc")


def test_the_recovery_action_is_explained_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "154")
    assert (found["action"], found["decided_by_the_line"]) == (None, True)
    actions = {rule["number"]: rule["action"] for rule in found["rules"]["recovery actions"]}
    assert actions == {
        "0": "NONE",
        "1": "RESET_GPU",
        "2": "REBOOT_NODE",
        "3": "RESTART_JOB",
        "4": "RESET_GPU",
        "5": "CONTACT_SUPPORT",
        "6": "RESET_GPU",
        "7": "POWER_CYCLE",
    }


def test_a_whole_line_is_decoded(capsys: pytest.CaptureFixture[str]) -> None:
    line = "[ 1.0] NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
    found = document(capsys, line)
    assert (found["topic"], found["pci"], found["recovery_to"], found["action"]) == ("xid:154", "0000:1b:00", 2, "REBOOT_NODE")


@pytest.mark.parametrize("code", [*range(180), 4711])
def test_every_code_can_be_explained_and_an_unknown_one_goes_to_a_person(capsys: pytest.CaptureFixture[str], code: int) -> None:
    found = document(capsys, str(code))
    assert found["because"]
    if code in (0, 51, 4711):
        assert (found["action"], found["reserved"]) == ("CONTACT_SUPPORT", True)


@pytest.mark.parametrize("topic", ["recovery", "nvlink4", "nvlink5", "storage_lost", "host:lockup", "host hung_task"])
def test_groups_and_host_signals_are_topics_too(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    assert document(capsys, topic)["title"]
    assert told(capsys, topic).strip()


def test_a_topic_that_does_not_exist_is_wrong_usage_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["explain", "lockupp"]) == 64
    assert "did you mean lockup?" in capsys.readouterr().err


def test_the_settings_word_on_a_code_is_what_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text(
        '[checks.overrides]\n"xid:79" = { action = "REPLACE_NODE", why = "our slots stay dead" }\n'
        '[policy.ladders_by_code]\n"xid:79" = ["REPLACE_NODE"]\n'
    )
    found = document(capsys, "79", "--config", str(settings))
    assert (found["action"], found["ladder"]) == ("REPLACE_NODE", ["REPLACE_NODE"])
    assert "our slots stay dead" in found["because"]


def test_a_wrong_override_is_refused_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text('[checks.overrides]\n"xid:79" = { action = "REBOOT" }\n')
    assert exit_status(["explain", "79", "--config", str(settings)]) == 64
    assert "checks.overrides: xid:79: 'REBOOT' is not a valid Action" in capsys.readouterr().err


def test_a_code_that_does_not_apply_to_the_instance_type_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "NVIDIA does not list" in told(capsys, "74", "--instance-type", "p6-b200.48xlarge")
