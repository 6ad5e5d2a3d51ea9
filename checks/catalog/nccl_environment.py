"""The environment in which NCCL is to run on an instance type: EFA's provider, chunk sizes, topology file, and what NCCL logs."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from checks.catalog.loading import load


@dataclass(frozen=True)
class Variable:
    """One variable for the instance types that match one of `types`.

    With `is_file` the value is a path: a host that lacks the file does without the variable.
    """

    types: tuple[str, ...]
    name: str
    value: str
    is_file: bool
    source: str


@lru_cache(maxsize=1)
def variables() -> tuple[Variable, ...]:
    """Return every row of `nccl_environment.csv`. Raises CatalogError."""
    return tuple(load("nccl_environment.csv", _variable))


def nccl_environment(instance_type: str, own: Mapping[str, Mapping[str, str]] | None = None) -> list[Variable]:
    """Return the variables for an instance type, in the order of their names.

    `own` are variables of one's own by pattern of instance types, over the shipped ones; an empty value leaves one out.
    """
    found = {one.name: one for one in variables() if _fits(one.types, instance_type)}
    for pattern, values in (own or {}).items():
        if _fits((pattern,), instance_type):
            found |= {name: Variable((pattern,), name, value, False, "settings") for name, value in values.items()}
    return [found[name] for name in sorted(found) if found[name].value]


def _fits(patterns: tuple[str, ...], instance_type: str) -> bool:
    return any(fnmatch.fnmatchcase(instance_type, pattern) for pattern in patterns)


def _variable(row: dict[str, str]) -> Variable:
    if row["file"] not in ("", "yes"):
        raise ValueError(f"column file is {row['file']!r}, not yes or empty")
    if not row["name"] or not row["value"] or not row["source"].startswith("https://"):
        raise ValueError("name, value and source must be there, the source as an address")
    return Variable(tuple(row["types"].split()), row["name"], row["value"], bool(row["file"]), row["source"])
