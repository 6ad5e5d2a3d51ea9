"""FakeFleet's training job. It steps when it is looked at, keeps checkpoints, and stops when a machine fails it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from activities.clients.fake_machine import FakeMachine
from activities.clients.fake_points import Points
from activities.errors import BadInput, CapabilityMissing, CommandFailed
from activities.inventory import Node
from activities.jobs.protocol import JobState, JobStatus, RestartedBy

CHECKPOINT_EVERY = 5
"""Steps from one checkpoint to the next."""


class FakeJob:
    """A job adapter with one job. Where `restarted_by` names a controller, that one starts a stopped job again by itself.

    It does so once enough nodes of its node set, and nodes supplied to it, are free of quarantine and can work. A test switches
    `controller_works` off for one that never does.
    """

    def __init__(
        self,
        name: str,
        nodes: list[str],
        machines: Mapping[str, FakeMachine],
        points: Points,
        lock: threading.RLock,
        quarantined: Callable[[str], bool],
    ) -> None:
        self.name, self.nodes = name, nodes
        self.state = JobState.RUNNING
        self.step, self.checkpoint_step = 12, 10
        self.run_token = ""
        self.restarted_by = RestartedBy.HOTSPARE
        self.resumes: list[tuple[str, list[str]]] = []
        self.controller_works = True
        self.controller_restarts = 0
        self.restarts_left: int | None = None
        self.warnings: list[str] = []
        self.supplied: list[str] = []
        self.left: list[str] = []
        self.held_for = ""
        self.ended = ""
        self._machines, self._points, self._lock, self._quarantined = machines, points, lock, quarantined
        self._set_ranks(8)

    def find_on(self, node: Node) -> JobStatus | None:
        return self._points.carry_out("job.find", node.name, lambda: self._look() if node.name in self.nodes else None)

    def status(self, job: str) -> JobStatus:
        self._check_name(job)
        return self._points.carry_out("job.status", job, self._look)

    def hold(self, job: str, reason: str) -> JobStatus:
        self._check_name(job)
        return self._points.carry_out("job.hold", job, lambda: self._hold(reason))

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        self._check_name(job)
        self._points.carry_out("job.resume", job, lambda: self._resume(nodes, token))

    def settle(self, job: str, nodes: list[str]) -> None:
        """A started job leaves nothing to do."""

    def supply(self, job: str, node: Node) -> None:
        self._check_name(job)
        self._refuse_unless_controlled()
        self._points.carry_out("job.supply", node.name, lambda: self._add(self.supplied, node.name))

    def take_back(self, job: str, node: Node) -> None:
        self._check_name(job or self.name)
        self._points.carry_out("job.take_back", node.name, lambda: self._remove(self.supplied, node.name))

    def leave(self, job: str, node: Node) -> None:
        self._check_name(job)
        self._refuse_unless_controlled()
        self._points.carry_out("job.leave", node.name, lambda: self._leave(node.name))

    def stop(self) -> None:
        """Called by the fleet when a fault or a restart ends a rank: the whole job stops."""
        with self._lock:
            if self.state is JobState.RUNNING:
                self.state = JobState.STOPPED
                self._set_ranks(0)

    def start_again(self) -> None:
        """The job runs (again) without anybody's doing, as one does that survives a fault."""
        with self._lock:
            self.state = JobState.RUNNING
            self._set_ranks(8)

    def _look(self) -> JobStatus:
        with self._lock:
            if self.state is JobState.RUNNING and not all(self._machines[name].can_work for name in self.nodes):
                self.stop()
            if self.state is JobState.STOPPED and self.restarted_by is not RestartedBy.HOTSPARE and self.controller_works:
                self._controller_turn()
            if self.state is JobState.RUNNING:
                self.step += 1
                self.checkpoint_step = max(self.checkpoint_step, self.step - self.step % CHECKPOINT_EVERY)
            return self._view()

    def _controller_turn(self) -> None:
        """Start the job again where as many nodes as it had can be used."""
        known = dict.fromkeys([*self.nodes, *self.supplied])
        usable = [name for name in known if self._machines[name].can_work and not self._quarantined(name)]
        if len(usable) >= len(self.nodes):
            self.nodes, self.state, self.step = usable[: len(self.nodes)], JobState.RUNNING, self.checkpoint_step
            self.controller_restarts += 1
            self._set_ranks(8)

    def _add(self, names: list[str], name: str) -> None:
        if name not in names:
            names.append(name)

    def _remove(self, names: list[str], name: str) -> None:
        if name in names:
            names.remove(name)

    def _leave(self, name: str) -> None:
        self._add(self.left, name)
        if name in self.nodes and self.state is JobState.RUNNING:
            self.stop()

    def _refuse_unless_controlled(self) -> None:
        if self.restarted_by is RestartedBy.HOTSPARE:
            raise CapabilityMissing(f"job {self.name}: a resume names its nodes")

    def _hold(self, reason: str) -> JobStatus:
        with self._lock:
            self.held_for = reason
            self.state = JobState.HELD
            self._set_ranks(0)
            return self._view()

    def _resume(self, nodes: list[str], token: str) -> None:
        with self._lock:
            if self.run_token == token:
                return
            if self.state is JobState.RUNNING:
                raise CommandFailed(f"{self.name} runs already")
            for name in nodes:
                if self._quarantined(name):
                    raise CommandFailed(f"{self.name}: {name} is quarantined")
                if not self._machines[name].can_work:
                    raise CommandFailed(f"{self.name}: no rank could be started on {name}")
            self.nodes, self.run_token, self.state, self.step = list(nodes), token, JobState.RUNNING, self.checkpoint_step
            self.resumes.append((token, list(nodes)))
            self._set_ranks(8)

    def _view(self) -> JobStatus:
        return JobStatus(
            job=self.name,
            state=self.state,
            nodes=list(self.nodes),
            step=self.step,
            checkpoint_step=self.checkpoint_step,
            run_token=self.run_token,
            restarted_by=self.restarted_by,
            seconds_per_step=0.2,
            held_for=self.held_for if self.state is JobState.HELD else "",
            ended=self.ended,
            controller="" if self.restarted_by is RestartedBy.HOTSPARE else f"controller of {self.name}",
            restarts_left=self.restarts_left,
            warnings=list(self.warnings),
        )

    def _set_ranks(self, ranks: int) -> None:
        for name in self.nodes:
            self._machines[name].gpu_processes = ranks

    def _check_name(self, job: str) -> None:
        if job != self.name:
            raise BadInput(f"no job is called {job!r}; there is {self.name!r}")
