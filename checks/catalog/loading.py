"""Reads and validates the catalog's data files; a bad row is an error that names file, line and value."""

from __future__ import annotations

import csv
import pkgutil
from typing import Any, Callable, Optional, TypeVar

from checks.model import Action

FAULT_CLASSES = frozenset(
    {
        "none",
        "gpu_lost",
        "gsp_hang",
        "reset_needed",
        "reboot_needed",
        "memory_uncorrectable",
        "memory_exhausted",
        "memory_contained",
        "link",
        "fabric",
        "application",
        "hardware",
        "host",
        "configuration",
        "unknown_code",
        "slow_node",
        "unreachable",
    }
)
"""Every word a diagnosis may use. `slow_node` and `unreachable` are given by others: a burn-in, a node that does not answer."""

INTERRUPTS = frozenset({"no", "at_boundary", "job_dies_anyway", "yes", "yes if Fatal", "depends", ""})
"""What a fault means for the job: nothing, wait for a checkpoint, it dies by itself, stop it now; empty where it is not known."""


class CatalogError(ValueError):
    """A row of a data file is not valid; the message names file, row and value."""


Entry = TypeVar("Entry")


def load(name: str, build: Callable[[dict[str, str]], Entry]) -> list[Entry]:
    """Read a data file of this package; a bad row raises CatalogError."""
    content = pkgutil.get_data("checks.catalog", name)
    if not content:
        raise CatalogError(f"checks/catalog/{name} is missing or empty: unpack the checks archive again")
    entries = []
    for number, row in enumerate(csv.DictReader(content.decode("utf-8").splitlines()), start=2):
        try:
            entries.append(build(row))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CatalogError(f"checks/catalog/{name} line {number}: {error}") from error
    return entries


def texts(row: dict[str, str], *names: str) -> dict[str, Any]:
    """Return some columns as they are."""
    return {name: row[name].strip() for name in names}


def optional_action(word: str) -> Optional[Action]:
    """Read an action, None where the cell is empty. Raises ValueError for another word."""
    return Action(word) if word else None


def fault_class(word: str) -> str:
    """Read a fault class. Raises ValueError for another word."""
    if word not in FAULT_CLASSES:
        raise ValueError(f"{word!r} is no fault class")
    return word


def interrupts(word: str) -> str:
    """Read what a fault means for the job. Raises ValueError for another word."""
    if word not in INTERRUPTS:
        raise ValueError(f"{word!r} does not say what becomes of the job")
    return word


def sourced(word: str) -> str:
    """Read a source. Raises ValueError where there is none: no value without one."""
    if not word.strip():
        raise ValueError("there is no source")
    return word.strip()
