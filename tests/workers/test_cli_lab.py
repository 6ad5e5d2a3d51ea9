"""The commands of the lab: up, broken, seen and down again; and what they say when there is no lab."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from workers.cli.app import app


def lab(*words: str, folder: Path) -> Result:
    return CliRunner().invoke(app, ["lab", *words, "--folder", str(folder)], catch_exceptions=False)


def answer(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_lab_comes_up_is_broken_is_looked_at_and_goes_down(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    up = answer(lab("up", "--nodes", "1", "--spares", "0", "--json", folder=folder))
    try:
        assert [node["name"] for node in up["nodes"]] == ["head", "node-1"]
        assert "AWS_SECRET_ACCESS_KEY" not in json.dumps(up)
        assert lab("up", folder=folder).exit_code == 3
        lines = answer(lab("inject", "node-1", "--xid", "79", "--cure", "never", "--json", folder=folder))["lines"]
        assert any("79" in line for line in lines)
        seen = lab("status", folder=folder)
        assert "XID 79 (cure: never)" in seen.stdout
        assert lab("inject", "node-1", "--fault", "gremlins", folder=folder).exit_code == 64
        named = answer(lab("inject", "node-1", "--fault", "disk_gone", "--cure", "never", "--json", folder=folder))
        assert (named["fault"]["name"], named["fault"]["cure"]) == ("disk_gone", "never")
        printed = answer(lab("inject", "node-1", "--line", "nvidia {pci}: odd", "--gpu", "0", "--json", folder=folder))
        assert printed["lines"] == ["nvidia 0000:53:00.0: odd"]
        assert "disk_gone (cure: never)" in lab("status", folder=folder).stdout
        assert answer(lab("cure", "node-1", "--json", folder=folder))["faults"] == []
        assert answer(lab("status", "--json", folder=folder))["nodes"][1]["faults"] == []
        assert lab("inject", "node-7", "--xid", "79", folder=folder).exit_code != 0
        assert lab("inject", "node-1", "--xid", "79", "--cure", "prayer", folder=folder).exit_code == 64
    finally:
        down = lab("down", folder=folder)
    assert down.exit_code == 0
    assert lab("status", folder=folder).exit_code == 3


def test_without_a_lab_the_line_to_type_is_named(tmp_path: Path) -> None:
    result = lab("status", folder=tmp_path / "none")
    assert result.exit_code == 3
    assert "hotspare lab up" in result.stderr


def test_a_fault_must_be_named(tmp_path: Path) -> None:
    assert lab("inject", "node-1", folder=tmp_path).exit_code == 64
    assert lab("inject", "node-1", "--text", "words alone", folder=tmp_path).exit_code == 64
    assert lab("inject", "node-1", "--fault", "fell_off_bus", "--xid", "31", folder=tmp_path).exit_code == 64


def test_the_faults_that_have_a_name_are_listed_with_class_signal_and_cure() -> None:
    listed = answer(CliRunner().invoke(app, ["lab", "faults", "--json"]))["faults"]
    row = listed["row_remap_failure_flag"]
    assert (row["fault_class"], row["action"], row["signal"], row["cure"]) == (
        *("memory_exhausted", "REPLACE_NODE"),
        *("NVML", "never"),
    )
    shown = CliRunner().invoke(app, ["lab", "faults"]).stdout
    assert all(name in shown for name in ("fell_off_bus", "efa_port_down", "slow_network"))


def test_a_missing_extra_is_named_with_the_line_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "asyncssh" else find_spec(name))
    result = lab("up", folder=tmp_path / "lab")
    assert result.exit_code == 64
    assert "pip install 'hotspare[lab]'" in result.stderr
