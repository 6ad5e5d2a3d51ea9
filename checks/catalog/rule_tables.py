"""The catalog's rules as tables for people: memory errors, recovery actions, NVLink registers and units."""

from __future__ import annotations

from dataclasses import dataclass

from checks.catalog.assessment import RECOVERY_ACTIONS
from checks.catalog.entries import ecc_rules
from checks.catalog.links import UnitError, register_bits, unit_errors


@dataclass(frozen=True)
class Rules:
    """A table of rules that belongs to an explanation."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_of(code: int) -> tuple[Rules, ...]:
    """Return the tables by which lines of an XID are read, none for a code that its number alone decides."""
    if code == 154:
        return (recovery_table(),)
    if code == 74:
        rows = tuple(
            (str(row.register), " ".join(map(str, row.bits)), row.meaning, row.action.value, row.escalation)
            for row in register_bits()
        )
        return (Rules("registers of XID 74", ("register", "bits", "meaning", "action", "then"), rows),)
    errors = [row for row in unit_errors() if row.code == code]
    if not errors:
        return ()
    columns = ("unit", "first register before R575", "from R575", "error status", "severity", "action", "investigate")
    return (Rules(f"units of XID {code}", columns, tuple(_unit_row(row) for row in errors)),)


def _unit_row(row: UnitError) -> tuple[str, ...]:
    old, new = (f"{value:#010x}/{mask:#010x}" for value, mask in zip(row.values, row.masks))
    status = "any" if row.status is None else f"{row.status:#010x}"
    unit = row.units[0] if row.units[0] == row.units[1] else f"{row.units[0]} ({row.units[1]})"
    return unit, old, new, status, row.severity, row.action.value if row.action else "by XID 154", row.look_at


def recovery_table() -> Rules:
    """What each number of the driver's recovery action asks for."""
    rows = tuple((str(number), words, action.value, name) for number, (name, action, words) in RECOVERY_ACTIONS.items())
    return Rules("recovery actions", ("number", "the driver asks for", "action", "fault class"), rows)


def ecc_table() -> Rules:
    """The rules for memory errors; of several that hold, the first counts."""
    rows = tuple(
        (str(rule.order), rule.condition, rule.action.value, rule.escalation, rule.interrupts_job, rule.source)
        for rule in ecc_rules()
    )
    return Rules("memory errors", ("rule", "when", "action", "then", "job", "source"), rows)
