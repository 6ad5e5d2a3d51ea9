"""The numbers that the probe goes by. Each can be overridden with `--thresholds '{"name": value}'`."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from checks.diagnosis.facts import EVENT_AGE_S


class BadThreshold(ValueError):
    """A threshold that does not exist or is no positive number; the message names it."""


@dataclass(frozen=True)
class Thresholds:
    """Limits of the probe, seconds unless said otherwise. `expected_gpus` 0: as many as the instance type has."""

    nvml_deadline_s: float = 30.0
    """A driver that needs longer hangs. Hotspare default: without persistence mode, opening 8 GPUs takes about 10 s."""
    command_deadline_s: float = 5.0
    """Limit of one command such as dmesg. Hotspare default: a full ring buffer prints in well under a second."""
    event_age_s: float = EVENT_AGE_S
    """Age up to which a fault that is an event, not a state, counts. Hotspare default: three sweeps of 5 minutes."""
    expected_gpus: float = 0
    """GPUs that the node must have. Source for 0: EC2 instance type pages, by instance type."""
    min_memory_percent: float = 2.0
    """Available system memory below this per cent is a warning. Hotspare default: below it the kernel soon kills processes."""


def read_thresholds(text: str) -> Thresholds:
    """Read overrides from JSON. Raises BadThreshold for an unknown name or a value that is no number of 0 or more."""
    known = {field.name for field in fields(Thresholds)}
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise BadThreshold(f"thresholds are no JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadThreshold("thresholds are no JSON object")
    for name, value in given.items():
        if name not in known:
            raise BadThreshold(f"no threshold is named {name!r}; there are {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise BadThreshold(f"threshold {name} is {value!r}, expected a number of 0 or more")
    return Thresholds(**given)
