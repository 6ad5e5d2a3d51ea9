"""Remembers counters from look to look, in a small file on the node, so that a probe can say how fast they rise.

A missing or broken file is no error: nothing was seen before. It lies at `$HOTSPARE_STATE`, else in the home folder's cache.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from checks.host import Host
from checks.model import Finding, Verdict

STATE_VARIABLE = "HOTSPARE_STATE"
_DEFAULT_FILE = ".cache/hotspare/looks.json"

MIN_SPAN_S = 30.0
"""Two looks that are closer say nothing of a rate. Hotspare default: one stray error would be a burst."""

REACH = 4.0
"""A sample may be so many windows old, and `_LEAST_REACH_S` always. Hotspare default: a rate over a day is none of a minute."""
_LEAST_REACH_S = 3600.0

COUNTERS_LIMIT = 5000
"""Counters that are remembered at most, the latest first. Hotspare default: 32 EFA devices have about 600."""

_SPACINGS_S = ((180.0, 20.0), (1200.0, 150.0), (7200.0, 900.0), (2 * 86400.0, 6 * 3600.0))
"""Samples up to an age are kept so far apart, seconds: dense for rates by the minute, sparse for those by the day."""
_SPACINGS_ACROSS_BOOTS_S = (*_SPACINGS_S, (40 * 86400.0, 5 * 86400.0))

_FILE_LIMIT_BYTES = 8 << 20
"""Hotspare default: several times what the limit of counters can come to."""

_SCHEMA = 1


@dataclass(frozen=True)
class Rise:
    """How much a counter rose, and over how many seconds."""

    amount: float
    seconds: float

    @property
    def per_second(self) -> float:
        """The mean rate."""
        return self.amount / self.seconds

    @property
    def per_minute(self) -> float:
        """The mean rate."""
        return 60.0 * self.per_second


class Sample(NamedTuple):
    """A counter's value at a Unix time, in the boot that has this id."""

    at: float
    value: float
    boot_id: str


@dataclass
class Looks:
    """Earlier samples of counters, and those of this look. `problem` says why the file could not be read."""

    boot_id: str
    now: float
    earlier: dict[str, list[Sample]] = field(default_factory=dict)
    problem: str = ""
    _noted: dict[str, float] = field(default_factory=dict)
    _across_boots: set[str] = field(default_factory=set)

    def note(self, name: str, value: float, *, across_boots: bool = False) -> None:
        """Remember a counter of this look. `across_boots`: a reboot does not reset it, so its samples outlive the boot."""
        self._noted[name] = value
        if across_boots:
            self._across_boots.add(name)

    def rise(
        self, name: str, value: float, window_s: float, *, across_boots: bool = False, min_span_s: float = MIN_SPAN_S
    ) -> Optional[Rise]:
        """Return how far `value` is above the sample that is nearest to `window_s` seconds old.

        None where there is no sample of this boot (of any boot, `across_boots`) that is `min_span_s` old and within reach, or
        where the counter was reset since.
        """
        if across_boots:
            self._across_boots.add(name)
        past = [one for one in self.earlier.get(name, []) if across_boots or (self.boot_id and one.boot_id == self.boot_id)]
        oldest = self.now - max(REACH * window_s, _LEAST_REACH_S)
        candidates = [
            one for one in _known_at(_since_reset(past, value), self.now - window_s) if oldest <= one.at <= self.now - min_span_s
        ]
        if not candidates:
            return None
        nearest = min(candidates, key=lambda one: abs(one.at - (self.now - window_s)))
        return Rise(value - nearest.value, self.now - nearest.at)

    def samples(self) -> dict[str, list[Sample]]:
        """All that is worth remembering: earlier samples, thinned by age, and this look's, at most `COUNTERS_LIMIT` counters."""
        kept = {}
        for name in {**self._noted, **self.earlier}:
            new = Sample(self.now, self._noted[name], self.boot_id) if name in self._noted else None
            across = name in self._across_boots
            past = [one for one in self.earlier.get(name, []) if one.at < self.now]
            if not across and name in self._noted:
                past = [one for one in past if one.boot_id == self.boot_id]
            # A counter that this look did not read may be one of those that outlive a boot.
            spacings = _SPACINGS_S if name in self._noted and not across else _SPACINGS_ACROSS_BOOTS_S
            thinned = _thin(_appended(past, new) if new else past, self.now, spacings)
            if thinned:
                kept[name] = thinned
        if len(kept) <= COUNTERS_LIMIT:
            return kept
        newest = sorted(kept, key=lambda name: kept[name][-1].at, reverse=True)[:COUNTERS_LIMIT]
        return {name: kept[name] for name in newest}


def read_looks(host: Host, boot_id: str, now: float) -> Looks:
    """Read what earlier looks remembered. `now` is this look's Unix time, seconds; samples from the future are left out."""
    place = looks_file(host)
    if not place:
        return Looks(boot_id, now, problem=f"neither {STATE_VARIABLE} nor HOME says where")
    try:
        with open(place, "rb") as file:
            earlier = _from_json(json.loads(file.read(_FILE_LIMIT_BYTES)))
    except FileNotFoundError:
        return Looks(boot_id, now)
    except OSError as error:
        return Looks(boot_id, now, problem=f"{place}: {error.strerror}")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return Looks(boot_id, now, problem=f"{place}: not a file of looks, so it starts anew")
    past = {name: [one for one in samples if one.at < now] for name, samples in earlier.items()}
    return Looks(boot_id, now, {name: samples for name, samples in past.items() if samples})


def save_looks(host: Host, looks: Looks) -> str:
    """Write samples for the next look, whole or not at all. Return "" or why they could not be written."""
    place = looks_file(host)
    if not place:
        return f"neither {STATE_VARIABLE} nor HOME says where"
    written = f"{place}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(place) or ".", mode=0o700, exist_ok=True)
        # Not through the tempfile module, whose import alone costs a probe 10 ms.
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            # Not `dump`: that encodes in Python, `dumps` in C.
            file.write(json.dumps(_to_json(looks.samples()), separators=(",", ":")))
        os.replace(written, place)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(written)
        return f"{place}: {error.strerror}"
    return ""


def judge_looks(problem: str, at: float) -> list[Finding]:
    """Counters that cannot be remembered are nobody's fault, but their rates stay unjudged: say so."""
    if not problem:
        return []
    return [Finding("looks", Verdict.OK, "counters are not remembered here, so how fast they rise is not judged", problem, at)]


def looks_file(host: Host) -> str:
    """Return where the samples lie, "" where nothing says it."""
    home = host.variable("HOME")
    return host.variable(STATE_VARIABLE) or (os.path.join(home, _DEFAULT_FILE) if home else "")


def _since_reset(samples: Sequence[Sample], value: float) -> list[Sample]:
    """The newest samples of which none is above what came after it."""
    kept: list[Sample] = []
    for sample in reversed(samples):
        if sample.value > value:
            break
        kept.append(sample)
        value = sample.value
    return kept[::-1]


def _known_at(samples: Sequence[Sample], at: float) -> Iterable[Sample]:
    """The samples; and one at `at` itself where the counter stood still around it."""
    yield from samples
    for older, newer in zip(samples, samples[1:]):
        if older.at < at < newer.at and older.value == newer.value and older.boot_id == newer.boot_id:
            yield Sample(at, older.value, older.boot_id)


def _appended(past: list[Sample], new: Sample) -> list[Sample]:
    """Of a counter that stands still, only the first and the last sample are needed."""
    stood_still = len(past) > 1 and past[-2][1:] == past[-1][1:] == new[1:]
    return [*(past[:-1] if stood_still else past), new]


def _thin(samples: Sequence[Sample], now: float, spacings: Sequence[tuple[float, float]]) -> list[Sample]:
    """Keep samples the farther apart the older they are, and always the newest, if it is not too old."""
    if len(samples) <= 2 and samples and now - samples[0].at <= spacings[-1][0]:
        return list(samples)
    kept: list[Sample] = []
    for position, sample in enumerate(samples):
        spacing = next((apart for age, apart in spacings if now - sample.at <= age), None)
        if spacing is None:
            continue
        if not kept or sample.at - kept[-1].at >= spacing or position == len(samples) - 1:
            kept.append(sample)
    return kept


def _to_json(samples: dict[str, list[Sample]]) -> dict[str, Any]:
    """Each look and boot is written once; a counter's samples are pairs of a look's position and the value."""
    taken = sorted({(one.at, one.boot_id) for many in samples.values() for one in many})
    boots = sorted({boot_id for _, boot_id in taken})
    position = {look: number for number, look in enumerate(taken)}
    return {
        "schema": _SCHEMA,
        "boots": boots,
        "looks": [[at, boots.index(boot_id)] for at, boot_id in taken],
        "counters": {name: [[position[one.at, one.boot_id], one.value] for one in many] for name, many in samples.items()},
    }


def _from_json(document: Any) -> dict[str, list[Sample]]:
    if document["schema"] != _SCHEMA:
        raise ValueError("another schema")
    looks = [(float(at), str(document["boots"][boot])) for at, boot in document["looks"]]
    found = {}
    for name, pairs in document["counters"].items():
        samples = [Sample(looks[look][0], _number(value), looks[look][1]) for look, value in pairs]
        found[str(name)] = sorted(samples, key=lambda one: one.at)
    return found


def _number(value: Any) -> float:
    """Counters are whole numbers that stay whole."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError("not a number")
    return value
