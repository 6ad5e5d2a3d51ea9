"""The three stories of the demonstration: what breaks, what is at hand, and how each must end."""

from __future__ import annotations

from dataclasses import dataclass

from infra.lab.faults import Cure, Fault
from infra.lab.options import JOB_KINDS
from infra.lab.orchestrators import ORCHESTRATORS
from workers.demo.ending import Expectation, quarantined, rebooted, trains_on


@dataclass(frozen=True)
class Injection:
    """A fault for one node."""

    node: str
    fault: Fault


@dataclass(frozen=True)
class Story:
    """One fault and its healing. `spares` are in the pool from the start of the story; `hidden` is in place before it begins,
    `fault` begins it. `controlled`: a controller restarts the job."""

    key: str
    title: str
    scene: str
    fault: Injection
    expected: tuple[Expectation, ...]
    spares: tuple[str, ...] = ()
    hidden: tuple[Injection, ...] = ()
    controlled: bool = False


@dataclass(frozen=True)
class Setting:
    """What the job runs on. `job_kind` counts where the orchestrator is kubernetes. ValueError for a wrong word."""

    orchestrator: str = "command"
    job_kind: str = "Job"
    access: str = "ssh"

    def __post_init__(self) -> None:
        for word, known in (
            (self.orchestrator, ORCHESTRATORS),
            (self.job_kind, JOB_KINDS),
            (self.access, ("ssh", "agent", "ssm")),
        ):
            if word not in known:
                raise ValueError(f"{word} is not known here; there are {', '.join(known)}")
        if self.orchestrator == "kubernetes" and self.access == "ssm":
            raise ValueError("on kubernetes the lab's nodes are reached by ssh or agent, not by ssm")

    @property
    def controlled(self) -> bool:
        """Whether a controller restarts the job, so that Hotspare must not."""
        return self.orchestrator == "kubernetes"

    @property
    def protocols(self) -> str:
        """What is spoken there; by agent nobody logs in."""
        more = {"kubernetes": "Kubernetes", "slurm": "Slurm"}.get(self.orchestrator)
        by_agent = self.orchestrator == "kubernetes" and self.access == "agent"
        ssh = None if by_agent else "Run Command" if self.access == "ssm" else "SSH"
        return ", ".join(filter(None, ("EC2", ssh, more, "Temporal")))

    @property
    def words(self) -> str:
        """How the screen names it."""
        kind = f", the job a {self.job_kind}" if self.controlled else ""
        return "" if self.orchestrator == "command" else f" on {self.orchestrator}{kind}"


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


CONTROLLED = (
    Story(
        key="79",
        title="A GPU falls off the bus while the controller restarts the job",
        scene="node-2 will print XID 79: a GPU is gone until the next boot. Two spares are in the pool: one takes over "
        "as soon as the pair has proved it, and node-2 is repaired meanwhile.",
        fault=Injection("node-2", Fault(xid=79, cure=Cure.REBOOT.value)),
        spares=("spare-1", "spare-2"),
        expected=(
            rebooted("node-2", 1),
            trains_on(without=("node-2",)),
            quarantined("node-2", at_end=False),
        ),
        controlled=True,
    ),
    Story(
        key="64",
        title="A GPU has no spare memory rows left: no reboot will mend it",
        scene="node-3 will print XID 64: row remapping failed, the GPU must go back to its maker. Its controller starts the job "
        "on it again at once; Hotspare moves it to a proven spare.",
        fault=Injection("node-3", Fault(xid=64, cure=Cure.NEVER.value)),
        spares=("spare-1", "spare-2"),
        expected=(
            rebooted("node-3", 0),
            trains_on(without=("node-3",)),
            quarantined("node-3", at_end=True),
        ),
        controlled=True,
    ),
    Story(
        key="94",
        title="The job only needs a restart, and its controller does that",
        scene="node-1 will print XID 94: a contained memory error, which costs the job but not the node. Hotspare watches the "
        "controller's restart until the job has trained past its checkpoint.",
        fault=Injection("node-1", Fault(xid=94, cure=Cure.REBOOT.value)),
        expected=(
            rebooted("node-1", 0),
            trains_on(with_=("node-1",)),
            quarantined("node-1", at_end=False),
        ),
        controlled=True,
    ),
)
"""The same faults where a controller restarts the job: its own restarts are watched, and bad nodes are taken from it."""


def choose(faults: list[str], setting: Setting | None = None) -> tuple[Story, ...]:
    """Return the stories of these codes, all when empty. Raises ValueError naming the codes there are."""
    stories = CONTROLLED if setting is not None and setting.controlled else STORIES
    known = {story.key: story for story in stories}
    wanted = [fault.lower().removeprefix("xid").strip(" -_") for fault in faults]
    unknown = [fault for fault, key in zip(faults, wanted, strict=True) if key not in known]
    if unknown:
        raise ValueError(f"there is no story for {', '.join(unknown)}; there is one for XID {', '.join(known)}")
    return tuple(known[key] for key in wanted) or stories
