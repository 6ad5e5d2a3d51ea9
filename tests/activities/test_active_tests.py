"""Which nodes may be put under load: three facts, and each that is missing or unknown is a reason not to."""

from __future__ import annotations

import pytest

from activities import names
from activities.active_tests import GpuUse, NodeFacts, why_not
from activities.clients.fake_fleet import FakeFleet
from activities.clients.tag_inventory import TagInventory
from activities.errors import BadInput, CapabilityMissing, NodeUnreachable
from activities.inventory import Node
from activities.jobs.protocol import JobState, JobStatus, RestartedBy
from activities.probing import Probe

IDLE = GpuUse(0)
OURS = names.incident_id("lab", "i-1")
LEASED = names.replace_id("lab", "i-2")


def node(**changes: str) -> Node:
    return Node(instance_id="i-1", name="node-1").model_copy(update=changes)


def job(state: JobState, by: RestartedBy = RestartedBy.HOTSPARE) -> JobStatus:
    return JobStatus(job="train", state=state, nodes=["node-1"], restarted_by=by)


@pytest.mark.parametrize(
    "facts",
    [
        NodeFacts(node(quarantine=OURS), IDLE),
        NodeFacts(node(quarantine=OURS), IDLE, job(JobState.STOPPED)),
        NodeFacts(node(quarantine=OURS), IDLE, job(JobState.RUNNING).model_copy(update={"ranks_on": ["node-2"]})),
        NodeFacts(node(lease=LEASED), IDLE),
        NodeFacts(node(), IDLE, job(JobState.HELD)),
        NodeFacts(node(role="spare"), IDLE),
        NodeFacts(node(role="spare", lease=LEASED), IDLE),
    ],
    ids=[
        "quarantined",
        "quarantined, job stopped",
        "quarantined, job runs elsewhere",
        "leased",
        "job held",
        "spare",
        "leased spare",
    ],
)
def test_a_free_node_that_is_ours_may_be_tested(facts: NodeFacts) -> None:
    assert why_not(facts) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (NodeFacts(node(quarantine=OURS), IDLE, job(JobState.RUNNING)), "job train is running on node-1"),
        (
            NodeFacts(node(quarantine=OURS), IDLE, job(JobState.UNKNOWN).model_copy(update={"ranks_on": ["node-1", "node-2"]})),
            "whether job train runs on node-1 is not known",
        ),
        (NodeFacts(node(quarantine=OURS), IDLE, job(JobState.UNKNOWN)), "whether job train runs on node-1 is not known"),
        (NodeFacts(node(quarantine=OURS), IDLE, job_unknown="no command"), "which job has node-1 is not known: no command"),
        (NodeFacts(node(quarantine=OURS), GpuUse(3)), "3 processes hold GPUs of node-1"),
        (NodeFacts(node(quarantine=OURS), GpuUse(None, "no answer")), "a GPU of node-1 is not known: no answer"),
        (NodeFacts(node(), IDLE), "node-1 is not ours to test"),
        (NodeFacts(node(), IDLE, job(JobState.STOPPED)), "node-1 is not ours to test"),
        (NodeFacts(node(), IDLE, job(JobState.HELD, RestartedBy.CONTROLLER)), "node-1 is not ours to test"),
        (NodeFacts(node(role="head"), IDLE), "node-1 is not ours to test"),
        (NodeFacts(node(quarantine="ops-ticket-7"), IDLE, job(JobState.HELD)), "quarantined by ops-ticket-7, which is not ours"),
        (NodeFacts(node(role="spare", lease="somebody"), IDLE), "leased to somebody, which is not ours"),
    ],
)
def test_one_missing_or_unknown_fact_is_a_reason_not_to(facts: NodeFacts, reason: str) -> None:
    [said] = why_not(facts)
    assert reason in said


def test_a_running_job_is_refused_with_every_reason() -> None:
    assert len(why_not(NodeFacts(node(), GpuUse(8), job(JobState.RUNNING)))) == 3


def test_a_whole_job_costs_one_question_to_the_job_system(fleet: FakeFleet, probe: Probe) -> None:
    fleet.job.hold("train", "burn-in")
    members = [fleet.node(f"node-{number}") for number in range(1, 5)]
    assert fleet.gate(probe).refusals([*members, fleet.node("spare-1")]) == {}
    assert fleet.count("job.find") == 2
    assert fleet.count("describe") == 0


def test_a_quarantine_that_the_inventory_does_not_show_yet_counts(fleet: FakeFleet, probe: Probe) -> None:
    fleet.job.nodes = []
    fleet.machine("node-1").gpu_processes = 0
    fleet.inventory = TagInventory(fleet.ec2, "lab", cache_s=1e9)  # type: ignore[assignment]
    seen = fleet.inventory.resolve("lab", "node-1")
    gate = fleet.gate(probe)
    assert "not ours" in gate.refusals([seen])["node-1"][0]
    fleet.ec2.set_tags(seen.instance_id, {names.TAG_QUARANTINE: OURS})
    assert gate.refusals([seen]) == {}


@pytest.mark.parametrize("error", [CapabilityMissing("no command is configured"), BadInput("not one JSON value")])
def test_a_job_system_that_cannot_tell_is_a_reason_not_to(fleet: FakeFleet, probe: Probe, error: Exception) -> None:
    fleet.fail_next("job.find", error)
    assert str(error) in fleet.gate(probe).refusals([fleet.node("spare-1")])["spare-1"][0]


def test_a_job_system_that_is_silent_is_asked_again_by_the_next_attempt(fleet: FakeFleet, probe: Probe) -> None:
    fleet.fail_next("job.find", NodeUnreachable("head: no answer"))
    with pytest.raises(NodeUnreachable):
        fleet.gate(probe).refusals([fleet.node("spare-1")])
