"""Decodes NVLink faults by the registers in the line: XID 74 (NVLink 1 to 4) and XIDs 144 to 150 (NVLink 5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Optional

from checks.catalog.loading import fault_class, load, sourced
from checks.model import Action

R575 = 575
"""The driver branch from which on the unit stands in other bits of the first register. Source: NVIDIA XID catalog 2025-09-30."""

PEER_REASONS = range(32, 38)
"""Reasons of a 149 link-down that blame the device at the far end. Source: NVIDIA XID catalog 2025-09-30."""

FOLLOW_RECOVERY = "FOLLOW_RECOVERY"
"""In nvlink5.csv: the line alone asks for nothing, the driver's recovery action (XID 154) decides."""

_WORDS = re.compile(r"\(\s*((?:0x[0-9a-fA-F]{1,8}[\s,]*){1,8})\)?")
_UNIT = re.compile(r"([A-Z][\w ]{0,40}?)\s+(?:Fatal|Non-?fatal)\b", re.IGNORECASE)
_ORDER = (Action.NONE, Action.CONTACT_SUPPORT, Action.RUN_DIAGNOSTICS, Action.RESET_GPU, Action.REBOOT_NODE)


@dataclass(frozen=True)
class RegisterBits:
    """What some bits of one register of XID 74 mean. Registers count from 1, bits from the low end."""

    register: int
    bits: tuple[int, ...]
    meaning: str
    action: Action
    fault_class: str
    escalation: str
    source: str


@dataclass(frozen=True)
class UnitError:
    """One row of NVLink 5: which unit (mask and value of the first register), which error status, and what NVIDIA asks for.

    `action` None: the recovery action decides. `status` None: any.
    """

    code: int
    units: tuple[str, str]
    masks: tuple[int, int]
    values: tuple[int, int]
    status: Optional[int]
    action: Optional[Action]
    severity: str
    look_at: str
    source: str

    def matches(self, first_register: int, branch: int) -> bool:
        """Say whether the first register names this unit; without a known driver branch either layout will do."""
        layouts = (0, 1) if not branch else (1,) if branch >= R575 else (0,)
        return any(first_register & self.masks[layout] == self.values[layout] for layout in layouts)


def registers_in(text: str) -> list[int]:
    """Return the register words of a line, empty where it has none or they are cut off before the first."""
    found = _WORDS.search(text)
    return [int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]{1,8}", found.group(1))] if found else []


def unit_in(text: str) -> str:
    """Return the unit that an NVLink 5 line names, such as "RLW_RXPIPE"; empty where it names none."""
    found = _UNIT.search(text)
    return " ".join(found.group(1).split()) if found else ""


def decode_nvlink4(text: str) -> tuple[RegisterBits, ...]:
    """Return what the registers of an XID 74 line say, the gravest first; empty where they say nothing that is known."""
    registers = registers_in(text)
    found = [
        row
        for row in register_bits()
        if row.register <= len(registers) and any(registers[row.register - 1] >> bit & 1 for bit in row.bits)
    ]
    return tuple(sorted(found, key=lambda row: -_ORDER.index(row.action)))


def decode_nvlink5(code: int, text: str, branch: int) -> Optional[UnitError]:
    """Return the row that a line of XID 144 to 150 means, None where no row does or where two contradict each other's unit.

    Where several bits of the error status are set, the gravest counts.
    """
    unit, registers = unit_in(text), registers_in(text)
    rows = [row for row in unit_errors() if row.code == code and (not unit or unit.upper() in _upper(row.units))]
    if not registers:
        return rows[0] if unit and rows and len({row.action for row in rows}) == 1 else None
    rows = [row for row in rows if row.matches(registers[0], branch)]
    if not unit and len({row.units for row in rows}) > 1:
        return None
    status = registers[1] if len(registers) > 1 else None
    return _gravest(_by_status(rows, status))


def link_down_reason(registers: Sequence[int]) -> Optional[int]:
    """The reason of a 149 link-down: bits 20 to 25 of the first register."""
    return registers[0] >> 20 & 0x3F if registers else None


def _upper(units: Iterable[str]) -> set[str]:
    return {unit.upper() for unit in units}


def _by_status(rows: list[UnitError], status: Optional[int]) -> list[UnitError]:
    exact = [row for row in rows if row.status is None or row.status == status]
    if exact or status is None or not all(_is_one_bit(row.status) for row in rows):
        return exact
    return [row for row in rows if row.status and row.status & status]


def _is_one_bit(number: Optional[int]) -> bool:
    return bool(number) and number is not None and number & (number - 1) == 0


def _gravest(rows: list[UnitError]) -> Optional[UnitError]:
    return max(rows, key=lambda row: _ORDER.index(row.action) if row.action else 0, default=None)


@cache
def register_bits() -> tuple[RegisterBits, ...]:
    """The meanings of XID 74's registers."""
    return tuple(load("nvlink4.csv", _register_bits))


@cache
def unit_errors() -> tuple[UnitError, ...]:
    """The errors of NVLink 5 units."""
    return tuple(load("nvlink5.csv", _unit_error))


def _register_bits(row: dict[str, str]) -> RegisterBits:
    action = Action(row["action"])
    if action not in _ORDER:
        raise ValueError(f"{action.value} has no place among the actions of a link")
    return RegisterBits(
        register=int(row["register"]),
        bits=tuple(int(bit) for bit in row["bits"].split()),
        meaning=row["meaning"],
        action=action,
        fault_class=fault_class(row["fault_class"]),
        escalation=row["escalation"],
        source=sourced(row["source"]),
    )


def _unit_error(row: dict[str, str]) -> UnitError:
    return UnitError(
        code=int(row["code"]),
        units=(row["unit_before_r575"], row["unit_from_r575"]),
        masks=(int(row["mask_before_r575"], 16), int(row["mask_from_r575"], 16)),
        values=(int(row["value_before_r575"], 16), int(row["value_from_r575"], 16)),
        status=int(row["status"], 16) if row["status"] else None,
        action=None if row["action"] == FOLLOW_RECOVERY else Action(row["action"]),
        severity=row["severity"],
        look_at=row["look_at"],
        source=sourced(row["source"]),
    )
