"""Facts for tests of the policy: a node with a fault, and what has happened to it so far."""

from __future__ import annotations

from datetime import UTC, datetime

from activities.capacity import Slot
from activities.host_memory import HostRecord
from activities.inventory import Node
from activities.node import Examination, Opinion
from checks.model import Action, Verdict
from workflows.decisions.facts import Facts
from workflows.decisions.settings import Mode, PolicySettings

NOW = datetime(2026, 11, 1, 3, 0, tzinfo=UTC)
NODE = Node(instance_id="i-1", name="node-1", instance_type="p5.48xlarge", zone="us-east-1a")
ACTING = PolicySettings(mode=Mode.ACT)


def opinion(fault_class: str = "gpu_lost", action: Action = Action.REBOOT_NODE, code: int | None = 79) -> Opinion:
    """A diagnosis, by default a GPU off the bus."""
    return Opinion(fault_class=fault_class, action=action, code=code, because=[f"XID {code}"])


def examination(what: Opinion, *, reachable: bool = True, verdict: Verdict = Verdict.CRITICAL) -> Examination:
    """What the probe found."""
    return Examination(reachable=reachable, verdict=verdict, opinion=what, boot_id="boot-1", taken_at=NOW)


def facts(what: Opinion | None = None, **changes: object) -> Facts:
    """A node that was looked at, with anything else that has happened."""
    what = what or opinion()
    start = Facts(
        cluster="lab",
        incident="incident/lab/i-1",
        run="incident/lab/i-1@run-1",
        node=NODE,
        now=NOW,
        record=HostRecord(instance_id="i-1"),
        opinion=what,
        examination=examination(what),
    )
    return start.model_copy(update=changes)


def out(what: Opinion | None = None, **changes: object) -> Facts:
    """A node that is quarantined, with its evidence saved; its instance is in no reservation, as was just seen."""
    slot = {"slot": Slot(), "slot_at": changes.get("now", NOW)}
    return facts(what, **{"quarantine_room": True, "quarantined": True, "evidence_taken": True, **slot, **changes})
