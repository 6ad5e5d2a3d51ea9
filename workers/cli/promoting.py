"""Changes the mode of one rung for one fault class in the settings file; everything else in it stays, comments too."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import tomlkit

from checks.model import Action
from workers.settings import Settings, SettingsError, parse_settings
from workflows.decisions.gates import mode_of
from workflows.decisions.settings import Mode, PolicySettings

_HEADER = re.compile(r"^\[policy\][ \t]*(#.*)?$", re.MULTILINE)
_ANY_HEADER = re.compile(r"^\[", re.MULTILINE)
_COMMENTED = re.compile(r"^#[ \t]*mode_by_class[ \t]*=[ \t]*\{\}[ \t]*$", re.MULTILINE)


def promoted(policy: PolicySettings, fault_class: str, rung: Action, mode: Mode) -> PolicySettings:
    """Return the policy with the rung in this mode for this fault class."""
    of_class = {**policy.mode_by_class.get(fault_class, {}), rung: mode}
    return policy.model_copy(update={"mode_by_class": {**policy.mode_by_class, fault_class: of_class}})


def pools_apart(policy: PolicySettings, fault_class: str, rung: Action) -> dict[str, Mode]:
    """Pools with settings of their own in which the rung has another mode."""
    general = mode_of(rung, policy, fault_class)
    modes = {pool: mode_of(rung, policy.for_pool(pool), fault_class) for pool in policy.pools}
    return {pool: mode for pool, mode in modes.items() if mode is not general}


def write_promotion(file: Path, fault_class: str, rung: Action, mode: Mode) -> Settings:
    """Write the mode into the file, all or nothing, and return its settings. Raises SettingsError, the file then as it was."""
    try:
        before = file.read_text(encoding="utf-8")
        after = with_promotion(before, fault_class, rung, mode)
        settings = parse_settings(tomllib.loads(after), file)
        if mode_of(rung, settings.policy, fault_class) is not mode:
            raise SettingsError(
                f"{file}: policy.mode_by_class could not be written; write {rung.value} for {fault_class} by hand"
            )
        _replace(file, after)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be written ({error.strerror}); nothing was changed") from error
    return settings


def with_promotion(text: str, fault_class: str, rung: Action, mode: Mode) -> str:
    """Return the text of a settings file with the mode in it."""
    document = tomlkit.parse(_with_place(text))
    policy = _table(document, "policy", tomlkit.table())
    of_class = _table(_table(policy, "mode_by_class", tomlkit.inline_table()), fault_class, tomlkit.inline_table())
    of_class[rung.value] = mode.value
    return tomlkit.dumps(document)


def _table(parent: MutableMapping[str, Any], key: str, new: Any) -> MutableMapping[str, Any]:
    if key not in parent:
        parent[key] = new
    return cast("MutableMapping[str, Any]", parent[key])


def _with_place(text: str) -> str:
    """Make a place for the key where a reader looks for it: at its comment in [policy], else under the header."""
    header = _HEADER.search(text)
    if header is None or "mode_by_class" in tomllib.loads(text).get("policy", {}):
        return text
    following = _ANY_HEADER.search(text, header.end())
    end = following.start() if following else len(text)
    section = text[header.end() : end]
    placed, count = _COMMENTED.subn("mode_by_class = {}", section, count=1)
    return text[: header.end()] + (placed if count else f"\nmode_by_class = {{}}{section}") + text[end:]


def _replace(file: Path, text: str) -> None:
    """Replace the file in one step, with its permissions, so that no reader sees half of it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        shutil.copymode(file, name)
        owner = file.stat()
        with suppress(PermissionError):  # who may not give it away owns it, or leaves it to themselves
            os.chown(name, owner.st_uid, owner.st_gid)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
