"""The container image's recipe: what it copies exists, what it installs is pinned, what it starts runs from the wheel.

No container engine is asked: the recipe is read, and each of its steps is done or checked without one.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import zipfile
from fnmatch import fnmatch
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

from tests.packaging.installing import TREE, Installation, build_wheel

RECIPE = TREE / "infra" / "docker" / "Dockerfile"
KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """The instructions of the recipe: word and the rest, continued lines joined."""
    lines = [line for line in RECIPE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines()]


def all_of(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def copied() -> list[str]:
    """Sources of COPY that come from the tree."""
    return [source for rest in all_of("COPY") if "--from=" not in rest for source in rest.split()[:-1]]


def pins(name: str) -> set[tuple[str, str, tuple[str, ...]]]:
    """Package, version and hashes of each line of a file in requirements/. A line that is no pin is an error."""
    text = (TREE / "requirements" / name).read_text()
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    found = set()
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        words = line.split(" --hash=")
        requirement = Requirement(words[0].strip())
        (version,) = requirement.specifier
        assert version.operator == "==", line
        assert len(words) > 1, line
        found.add((requirement.name, version.version, tuple(word.strip() for word in words[1:])))
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    installation = Installation(tmp_path_factory.mktemp("image"))
    installation.install(wheel)
    return installation


def test_the_recipe_has_only_instructions_that_are_checked_here() -> None:
    assert {word for word, _ in instructions()} <= KNOWN
    stages = all_of("FROM")
    assert [stage.split(" AS ")[0] for stage in stages] == ["python:${PYTHON}-slim-bookworm"] * 2


def test_all_that_is_copied_is_in_the_tree_and_let_through() -> None:
    ignored = [line for line in RECIPE.with_name("Dockerfile.dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    let_through = {line[1:] for line in ignored if line.startswith("!")}
    assert ignored[0] == "**"
    assert set(copied()) == let_through
    assert [source for source in copied() if not (TREE / source).exists()] == []


def test_what_is_copied_is_all_that_the_wheel_is_built_from(wheel: Path, tmp_path: Path) -> None:
    """Built in a folder that has nothing else, the wheel is the same."""
    for source in copied():
        target = tmp_path / "src" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (TREE / source).is_dir():
            shutil.copytree(TREE / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(TREE / source, target)
    again = build_wheel(tmp_path, tmp_path / "src")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        names = [{name for name in archive.namelist() if "__pycache__" not in name} for archive in (one, other)]
    assert names[0] == names[1]


def test_the_image_installs_what_the_tests_run_with_and_every_download_is_pinned_by_hash() -> None:
    tested = pins("dev.lock")
    for name in ("image.lock", "build.lock"):
        assert pins(name) <= tested
    for line in all_of("RUN"):
        for command in line.split("&&"):
            words = shlex.split(command)
            if words[0].endswith("/pip") and words[1] == "install":
                assert "--require-hashes" in words or "--no-index" in words, command
            if words[0].endswith("/pip") and words[1] == "wheel":
                assert {"--no-deps", "--no-build-isolation"} <= set(words), command


def metadata(installed: Installation) -> Distribution:
    (folder,) = installed.site_packages.glob("hotspare-*.dist-info")
    return PathDistribution(folder)


def test_the_pinned_packages_are_all_that_the_wheel_asks_for(installed: Installation) -> None:
    pinned = {name: version for name, version, _ in pins("image.lock")}
    asked = [Requirement(text) for text in metadata(installed).requires or []]
    needed = [one for one in asked if one.marker is None or one.marker.evaluate({"extra": "kubernetes"})]
    assert any(one.name == "kubernetes" for one in needed)
    assert [str(one) for one in needed if not one.specifier.contains(pinned.get(one.name, "0"))] == []


def test_what_the_image_starts_is_a_command_of_the_wheel(installed: Installation) -> None:
    (entry,), (arguments,) = all_of("ENTRYPOINT"), all_of("CMD")
    (script,) = (one.name for one in metadata(installed).entry_points if one.group == "console_scripts")
    assert json.loads(entry) == [script]
    assert "in one process" in installed.hotspare(*json.loads(arguments), "--help")
    (path,) = re.findall(r"PATH=(\S+)", "\n".join(all_of("ENV")))
    assert path.split(":")[0] == "/opt/hotspare/bin"


def containers(name: str) -> list[dict[str, Any]]:
    objects = yaml.safe_load_all((TREE / "infra" / "kubernetes" / name).read_text())
    return [
        container for one in objects if one["kind"] == "DaemonSet" for container in one["spec"]["template"]["spec"]["containers"]
    ]


def test_the_agents_manifest_starts_a_command_of_the_image_as_root(installed: Installation) -> None:
    (agent,) = containers("agent.yaml")
    assert agent["command"][0] == "hotspare"
    assert "kernel log" in installed.hotspare(*agent["command"][1:], "--help")
    assert all_of("USER") == ["65532:65532"]
    assert agent["securityContext"]["runAsUser"] == 0, "the image's own user cannot read the kernel's ring buffer"


def test_the_image_of_the_manifest_is_named_as_the_recipe_names_it() -> None:
    (agent,) = containers("agent.yaml")
    (build,) = re.findall(r"docker build -f infra/docker/Dockerfile -t (\S+) \.", RECIPE.read_text())
    assert fnmatch(agent["image"], build.split(":")[0] + ":*")
