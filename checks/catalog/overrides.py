"""The settings' own word on single codes, over the shipped catalog: checked when it is read, named wherever it decides."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from checks.catalog.entries import signal_names
from checks.catalog.loading import fault_class, interrupts
from checks.model import Action, KernelEvent

KEYS = ("action", "fault_class", "escalation", "interrupts_job", "why")
"""What an override may say; `action` is needed."""

CLASS_OF_ACTION = {
    Action.NONE: "none",
    Action.RESTART_JOB: "application",
    Action.RESET_GPU: "reset_needed",
    Action.REBOOT_NODE: "reboot_needed",
    Action.POWER_CYCLE: "reboot_needed",
    Action.REPLACE_NODE: "hardware",
    Action.RUN_DIAGNOSTICS: "unknown_code",
    Action.CONTACT_SUPPORT: "unknown_code",
}
"""The fault class whose ladder begins with an action, where an override gives no class. Hotspare default."""

_KEY = re.compile(r"^(?:(?:xid|sxid):\d{1,6}|host:\w{1,64})$", re.ASCII)


class BadOverride(ValueError):
    """An override names no code or says something that is not known; the message says which."""


@dataclass(frozen=True)
class Override:
    """What the settings say of one code. Empty and None fields leave the shipped value."""

    action: Action
    fault_class: str
    escalation: str = ""
    interrupts_job: Optional[str] = None
    why: str = ""


def key_of(event: KernelEvent) -> str:
    """The name under which an override of an event stands: "xid:79", "sxid:20034" or "host:lockup"."""
    return f"host:{event.signal}" if event.kind == "host" else f"{event.kind}:{event.code}"


def read_overrides(given: Mapping[str, Any]) -> dict[str, Override]:
    """Check overrides such as {"xid:79": {"action": "REPLACE_NODE", "why": "our slots stay dead"}}. Raises BadOverride."""
    return {_key(name): _override(name, value) for name, value in given.items()}


def overrides_from_json(text: str) -> dict[str, Override]:
    """Read overrides from a JSON object; of an empty text, none. Raises BadOverride."""
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise BadOverride(f"overrides are no JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadOverride("overrides are no JSON object")
    return read_overrides(given)


def _key(name: str) -> str:
    if not _KEY.match(name):
        raise BadOverride(f'{name!r} is no code; write "xid:79", "sxid:20034" or "host:lockup"')
    kind, _, rest = name.partition(":")
    if kind == "host" and rest not in signal_names():
        raise BadOverride(f"no host signal is named {rest!r}; there are {', '.join(sorted(signal_names()))}")
    return name if kind == "host" else f"{kind}:{int(rest)}"


def recommendable(word: str) -> Action:
    """Read an action that a fault can ask for. Raises ValueError for a mere rung of the ladder and for another word."""
    action = Action(word)
    if action not in CLASS_OF_ACTION:
        raise ValueError(f"{word} is a rung of the ladder, not what a fault asks for")
    return action


def _override(name: str, value: Any) -> Override:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise BadOverride(f'{name}: expected a table of texts such as {{ action = "REBOOT_NODE" }}')
    unknown = sorted(set(value) - set(KEYS))
    if unknown:
        raise BadOverride(f"{name}: unknown key {unknown[0]!r}; there are {', '.join(KEYS)}")
    try:
        action = recommendable(value["action"])
        named = fault_class(value["fault_class"]) if "fault_class" in value else CLASS_OF_ACTION[action]
        job = interrupts(value["interrupts_job"]) if "interrupts_job" in value else None
    except KeyError as error:
        raise BadOverride(f"{name}: action is missing; it is one of {', '.join(one.value for one in CLASS_OF_ACTION)}") from error
    except ValueError as error:
        raise BadOverride(f"{name}: {error}") from error
    return Override(action, named, value.get("escalation", ""), job, value.get("why", ""))
