"""What one event means by itself, the machine it happened on, and the driver's recovery action by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from checks.catalog.overrides import Override
from checks.catalog.repeats import RepeatRule, repeat_rules
from checks.model import Action


@dataclass(frozen=True)
class Assessment:
    """What one event or reading means by itself. `because` is one plain sentence that names its source.

    `overridden`: the settings say so, and say nothing of repeats.
    """

    fault_class: str
    action: Action
    because: str
    escalation: str = ""
    interrupts_job: str = ""
    overridden: bool = False

    @property
    def repeats(self) -> tuple[RepeatRule, ...]:
        """The rules that `escalation` states for its coming back. A shipped rule never goes over the settings' word."""
        return () if self.overridden else repeat_rules(self.escalation)


@dataclass(frozen=True)
class Machine:
    """What an event's meaning may depend on: driver version and GPU family (empty: not known), and the settings' overrides."""

    driver_version: str = ""
    family: str = ""
    overrides: Mapping[str, Override] = field(default_factory=dict)

    @property
    def driver_branch(self) -> int:
        """The driver's major number, such as 575; 0 where it is not known."""
        major = self.driver_version.split(".")[0]
        return int(major) if major.isascii() and major.isdigit() else 0


UNKNOWN_MACHINE = Machine()
"""Nothing is known of the machine, and nothing overridden."""

RECOVERY_ACTIONS: dict[int, tuple[str, Action, str]] = {
    0: ("none", Action.NONE, "none"),
    1: ("reset_needed", Action.RESET_GPU, "GPU reset"),
    2: ("reboot_needed", Action.REBOOT_NODE, "node reboot"),
    3: ("memory_contained", Action.RESTART_JOB, "no new peer-to-peer work on the GPU"),
    4: ("reset_needed", Action.RESET_GPU, "drain, then GPU reset"),
    5: ("unknown_code", Action.CONTACT_SUPPORT, "recover the IMEX domain"),
    6: ("reset_needed", Action.RESET_GPU, "bus reset"),
    7: ("reboot_needed", Action.POWER_CYCLE, "system reboot"),
}
"""The driver's recovery action by number: fault class, action, words.

Sources: ctrl2080gpu.h of 595.45.04 and of a 610-class tree; the printed words changed between them, the numbers did not."""

DRAIN_AND_RESET = 4
"""The recovery action that can wait for the job's end: the GPU works on, with less capacity. Source: ctrl2080gpu.h, 595.45.04."""


def assess_recovery(number: int, seen_in: str) -> Assessment:
    """Return what the driver's recovery action asks for; a number that is not known goes to a person."""
    unknown = ("unknown_code", Action.CONTACT_SUPPORT, "a step that is not known")
    fault_class, action, words = RECOVERY_ACTIONS.get(number, unknown)
    interrupts = "no" if action is Action.NONE else "at_boundary" if number == DRAIN_AND_RESET else "yes"
    because = f"{seen_in}: the driver's recovery action is {number} ({words})"
    return Assessment(fault_class, action, because, interrupts_job=interrupts)
