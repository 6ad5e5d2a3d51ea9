"""Looks at nodes: the examination (probe and diagnosis), the deep test; and the reset of a GPU."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity

from activities.active_tests import ActiveTestGate, GpuUse
from activities.burn_in import await_run, judged
from activities.clock import Clock, SystemClock
from activities.ec2 import BOOT_ID_DEADLINE_S, Disrupted
from activities.effects import refuse_if_late
from activities.errors import (
    AccessRefused,
    BadInput,
    CapabilityMissing,
    CommandFailed,
    DeadlinePassed,
    NodeUnreachable,
    PreconditionFailed,
    as_application_error,
)
from activities.fault_history import weigh_with_past
from activities.host_memory import HostMemory, remember_attempt
from activities.host_records import SpareTest
from activities.inventory import Node
from activities.node_access import AccessTo, CommandResult, NodeAccess
from activities.node_messages import (
    DeepTest,
    DeepTestResult,
    Examination,
    Examine,
    Gpu,
    Opinion,
    Report,
    ResetGpu,
    Seen,
)
from activities.node_words import (
    deep_result,
    differs,
    examination,
    not_started,
    on_the_same_host,
    too_ill,
    trusted,
    unreadable,
    with_ledger,
)
from activities.parity import FleetParity, JoinVerdict
from activities.probing import Probe, ProbeCrashed, ProbeWish
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from checks.model import Verdict

__all__ = [
    "DeepTest",
    "DeepTestResult",
    "Examination",
    "Examine",
    "Gpu",
    "NodeActivities",
    "Opinion",
    "Report",
    "ResetGpu",
    "Seen",
]

RESET_DEADLINE_S = 60.0
"""Seconds for a GPU reset. Hotspare default: resets take tens of seconds."""


class NodeActivities:
    """Looks at nodes and tests them. What cannot be read is UNKNOWN, never OK."""

    def __init__(
        self,
        access_to: AccessTo,
        probe: Probe,
        gate: ActiveTestGate,
        access: AccessSettings,
        burn_in: BurnInSettings,
        memory: HostMemory,
        clock: Clock | None = None,
        parity: FleetParity | None = None,
    ) -> None:
        self._access_to = access_to
        self._probe = probe
        self._gate = gate
        self._access = access
        self._burn_in = burn_in
        self._memory = memory
        self._clock = clock or SystemClock()
        self._parity = parity

    @activity.defn
    def examine(self, request: Examine) -> Examination:
        """Probe a node and diagnose what is seen and reported. An unreadable node is an answer here, not an error."""
        with as_application_error():
            return self._examine(request)

    @activity.defn
    def deep_test(self, request: DeepTest) -> DeepTestResult:
        """Deep probe, then the one-node all-reduce, then a second look; OK only if every part ran and passed.

        No run is started on a node that is ill, not free, not ours, or set up otherwise than the job's nodes that it would join.
        """
        with as_application_error():
            access = self._access_to(request.node)
            deadline_s = self._burn_in.deadline_s if request.deadline_s is None else request.deadline_s
            parity = JoinVerdict((), "")
            if not access.poll(request.run_id).known:
                before = self._examine(_deep(request))
                if (refused := on_the_same_host(request, before) or self._refuse_test(request.node, before)) is not None:
                    return refused
                parity = self._parity_with_job(request)
                if request.joins and parity.differences:
                    return differs(parity, before)
                if (test := self._trusted(request, before)) is not None:
                    return trusted(test, before, parity)
                refuse_if_late()
                access.start(request.run_id, self._node_command(request.node), deadline_s)
            run = await_run(access, request.run_id, deadline_s, self._burn_in.poll_s, self._clock)
            alone = judged(run, [request.node], self._burn_in.floors_gbs)
            after = self._examine(_deep(request))
            return deep_result(alone, after, parity)

    @activity.defn
    def reset_gpu(self, request: ResetGpu) -> Disrupted:
        """Reset a GPU in the boot that was examined, with no process on any GPU."""
        with as_application_error():
            access = self._access_to(request.node)
            self._refuse_reset(access, request)
            which = request.gpu.pci or (str(request.gpu.index) if request.gpu.index is not None else "")
            if not which:
                raise BadInput(f"{request.node.name}: the GPU to reset is not known, neither its PCI bus id nor its index")
            refuse_if_late()
            if request.attempt is not None:
                remember_attempt(self._memory, request.node.instance_id, request.attempt)
            sudo = ["sudo", "-n"] if self._access.sudo else []
            answer = access.run([*sudo, "nvidia-smi", "--gpu-reset", "-i", which], RESET_DEADLINE_S)
            return _reset_answer(request.node, answer, which)

    def _trusted(self, request: DeepTest, before: Examination) -> SpareTest | None:
        """Return the test that the node passed not long ago in this boot, None where it is to be tested now."""
        if not request.trust_h or before.verdict is not Verdict.OK:
            return None
        test = self._memory.recall(request.node.instance_id).spare_test
        if test is None or not test.passed or not test.boot_id or test.boot_id != before.boot_id:
            return None
        return test if before.taken_at - test.at <= timedelta(hours=request.trust_h) else None

    def _parity_with_job(self, request: DeepTest) -> JoinVerdict:
        """Compare the node, just looked at, with the job's other nodes; nothing is said where nobody asked."""
        if self._parity is None or not (request.job or request.joins):
            return JoinVerdict((), "")
        return self._parity.join(request.node, request.job, request.in_place_of)

    def _refuse_test(self, node: Node, before: Examination) -> DeepTestResult | None:
        """Return why a node is not put under load, or None."""
        if (ill := too_ill(before)) is not None:
            return ill
        refusals = self._gate.refusals([node], {node.name: GpuUse(before.gpu_processes)})
        return not_started(refusals[node.name], before) if refusals else None

    def _examine(self, request: Examine) -> Examination:
        access = self._access_to(request.node)
        wish = ProbeWish(request.depth, request.settling_s, request.handled_until)
        why = ""
        for attempt in range(self._access.tries):
            if attempt:
                self._clock.wait(self._access.retry_wait_s)
            try:
                answer = self._probe.run(access, request.node, wish)
                if self._parity is not None:
                    self._parity.note(request.node, answer.configuration)
                weighed = weigh_with_past(self._memory, answer, request, self._probe.overrides)
                return with_ledger(examination(answer, weighed.diagnosis), weighed.banned, weighed.elsewhere)
            except (NodeUnreachable, ProbeCrashed) as error:
                why = str(error)
            except DeadlinePassed as error:
                why = str(error)
                break  # a second wait of the same length would tell nothing new
            except (AccessRefused, CommandFailed) as error:
                return unreadable(request.node, str(error), answers=True)
        return self._unreadable(request.node, access, why)

    def _unreadable(self, node: Node, access: NodeAccess, why: str) -> Examination:
        """Tell a node that does not answer from a probe that does not work on a node that does."""
        try:
            return unreadable(node, why, answers=True, boot_id=access.boot_id(BOOT_ID_DEADLINE_S))
        except (NodeUnreachable, DeadlinePassed):
            return unreadable(node, why, answers=False)
        except (AccessRefused, CommandFailed) as error:
            return unreadable(node, str(error), answers=True)

    def _node_command(self, node: Node) -> list[str]:
        gpus = str(node.gpus or self._burn_in.gpus_per_node)
        return [part.replace("{gpus}", gpus) for part in self._burn_in.node_command]

    def _refuse_reset(self, access: NodeAccess, request: ResetGpu) -> None:
        try:
            answer = self._probe.run(access, request.node, ProbeWish())
        except ProbeCrashed as error:
            raise PreconditionFailed(f"{request.node.name}: no GPU is reset on a node that cannot be probed: {error}") from error
        if request.boot_id and answer.boot_id != request.boot_id:
            raise PreconditionFailed(f"{request.node.name} has restarted since it was examined; examine it again")
        if answer.gpu_processes is None:
            raise PreconditionFailed(f"{request.node.name}: whether a process holds a GPU is not known, so none is reset")
        if answer.gpu_processes:
            raise PreconditionFailed(f"{request.node.name}: {answer.gpu_processes} processes hold GPUs; stop the job first")


def _reset_answer(node: Node, answer: CommandResult, which: str) -> Disrupted:
    """Read what the reset said. None of its refusals says anything about the hardware."""
    said = f"{answer.stdout}\n{answer.stderr}".strip()
    words = said.lower()
    if answer.exit_status == 0 and "success" in words:
        return Disrupted(made_now=True, said=f"GPU {which} of {node.name}: reset")
    if "in use" in words:
        raise PreconditionFailed(f"GPU {which} of {node.name} is in use by a process, so it was not reset: {said[-300:]}")
    if "not supported" in words or answer.exit_status == 127:
        raise CapabilityMissing(f"GPU {which} of {node.name} cannot be reset by itself here: {said[-300:]}")
    raise PreconditionFailed(f"GPU {which} of {node.name} was not reset: {said[-300:]}")


def _deep(request: DeepTest) -> Examine:
    """Return the deep look that goes with a deep test."""
    return Examine(
        node=request.node,
        depth="deep",
        settling_s=request.settling_s,
        handled_until=request.handled_until,
        incident=request.incident,
    )
