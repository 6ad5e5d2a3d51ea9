"""Reads every link of a GPU to its peers (NVLink 3 and 4, NVLink 5) and to its Grace CPU (C2C): state, speed, error counters."""

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
    "recoveries": 215,
    "effective_errors": 219,
    "symbol_errors": 221,
}
"""Error counters per link: 161 to 163 of NVLink 3 and 4, the others of NVLink 5. Source: nvml.h.

Healthy links have others high: those are of `QUALITY_FIELDS`. 205 and 216 to 218 are deprecated.
"""

NVLINK_USUAL = ("crc", "recoveries_done", "recoveries")
"""Counters that healthy links have too: what was replayed or recovered. CRC errors matter by their rate."""

FEC_BUCKETS = 16
QUALITY_FIELDS = {
    "effective_ber": 220,
    "symbol_ber": 222,
    **{f"fec_{bucket}": 235 + bucket for bucket in range(FEC_BUCKETS)},
    "raw_errors_lane_0": 289,
    "raw_errors_lane_1": 290,
    "raw_ber": 293,
}
"""How much error correction has to do per link of NVLink 5; never a fault by itself. Source: nvml.h.

Bucket N counts codewords with N corrected symbols: bucket 0 grows by the billion. Raw errors are those before correction.
"""

C2C_FIELDS = {"status": 171, "interrupt_errors": 231, "replays": 232, "replays_back_to_back": 233}
"""Values per link to the Grace CPU. Source: nvml.h."""

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


def read_quality(nvml: Any, gpu: Any, states: Reading) -> Reading:
    """Sum up `QUALITY_FIELDS` over a GPU's active links: buckets and errors in all, the worst bit error rate of each kind."""
    active = [link for link, state in enumerate(states.value) if state] if states.state == OK else []
    if not active:
        return Reading(NOT_SUPPORTED, detail="no active link")
    values: dict[str, list[int]] = {}
    for link in active:
        answers = field_readings(nvml, gpu, {name: (number, link) for name, number in QUALITY_FIELDS.items()})
        bad = next((one for one in answers.values() if one.state != OK), None)
        if bad is not None:
            return bad
        for name, answer in answers.items():
            values.setdefault(name, []).append(answer.number() or 0)
    rates = {name: max(values[name], key=_error_rate) for name in values if name.endswith("_ber")}
    return Reading(
        OK,
        {
            "fec": [sum(values[f"fec_{bucket}"]) for bucket in range(FEC_BUCKETS)],
            "raw_errors": sum(values["raw_errors_lane_0"]) + sum(values["raw_errors_lane_1"]),
            **{name: f"{packed >> 8 & 15}e-{packed & 255}" for name, packed in rates.items()},
        },
    )


def _error_rate(packed: int) -> float:
    """A bit error rate as NVML packs it: mantissa above the lowest eight bits, which are the negative exponent."""
    return float(packed >> 8 & 15) * 10.0 ** -(packed & 255)


def read_c2c(nvml: Any, gpu: Any, count: int) -> dict[str, Reading]:
    """Return the readings `c2c_states` (1 or 0 per link) and `c2c_errors`, in the form of `nvlink_errors`."""
    names = ("c2c_states", "c2c_errors")
    if not count:
        return dict.fromkeys(names, Reading(NOT_SUPPORTED, detail="no C2C link"))
    answers = [field_readings(nvml, gpu, {name: (n, link) for name, n in C2C_FIELDS.items()}) for link in range(count)]
    failure = next((one for link in answers for one in link.values() if one.state not in (OK, NOT_SUPPORTED)), None)
    if failure is not None:
        return dict.fromkeys(names, failure)
    counters = [name for name in C2C_FIELDS if name != "status" and all(link[name].state == OK for link in answers)]
    nonzero = {name: {str(link): one[name].value for link, one in enumerate(answers) if one[name].value} for name in counters}
    given = {"counters": counters, "nonzero": {name: links for name, links in nonzero.items() if links}}
    return {
        "c2c_states": Reading(OK, [link["status"].number() for link in answers]),
        "c2c_errors": Reading(OK, given) if counters else Reading(NOT_SUPPORTED, detail="no such counter"),
    }
