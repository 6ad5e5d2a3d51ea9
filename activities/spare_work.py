"""Work that spares do while they wait: evicted, and the node seen to be idle, before a spare is tested or replaces a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pydantic import Field
from temporalio import activity

from activities.active_tests import ActiveTestGate
from activities.clock import Clock, SystemClock, beat, waited_before
from activities.effects import refuse_if_late
from activities.errors import CommandFailed, DeadlinePassed, as_application_error
from activities.inventory import Node
from activities.jobs.command import fill
from activities.message import Message
from activities.node_access import NodeAccess
from activities.settings import Section


class PreemptibleSettings(Section):
    """Preemptible work on spares. Without a command spares are taken to be idle, and one that is not is refused by its test."""

    evict: list[str] = Field(
        [],
        description="Command on job.head that ends the preemptible work on {node} and keeps it away, such as "
        '["/opt/cluster/evict", "{node}"]; run again it must do no harm',
    )
    command_deadline_s: float = Field(60.0, gt=0, description="Seconds for that command. Hotspare default")
    idle_deadline_s: float = Field(
        300.0,
        gt=0,
        description="Seconds from the eviction to an idle node. Source: a grace period of 30 s is the default of Kubernetes and "
        "Slurm, up to 2 min are usual (Crusoe)",
    )
    look_s: float = Field(2.0, gt=0, description="Seconds between looks whether it is idle. Hotspare default")


class ClearSpare(Message):
    """End the preemptible work on a spare."""

    node: Node


class Cleared(Message):
    """The spare is idle; `evicted`: its work had to be ended first."""

    evicted: bool
    said: str


class SpareWork(Protocol):
    """What ends preemptible work."""

    def evict(self, node: Node) -> None:
        """Have the work on a node end, without waiting for it; doing it again is harmless. Raises CommandFailed."""
        ...


class CommandSpareWork:
    """Ends it by a configured command on the head node."""

    def __init__(self, access_to_head: Callable[[], NodeAccess], settings: PreemptibleSettings) -> None:
        self._access_to_head = access_to_head
        self._settings = settings

    def evict(self, node: Node) -> None:
        command = [fill(part, {"node": node.name}) for part in self._settings.evict]
        answer = self._access_to_head().run(command, self._settings.command_deadline_s)
        if answer.exit_status != 0:
            said = (answer.stderr.strip() or answer.stdout.strip())[-300:]
            raise CommandFailed(f"preemptible.evict for {node.name} ended with status {answer.exit_status}: {said}")


class SpareWorkActivities:
    """Clears spares."""

    def __init__(self, work: SpareWork, gate: ActiveTestGate, settings: PreemptibleSettings, clock: Clock | None = None) -> None:
        self._work = work
        self._gate = gate
        self._settings = settings
        self._clock = clock or SystemClock()

    @activity.defn
    def clear_spare(self, request: ClearSpare) -> Cleared:
        """Evict, and return once no job and no process has the node. Raises DeadlinePassed with what still has it."""
        with as_application_error():
            node = request.node
            if not self._in_use(node):
                return Cleared(evicted=False, said=f"{node.name} is idle")
            refuse_if_late()
            self._work.evict(node)
            before, since = waited_before(), self._clock.now()
            while reasons := self._in_use(node):
                waited = before + self._clock.now() - since
                beat(waited)
                if waited >= self._settings.idle_deadline_s:
                    limit = f"{self._settings.idle_deadline_s:g} s after its work was evicted"
                    raise DeadlinePassed(f"{node.name} is not idle {limit}: {'; '.join(reasons)}")
                self._clock.wait(self._settings.look_s)
            return Cleared(evicted=True, said=f"the preemptible work on {node.name} was evicted, and the node is idle")

    def _in_use(self, node: Node) -> list[str]:
        return self._gate.refusals([node]).get(node.name, [])
