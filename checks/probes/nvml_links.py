"""Reads every NVLink of a GPU: whether it is active, its speed and its error counters, for NVLink 3 and 4 and for NVLink 5."""

from __future__ import annotations

from typing import Any, Optional

from checks.probes.nvml_tags import field_readings, take
from checks.probes.readings import LOST, NOT_SUPPORTED, OK, Reading

ERROR_FIELDS = {
    "replay": 161,
    "recovery": 162,
    "crc": 163,
    "malformed_packets": 206,
    "buffer_overruns": 207,
    "receive_errors": 208,
    "remote_receive_errors": 209,
    "general_receive_errors": 210,
    "local_integrity": 211,
    "transmit_discards": 212,
    "recoveries_done": 213,
    "recoveries_failed": 214,
    "effective_errors": 219,
    "symbol_errors": 221,
}
"""Error counters per link: 161 to 163 of NVLink 3 and 4, the others of NVLink 5. Source: nvml.h.

Left out, because healthy links have them high: raw errors, bit error rates, bucket 0 of the history of error correction.
"""

SPEED_FIELD = 164
"""Speed of a link, Mbit/s as the driver counts. Source: nvml.h."""

LINKS_WITHOUT_A_COUNT = 18
"""Links to try where the driver does not say how many there are. Source: A100 has 12; H100 and B200 have 18."""


def read_links(nvml: Any, gpu: Any, count: Optional[int]) -> dict[str, Reading]:
    """Return the readings `nvlink_states` (1, 0, or None per link), `nvlink_speeds` and `nvlink_errors`.

    `nvlink_errors` says which counters the driver gave and, by counter and link, those that are not zero.
    """
    links = range(LINKS_WITHOUT_A_COUNT if count is None else count)
    answers = [take(nvml, lambda link=link: int(nvml.nvmlDeviceGetNvLinkState(gpu, link))) for link in links]  # type: ignore[misc]
    bad = next((one for one in answers if one.state not in (OK, NOT_SUPPORTED)), None)
    if count is not None and bad is not None:
        return _all(bad)
    states = [one.value for one in answers]
    if not any(one.state == OK for one in answers):
        return _all(bad if bad is not None and bad.state == LOST else Reading(NOT_SUPPORTED, detail="the GPU has no NVLink"))
    active = [link for link, state in enumerate(states) if state]
    return {"nvlink_states": Reading(OK, states), **_counters(nvml, gpu, active)}


def _all(reading: Reading) -> dict[str, Reading]:
    return dict.fromkeys(("nvlink_states", "nvlink_speeds", "nvlink_errors"), reading)


def _counters(nvml: Any, gpu: Any, active: list[int]) -> dict[str, Reading]:
    """Ask the first active link for everything, the others only for what the first could answer."""
    given: dict[str, int] = {"speed": SPEED_FIELD, **ERROR_FIELDS}
    speeds: list[int] = []
    errors: dict[str, dict[str, int]] = {}
    failure: Optional[Reading] = None
    for link in active:
        answers = field_readings(nvml, gpu, {name: (number, link) for name, number in given.items()})
        failure = failure or next((one for one in answers.values() if one.state not in (OK, NOT_SUPPORTED)), None)
        given = {name: number for name, number in given.items() if answers[name].state == OK}
        for name in given:
            value = answers[name].number() or 0
            if name == "speed":
                speeds.append(value)
            elif value:
                errors.setdefault(name, {})[str(link)] = value
        if not given:
            break
    unknown = failure or Reading(NOT_SUPPORTED, detail="no active link" if not active else "no such counter")
    counters = [name for name in given if name != "speed"]
    return {
        "nvlink_speeds": Reading(OK, speeds) if "speed" in given else unknown,
        "nvlink_errors": failure or (Reading(OK, {"counters": counters, "nonzero": errors}) if counters else unknown),
    }
