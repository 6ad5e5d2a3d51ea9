"""What the catalog's words on a repeated fault mean to a program: how many, within which time, of what, and what then."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Optional

from checks.catalog.loading import load, sourced
from checks.model import Action

PLACES = ("device", "unit", "link", "node")
"""What a repeat is counted on. device: the GPU, switch or card (by serial, UUID or PCI address); unit: one GPC and TPC of a GPU;
link: one link of a GPU or switch; node: the machine."""


@dataclass(frozen=True)
class RepeatRule:
    """One rule: the `count`th of a fault within `within_s` seconds on the same `per` asks for `action`.

    `other_jobs`: only under different jobs. `after_repair`: only if the GPU was reset or the node rebooted in between.
    `harmless_too`: lines that ask for nothing by themselves count as well. `alone`: only where no XID is near. `text` is the
    catalog's own wording.
    """

    text: str
    count: int
    within_s: float
    per: str
    action: Action
    other_jobs: bool = False
    after_repair: bool = False
    harmless_too: bool = False
    alone: bool = False


def repeat_rules(text: str) -> tuple[RepeatRule, ...]:
    """Return the rules that an escalation text states, none for a text that states none."""
    return _rules().get(text, ())


def texts_read() -> frozenset[str]:
    """Every escalation text that was read, whether it states a rule or not."""
    return frozenset(_rules())


@cache
def _rules() -> dict[str, tuple[RepeatRule, ...]]:
    rules: dict[str, tuple[RepeatRule, ...]] = {}
    for text, rule in load("repeats.csv", _row):
        rules[text] = (*rules.get(text, ()), *((rule,) if rule else ()))
    return rules


def _row(row: dict[str, str]) -> tuple[str, Optional[RepeatRule]]:
    """A row without a count says that its text is for people only, and why."""
    text = row["text"].strip()
    sourced(row["source"])
    if not row["count"]:
        return text, None
    count, hours, per = int(row["count"]), float(row["within_h"]), row["per"]
    if count < 2 or hours <= 0 or per not in PLACES:
        raise ValueError(f"{count} within {hours:g} h per {per!r} is no repeat; per is one of {', '.join(PLACES)}")
    flags = {name: _flag(row[name]) for name in ("other_jobs", "after_repair", "harmless_too", "alone")}
    return text, RepeatRule(text, count, hours * 3600.0, per, Action(row["action"]), **flags)


def _flag(word: str) -> bool:
    return {"yes": True, "no": False}[word]
