"""A node is drained for its replacement only with its evidence kept and under its incident's own quarantine; it is seen to go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.giving_up import AwaitGone, DrainForReplacement, GivingUpActivities, NoReplacer
from activities.quarantine import HeadFileMarks, QuarantineActivities, QuarantineMarks, QuarantineNode
from activities.settings import EffectSettings
from tests.activities.conftest import attempt

INCIDENT = "incident/lab/i-2"
KEPT = "file:///evidence/incident_lab_i-2.tar.gz"


@pytest.fixture
def fleet() -> FakeFleet:
    """Two nodes, the second quarantined by the incident and without a job."""
    made = FakeFleet(nodes=2, spares=0)
    made.job.hold("train", "a test")
    marks = QuarantineMarks(made.ec2, HeadFileMarks("head", made.access_to, made.inventory))
    run(QuarantineActivities(marks).quarantine_node, QuarantineNode(node=made.node("node-2"), incident=INCIDENT, reason="XID 64"))
    return made


def run(activity: Any, request: Any) -> Any:
    """Run an activity as an attempt of its own."""
    return attempt(left=timedelta(minutes=1)).run(activity, request)


def of(fleet: FakeFleet) -> GivingUpActivities:
    return GivingUpActivities(fleet, fleet.ec2, EffectSettings(), fleet.clock)


def drain(fleet: FakeFleet, name: str = "node-2", evidence: str = KEPT) -> DrainForReplacement:
    return DrainForReplacement(node=fleet.node(name), incident=INCIDENT, evidence=evidence)


def test_a_drained_node_goes_and_is_not_drained_again(fleet: FakeFleet) -> None:
    asked = drain(fleet)
    assert "drained" in run(of(fleet).drain_for_replacement, asked).said
    assert "terminated already" in run(of(fleet).drain_for_replacement, asked).said
    assert fleet.count("drain_for_replacement") == 1
    assert "terminated" in run(of(fleet).await_gone, AwaitGone(node=asked.node, deadline_s=60.0)).said


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"evidence": ""}, "PreconditionFailed", "evidence is not saved"),
        ({"name": "node-1"}, "NotOurs", "quarantined by nobody"),
    ],
)
def test_a_node_without_evidence_or_our_quarantine_is_not_drained(
    fleet: FakeFleet, asked: dict[str, str], error: str, words: str
) -> None:
    with pytest.raises(ApplicationError, match=words) as raised:
        run(of(fleet).drain_for_replacement, drain(fleet, **asked))
    assert (raised.value.type, fleet.count("drain_for_replacement")) == (error, 0)


def test_a_node_of_another_incident_is_not_drained(fleet: FakeFleet) -> None:
    fleet.ec2.set_tags(fleet.node("node-2").instance_id, {names.TAG_QUARANTINE: "incident/lab/i-other"})
    with pytest.raises(ApplicationError, match="incident/lab/i-other"):
        run(of(fleet).drain_for_replacement, drain(fleet))
    assert fleet.count("drain_for_replacement") == 0


def test_an_instance_that_stays_is_said_with_where_to_look(fleet: FakeFleet) -> None:
    with pytest.raises(ApplicationError, match=r"still running 10 minutes after.*clustermgtd"):
        run(of(fleet).await_gone, AwaitGone(node=fleet.node("node-2"), deadline_s=600.0))


def test_an_instance_that_ec2_has_forgotten_is_gone(fleet: FakeFleet) -> None:
    forgotten = fleet.node("node-2").model_copy(update={"instance_id": "i-00000000000000099"})
    assert "terminated" in run(of(fleet).await_gone, AwaitGone(node=forgotten, deadline_s=60.0)).said


def test_where_nobody_replaces_nothing_is_drained(fleet: FakeFleet) -> None:
    nobody = GivingUpActivities(NoReplacer(), fleet.ec2, EffectSettings(), fleet.clock)
    with pytest.raises(ApplicationError, match=r"slurm\.flavour"):
        run(nobody.drain_for_replacement, drain(fleet))
    assert fleet.ec2.machine_state(fleet.node("node-2").instance_id) == "running"
