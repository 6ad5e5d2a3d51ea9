"""What is remembered of a node's faults: each once per incident, with the job, and out of the histories of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from activities.auto_scaling import AutoScalingHealers
from activities.briefing import BriefingActivities
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_memory import FakeMemory
from activities.errors import ProviderBusy
from activities.fault_history import weigh_with_past
from activities.host_memory import (
    ClosedIncident,
    CloseHostIncident,
    HostFault,
    HostMemory,
    HostMemoryActivities,
    HostRecord,
    RungAttempt,
)
from activities.inventory import Node, ResolveNode
from activities.node_messages import Examine
from activities.probing import ProbeAnswer
from checks.catalog import Override
from checks.kernel_log import read_lines
from checks.model import Action, Confidence, Diagnosis, Finding, GpuRef, Verdict

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NODE = Node(instance_id="i-001", name="node-1", instance_type="p5.48xlarge")
GPU = GpuRef(index=3, uuid="GPU-3", pci="0000:1b:00", serial="1650")
NO_OVERRIDES: dict[str, Override] = {}
LOST = "[ 4900.000000] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."

INCIDENT = "incident/lab/i-001@run-1"


def answer(*lines: str, boot: str = "boot-1", at: datetime = NOW) -> ProbeAnswer:
    nothing = Diagnosis("none", Action.NONE, Confidence.LOW)
    fine = (Finding("nvml", Verdict.OK, "8 GPUs answer"),)
    events = tuple(read_lines(lines))
    return ProbeAnswer(Verdict.OK, boot, 5000.0, at, "p5.48xlarge", (GPU,), 0, fine, events, nothing)


def looked(
    memory: HostMemory,
    lines: Sequence[str],
    incident: str = INCIDENT,
    job: str = "",
    **more: object,
) -> Diagnosis:
    """Weigh as the activity of a workflow does; a sweep names no incident."""
    request = Examine(node=NODE, job=job, incident=incident)
    return weigh_with_past(memory, answer(*lines, **more), request, NO_OVERRIDES).diagnosis  # type: ignore[arg-type]


def faults(memory: HostMemory) -> list[HostFault]:
    return memory.recall(NODE.instance_id).faults


def test_a_fault_is_remembered_once_however_often_the_node_is_looked_at(memory: HostMemory) -> None:
    for seconds in range(5):
        looked(memory, [LOST], at=NOW + timedelta(seconds=0.01 * seconds))
    [fault] = faults(memory)
    assert (fault.code, fault.gpu_serial, fault.incident) == (79, "1650", INCIDENT)
    assert memory.recall(NODE.instance_id).version == 1


def test_the_same_fault_in_a_later_incident_is_a_second_one(memory: HostMemory) -> None:
    first = looked(memory, [LOST])
    back = looked(memory, [LOST], boot="boot-2", at=NOW + timedelta(hours=2))
    later = looked(memory, [LOST], boot="boot-3", at=NOW + timedelta(days=6), incident="incident/lab/i-001@run-2")
    assert [found.action for found in (first, back, later)] == [Action.REBOOT_NODE, Action.REBOOT_NODE, Action.REPLACE_NODE]
    assert "second XID 79 on GPU serial 1650 in 6 days" in later.because[0]


def test_a_sweep_that_saw_it_first_makes_it_no_second_fault(memory: HostMemory) -> None:
    looked(memory, [LOST], incident="")
    assert looked(memory, [LOST]).action is Action.REBOOT_NODE
    assert looked(memory, [LOST], boot="boot-2", at=NOW + timedelta(hours=1)).action is Action.REBOOT_NODE
    assert {fault.incident for fault in faults(memory)} == {INCIDENT}


def test_after_a_power_cycle_a_gpu_is_known_by_its_serial_alone(memory: HostMemory) -> None:
    looked(memory, [LOST])
    moved = RungAttempt(rung=Action.POWER_CYCLE, at=NOW + timedelta(minutes=5), fault_class="gpu_lost")
    record = memory.recall(NODE.instance_id)
    memory.save(record.model_copy(update={"attempts": [moved]}))
    looked(memory, [], boot="boot-2", at=NOW + timedelta(hours=3), incident="incident/lab/i-001@run-2")
    assert [(fault.gpu_serial, fault.pci) for fault in faults(memory)] == [("1650", "")]


def test_a_memory_that_does_not_answer_leaves_a_diagnosis_that_says_so() -> None:
    class Away(FakeMemory):
        def recall(self, instance_id: str) -> HostRecord:
            raise ProviderBusy("the disk is full")

    found = looked(Away(), [LOST])
    assert found.action is Action.REBOOT_NODE
    assert "not known: the disk is full" in found.because[-1]


def test_the_job_of_an_incident_is_noted_when_it_closes(memory: HostMemory) -> None:
    looked(memory, [LOST])
    closed = ClosedIncident(
        incident="incident/lab/i-001",
        run_id=f"{INCIDENT}~2",
        cluster="lab",
        instance_id="i-001",
        opened_at=NOW,
        closed_at=NOW,
        fault_class="gpu_lost",
        outcome="resolved",
    )
    answered = HostMemoryActivities(memory).close_host_incident(CloseHostIncident(closed=closed, job="llama"))
    assert [fault.job for fault in faults(memory)] == ["llama"]
    assert answered.faults == []


def test_past_faults_stay_out_of_the_histories_of_workflows() -> None:
    fleet = FakeFleet()
    node = fleet.node("node-1")
    fleet.memory.save(HostRecord(instance_id=node.instance_id, faults=[HostFault(kind="xid", code=79, at=1.0, until=1.0)]))
    briefing = BriefingActivities(fleet.inventory, fleet.memory, AutoScalingHealers(fleet.groups, fleet.ec2)).brief(
        ResolveNode(cluster=fleet.cluster, alias="node-1")
    )
    assert (briefing.record.version, briefing.record.faults) == (1, [])
