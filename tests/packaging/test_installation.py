"""A wheel and an editable install both give a working command, whatever else is installed under the name `workflows`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from checks.named_runs import packed_options, unpacked
from tests.packaging.installing import TREE, Installation, build_wheel, run

# What the console script does, stopped at the moment the command line would start: which files do our names now stand for?
AFTER_THE_ENTRY_POINT = """
import sys, types
from importlib.metadata import entry_points
(script,) = entry_points(group="console_scripts", name="hotspare")
app = types.ModuleType("workers.cli.app")
def run():
    import workflows, workflows.messages, checks.model, activities.names
    print(workflows.__file__)
app.run = run
sys.modules["workers.cli.app"] = app
script.load()()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def from_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    installation = Installation(tmp_path_factory.mktemp("from-wheel"))
    installation.install(wheel)
    return installation


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    installation = Installation(tmp_path_factory.mktemp("editable"))
    installation.install("--editable", TREE)
    return installation


def test_a_wheel_adds_nothing_but_one_package_to_python(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hotspare"}


def test_a_wheel_carries_every_file_of_the_tree_that_the_program_needs(wheel: Path) -> None:
    folders = ("checks", "activities", "workflows", "workers", "infra")
    needed = {
        f"hotspare/{path.relative_to(TREE).as_posix()}"
        for folder in folders
        for path in (TREE / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel) as archive:
        assert needed - set(archive.namelist()) == set()


def test_without_the_entry_point_the_foreign_package_is_what_python_finds(
    editable: Installation, from_wheel: Installation
) -> None:
    for installation in (editable, from_wheel):
        assert installation.python("import workflows; print(workflows.OWNER)").strip() == "another distribution"


def test_the_command_of_a_wheel_uses_our_workflows_beside_a_foreign_package_of_that_name(from_wheel: Installation) -> None:
    ours = from_wheel.site_packages / "hotspare" / "workflows" / "__init__.py"
    assert from_wheel.python(AFTER_THE_ENTRY_POINT).strip() == str(ours)


def test_the_command_of_an_editable_install_uses_the_tree_beside_a_foreign_package_of_that_name(editable: Installation) -> None:
    assert editable.python(AFTER_THE_ENTRY_POINT).strip() == str(TREE / "workflows" / "__init__.py")


def test_the_command_of_a_wheel_runs(from_wheel: Installation) -> None:
    assert "doctor" in from_wheel.hotspare("--help")


def test_what_run_command_starts_is_there_in_both_and_finds_the_checks(
    editable: Installation, from_wheel: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTSPARE_HOST_ROOT", str(tmp_path))
    for number, installation in enumerate((editable, from_wheel)):
        words = ("run", "probe", f"r{number}", packed_options({"words": ["--no-nvml"], "deadline_s": 60.0}))
        answer = unpacked(run(installation.bin / "python", "-m", "hotspare.checks.on_node", *words, folder=installation.folder))
        assert answer is not None
        assert json.loads(answer["stdout"])["schema"] == 1, answer


def test_the_command_of_an_editable_install_runs(editable: Installation) -> None:
    assert "doctor" in editable.hotspare("--help")
