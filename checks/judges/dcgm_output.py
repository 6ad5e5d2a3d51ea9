"""Reads the JSON of `dcgmi diag -j`, DCGM 3.x and 4.x: what each test said of each entity, with the errors it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

KEY_3, KEY_4 = "DCGM GPU Diagnostic", "DCGM Diagnostic"
NONE, MONITOR, ISOLATE, UNKNOWN, TRIAGE, CONFIG, RESET = range(7)
"""Severities of an error. Source: dcgm_errors.h of DCGM 4."""

PERFORMANCE, SOFTWARE_CONFIG, LIBRARY, THERMAL, INTERNAL = {1, 2}, 3, 4, 9, 16
"""Categories of an error that a judge tells apart. Source: dcgm_errors.h of DCGM 4."""


class NotReadable(ValueError):
    """The document is not that of a DCGM diagnostic."""


@dataclass(frozen=True)
class DiagError:
    """One error or remark. Severity, category and id are None where the release does not print them."""

    text: str
    severity: Optional[int] = None
    category: Optional[int] = None
    error_id: Optional[int] = None


@dataclass(frozen=True)
class Result:
    """What one test said of some entities, such as "GPU 3"; of none when it speaks of the whole node."""

    test: str
    entities: tuple[str, ...]
    status: str
    errors: tuple[DiagError, ...] = ()


@dataclass(frozen=True)
class Diagnostic:
    """One diagnostic. `runtime_error` is why it did not run; `gpus` are those that it was to test, as indices."""

    runtime_error: str
    results: tuple[Result, ...]
    gpus: tuple[str, ...]

    @property
    def tested(self) -> frozenset[str]:
        """GPUs of which at least one test says that it passed, warned or failed."""
        return frozenset().union(*self._tested_by.values())

    @property
    def left_out(self) -> dict[str, frozenset[str]]:
        """By test, the GPUs that other tests speak of and it does not."""
        missing = {test: self.tested - gpus for test, gpus in self._tested_by.items()}
        return {test: gpus for test, gpus in missing.items() if gpus}

    @property
    def _tested_by(self) -> dict[str, frozenset[str]]:
        by_test: dict[str, frozenset[str]] = {}
        for result in self.results:
            gpus = frozenset(entity for entity in result.entities if entity.startswith("GPU "))
            if gpus and result.status in ("pass", "warn", "fail"):
                by_test[result.test] = by_test.get(result.test, frozenset()) | gpus
        return by_test


def read(document: dict[str, Any]) -> Diagnostic:
    """Read one JSON document. Raises NotReadable where it is of another tool or shape."""
    body = document.get(KEY_4, document.get(KEY_3))
    if not isinstance(body, dict):
        raise NotReadable(f'neither "{KEY_4}" nor "{KEY_3}" is in it')
    error = body.get("runtime_error") or document.get("runtime_error") or ""
    try:
        results = [
            result
            for category in body.get("test_categories") or []
            for test in category.get("tests") or []
            for result in _test(str(test.get("name") or category.get("category") or "a test"), test)
        ]
        return Diagnostic(_words(error), tuple(results), tuple(_gpus(document, body)))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotReadable(f"its tests are of an unknown shape: {type(error).__name__} {error}") from error


def _test(name: str, test: dict[str, Any]) -> Iterable[Result]:
    results = [_result(name, result) for result in test.get("results") or []]
    yield from results
    summary = test.get("test_summary") or {}
    if summary:
        of_test = _result(name, summary)
        worst = _RANK.get(of_test.status, 3) > max((_RANK.get(result.status, 3) for result in results), default=-1)
        # The summary repeats its results, unless the trouble is of the test itself.
        if worst or not results or (of_test.errors and of_test.status != "pass"):
            yield of_test
    elif not results:
        yield Result(name, (), str(test.get("status") or "no result").lower())


_RANK = {"pass": 0, "skip": 1, "warn": 2, "fail": 3}


def _result(name: str, result: dict[str, Any]) -> Result:
    status = str(result.get("status") or "no result").strip().lower()
    return Result(name, tuple(_entities(result)), _STATUSES.get(status, status), tuple(_errors(result.get("warnings"))))


_STATUSES = {"passed": "pass", "failed": "fail", "warning": "warn", "skipped": "skip"}


def _entities(result: dict[str, Any]) -> Iterable[str]:
    if "entity_id" in result:
        group = str(result.get("entity_group") or "GPU")
        return [f"{group} {result['entity_id']}"]
    ids = result.get("gpu_ids", result.get("gpu_id", ""))
    words = ids if isinstance(ids, list) else str("" if ids is None else ids).split(",")
    return [f"GPU {str(word).strip()}" for word in words if str(word).strip()]


def _errors(warnings: Any) -> Iterable[DiagError]:
    """Read what DCGM calls warnings: text in early releases, else objects."""
    for warning in warnings if isinstance(warnings, list) else [warnings] if warnings else []:
        if isinstance(warning, dict):
            numbers = [_whole(warning.get(key)) for key in ("error_severity", "error_category", "error_id")]
            yield DiagError(_words(warning.get("warning") or warning.get("error") or ""), *numbers)
        elif warning:
            yield DiagError(_words(warning))


def _whole(value: Any) -> Optional[int]:
    return int(value) if isinstance(value, (int, float)) or (isinstance(value, str) and value.isdigit()) else None


def _words(value: Any) -> str:
    return " ".join(str(value).split())[:400]


def _gpus(document: dict[str, Any], body: dict[str, Any]) -> Iterable[str]:
    for group in document.get("entity_groups") or []:
        if str(group.get("entity_group")) == "GPU":
            yield from (f"GPU {entity['entity_id']}" for entity in group.get("entities") or [])
    serials = body.get("GPU Device Serials")
    if isinstance(serials, dict):
        yield from (f"GPU {index}" for index in serials)
