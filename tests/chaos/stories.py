"""The three stories of the demonstration on FakeFleet: repaired in place, spare swapped in, burn-in finds a slow node."""

from __future__ import annotations

from dataclasses import dataclass

from activities.clients.fake_machine import Cure, FakeFault


@dataclass(frozen=True)
class ChaosStory:
    """One fault and what is hidden before it. `bad` are the nodes that are ill for good; the rest are well at the end.

    `reboots` are those of the undisturbed story.
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

    @property
    def fault(self) -> FakeFault:
        """The fault that begins the story."""
        return FakeFault(xid=self.xid, cure=self.cure)


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
)
