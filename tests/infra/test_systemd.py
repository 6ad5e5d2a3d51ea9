"""The systemd units: systemd itself takes them, their commands are Hotspare's, and they may do no more than they need."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from workers.cli.app import app, exit_status
from workers.settings import CONFIG_VARIABLE
from workers.worker import Role

UNITS = Path(__file__).parents[2] / "infra" / "systemd"
NAMES = sorted(file.name for file in UNITS.glob("*.service"))
INSTALLED = "/opt/hotspare/bin/hotspare"
EXPOSURE = {"hotspare-agent.service": 30}
"""Highest exposure that systemd may find, in tenths; 15 for other units, whose process only speaks to the network."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


class Unit:
    """A unit file. Keys that are said several times keep all their values."""

    def __init__(self, name: str) -> None:
        self.text = (UNITS / name).read_text()
        self.values: dict[str, list[str]] = {}
        for line in self.text.splitlines():
            if "=" in line and not line.startswith("#"):
                key, value = line.split("=", 1)
                self.values.setdefault(key, []).append(value)

    @property
    def command(self) -> list[str]:
        (command,) = self.values["ExecStart"]
        return command.split()

    def variables(self) -> dict[str, str]:
        return dict(value.split("=", 1) for value in self.values.get("Environment", []))


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units in a folder, as they are with Hotspare installed where this Python is."""
    here = Path(sys.executable).with_name("hotspare")
    for name in NAMES:
        target = name.replace("@", "@control")
        (tmp_path / target).write_text((UNITS / name).read_text().replace(INSTALLED, str(here)))
    return tmp_path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze."""
    return subprocess.run(["systemd-analyze", *arguments], text=True, capture_output=True, check=False)


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_takes_the_unit(units: Path, name: str) -> None:
    done = analyze("verify", "--man=no", str(units / name.replace("@", "@control")))
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_finds_little_that_the_unit_could_do_harm_with(units: Path, name: str) -> None:
    file = str(units / name.replace("@", "@control"))
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE.get(name, 15)}", file)
    assert done.returncode == 0, done.stdout


@needs_systemd
def test_systemd_would_find_a_wrong_line(units: Path) -> None:
    file = units / "hotspare.service"
    file.write_text(file.read_text().replace("ProtectSystem=strict", "ProtectSystem=much"))
    done = analyze("verify", "--man=no", str(file))
    assert "much" in done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_command_of_the_unit_is_one_of_hotspare(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = Unit(name).command
    assert program == INSTALLED
    assert exit_status([*arguments, "--help"]) == 0
    assert f" {arguments[0]} " in capsys.readouterr().out


def test_the_unit_of_a_role_names_each_role_that_there_is() -> None:
    unit = Unit("hotspare-worker@.service")
    assert unit.command[-2:] == ["--role", "%i"]
    (roles,) = re.findall(r"Roles are ([a-z0-9, ]+)\.", unit.text)
    assert set(roles.split(", ")) == {role.value for role in Role}


@pytest.mark.parametrize("name", [name for name in NAMES if "agent" not in name])
def test_settings_and_state_lie_in_the_one_folder_that_may_be_written(name: str) -> None:
    unit = Unit(name)
    (state,) = unit.values["StateDirectory"]
    assert unit.values["ProtectSystem"] == ["strict"]
    assert Path(unit.variables()[CONFIG_VARIABLE]).parent == Path("/var/lib") / state
    assert "ReadWritePaths" not in unit.values


def test_the_agent_is_told_all_that_it_must_know() -> None:
    """By the unit, or by the file that the unit cannot start without."""
    unit = Unit("hotspare-agent.service")
    command = get_command(app).commands["agent"]  # type: ignore[attr-defined]
    needed = {option.envvar for option in command.params if option.required}
    (file,) = unit.values["EnvironmentFile"]
    assert not file.startswith("-")
    assert needed == {*unit.variables(), "HOTSPARE_INTAKE"} & needed
    assert "HOTSPARE_INTAKE=" in unit.text


def test_a_unit_of_all_parts_and_units_of_single_parts_do_not_run_together() -> None:
    for name in NAMES:
        if name not in ("hotspare.service", "hotspare-agent.service"):
            assert Unit(name).values["Conflicts"] == ["hotspare.service"]


def test_the_user_of_the_units_is_made_by_the_file_for_sysusers() -> None:
    kind, user, _, _, home = (UNITS / "hotspare.sysusers").read_text().splitlines()[-1].split()
    assert (kind, home) == ("u", "/var/lib/hotspare")
    assert {Unit(name).values["User"][0] for name in NAMES if "agent" not in name} == {user}
