"""The stories on FakeFleet: three of the demonstration, three of a job that its controller restarts, four of spares and burn-ins.

Repaired in place, spare swapped in, burn-in finds a slow node; with a controller the spare is proven before it is brought in,
or the node is before it serves again, and one controller does not manage; a spare fails its test, one is launched, one takes a
retired node's slot, and a person asks for a burn-in.
"""

from __future__ import annotations

from dataclasses import dataclass

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import Cure, FakeFault
from activities.jobs.protocol import RestartedBy


@dataclass(frozen=True)
class ChaosStory:
    """One fault and what is hidden before it. `bad` are the nodes that are ill for good; the rest are well at the end.

    `reboots` are those of the undisturbed story. `controller`: who restarts the job is one, and whether it manages. `begins` is
    the workflow that a person or a sweep starts; without it a fault begins the story.
    """

    key: str
    title: str
    node: str
    xid: int
    cure: Cure
    spares: int
    bad: tuple[str, ...] = ()
    hidden: tuple[tuple[str, FakeFault], ...] = ()
    reboots: int = 0
    controller: bool | None = None
    resume_first: bool = True
    begins: str = ""

    @property
    def fault(self) -> FakeFault:
        """The fault that begins the story."""
        return FakeFault(xid=self.xid, cure=self.cure)

    def set_up(self, fleet: FakeFleet) -> None:
        """Make the job a controller's, whose pods are drained before a node restarts."""
        if self.controller is None:
            return
        fleet.job.restarted_by, fleet.job.controller_works = RestartedBy.CONTROLLER, self.controller
        fleet.drains = True


STORIES = (
    ChaosStory("79", "repaired in place", "node-2", 79, Cure.REBOOT, spares=0, reboots=1),
    ChaosStory("64", "spare swapped in", "node-3", 64, Cure.NEVER, spares=1, bad=("node-3",)),
    ChaosStory(
        "94",
        "burn-in finds a slow node",
        "node-1",
        94,
        Cure.REBOOT,
        spares=1,
        bad=("node-4",),
        hidden=(("node-4", FakeFault(slow=0.5, slow_kind="inter", cure=Cure.NEVER)),),
    ),
    ChaosStory(
        "proven", "a spare proven for a job's controller", "node-2", 79, Cure.REBOOT, spares=2, reboots=1, controller=True
    ),
    ChaosStory(
        "paired",
        "paired in place for a job's controller",
        "node-2",
        79,
        Cure.REBOOT,
        spares=1,
        reboots=1,
        controller=True,
        resume_first=False,
    ),
    ChaosStory(
        "taken-over", "taken over from a job's controller", "node-3", 64, Cure.NEVER, spares=2, bad=("node-3",), controller=False
    ),
    ChaosStory(
        "spare-fails",
        "a spare fails its test in the pool",
        "spare-1",
        0,
        Cure.NEVER,
        spares=2,
        bad=("spare-1",),
        hidden=(("spare-1", FakeFault(slow=0.3, slow_kind="intra", cure=Cure.NEVER)),),
        begins=names.WORKFLOW_QUALIFY_SPARE,
    ),
    ChaosStory("launched", "a spare is launched", "", 0, Cure.NEVER, spares=0, begins=names.WORKFLOW_PROVISION_SPARE),
    ChaosStory(
        "renewed",
        "a launched spare takes a retired node's slot",
        "node-3",
        0,
        Cure.NEVER,
        spares=0,
        bad=("node-3",),
        begins=names.WORKFLOW_PROVISION_SPARE,
    ),
    ChaosStory(
        "by-hand",
        "a burn-in by hand finds a slow node",
        "node-4",
        0,
        Cure.NEVER,
        spares=0,
        bad=("node-4",),
        hidden=(("node-4", FakeFault(slow=0.5, slow_kind="inter", cure=Cure.NEVER)),),
        begins=names.WORKFLOW_BURN_IN,
    ),
)
