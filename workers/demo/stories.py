"""The three stories of the demonstration: what breaks, what is at hand, and how each must end."""

from __future__ import annotations

from dataclasses import dataclass

from infra.lab.faults import Cure, Fault
from workers.demo.ending import Expectation, quarantined, rebooted, trains_on


@dataclass(frozen=True)
class Injection:
    """A fault for one node."""

    node: str
    fault: Fault


@dataclass(frozen=True)
class Story:
    """One fault and its healing. `spares` are in the pool from the start of the story; `hidden` is in place before it begins,
    `fault` begins it."""

    key: str
    title: str
    scene: str
    fault: Injection
    expected: tuple[Expectation, ...]
    spares: tuple[str, ...] = ()
    hidden: tuple[Injection, ...] = ()


STORIES = (
    Story(
        key="79",
        title="A GPU falls off the bus, and no spare is free",
        scene="node-2 will print XID 79: a GPU is gone until the next boot. The pool is empty, so it is repaired in place.",
        fault=Injection("node-2", Fault(xid=79, cure=Cure.REBOOT.value)),
        expected=(
            rebooted("node-2", 1),
            trains_on(with_=("node-2",)),
            quarantined("node-2", at_end=False),
        ),
    ),
    Story(
        key="64",
        title="A GPU has no spare memory rows left: no reboot will mend it",
        scene="node-3 will print XID 64: row remapping failed, the GPU must go back to its maker. spare-1 is in the pool.",
        fault=Injection("node-3", Fault(xid=64, cure=Cure.NEVER.value)),
        spares=("spare-1",),
        expected=(
            rebooted("node-3", 0),
            trains_on(with_=("spare-1",), without=("node-3",)),
            quarantined("node-3", at_end=True),
        ),
    ),
    Story(
        key="94",
        title="The job only needs a restart, but its burn-in finds another node slow",
        scene="node-1 will print XID 94: a contained memory error, which costs the job but not the node. Nobody knows yet that "
        "node-4 has lost half of its network bandwidth; it passes each of its own checks. spare-2 is in the pool.",
        fault=Injection("node-1", Fault(xid=94, cure=Cure.REBOOT.value)),
        hidden=(Injection("node-4", Fault(slow=0.5, slow_kind="inter", cure=Cure.NEVER.value)),),
        spares=("spare-2",),
        expected=(
            rebooted("node-1", 0),
            trains_on(with_=("node-1", "spare-2"), without=("node-4",)),
            quarantined("node-1", at_end=False),
            quarantined("node-4", at_end=True),
        ),
    ),
)
"""In this order on one cluster; each also works alone. Nodes differ, so that no story meets the memory of an earlier one."""


def choose(faults: list[str]) -> tuple[Story, ...]:
    """Return the stories of these codes, all when empty. Raises ValueError naming the codes there are."""
    known = {story.key: story for story in STORIES}
    wanted = [fault.lower().removeprefix("xid").strip(" -_") for fault in faults]
    unknown = [fault for fault, key in zip(faults, wanted, strict=True) if key not in known]
    if unknown:
        raise ValueError(f"there is no story for {', '.join(unknown)}; there is one for XID {', '.join(known)}")
    return tuple(known[key] for key in wanted) or STORIES
