"""A quarantine has two marks and one owner; nobody else's is ever touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.errors import NodeUnreachable, ProviderBusy
from activities.quarantine import (
    QUARANTINE_DIR,
    HeadFileMarks,
    LiftQuarantine,
    QuarantineActivities,
    QuarantineMarks,
    QuarantineNode,
)

FILE = f"{QUARANTINE_DIR}/node-1"
OURS = "incident/lab/i-00000000000000001"


@pytest.fixture
def activities(fleet: FakeFleet) -> QuarantineActivities:
    return QuarantineActivities(QuarantineMarks(fleet.ec2, HeadFileMarks("head", fleet.access_to, fleet.inventory)))


def take(fleet: FakeFleet, incident: str = OURS) -> QuarantineNode:
    return QuarantineNode(node=fleet.node("node-1"), incident=incident, reason="XID 79")


def lift(fleet: FakeFleet, incident: str = OURS) -> LiftQuarantine:
    return LiftQuarantine(node=fleet.node("node-1"), incident=incident)


def tag(fleet: FakeFleet) -> str:
    return fleet.ec2.tags[fleet.node("node-1").instance_id].get(names.TAG_QUARANTINE, "")


def failure(call: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as raised:
        call()
    return raised.value


def test_a_quarantine_is_a_tag_and_a_file_with_owner_and_reason(
    fleet: FakeFleet, activities: QuarantineActivities, surroundings: ActivityEnvironment
) -> None:
    state = surroundings.run(activities.quarantine_node, take(fleet))
    assert (state.owner, state.reason, tag(fleet)) == (OURS, "XID 79", OURS)
    assert state.since is not None
    assert json.loads(fleet.machine("head").files[FILE])["owner"] == OURS
    assert surroundings.run(activities.quarantine_node, take(fleet)) == state


def test_quarantine_again_changes_nothing(
    fleet: FakeFleet, activities: QuarantineActivities, surroundings: ActivityEnvironment
) -> None:
    first = surroundings.run(activities.quarantine_node, take(fleet))
    assert surroundings.run(activities.quarantine_node, take(fleet)) == first
    assert fleet.count("set_tags") == 1


def test_lifting_removes_both_marks_and_lifting_again_is_no_error(
    fleet: FakeFleet, activities: QuarantineActivities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.quarantine_node, take(fleet))
    for _ in range(2):
        assert surroundings.run(activities.lift_quarantine, lift(fleet)).owner == ""
    assert tag(fleet) == ""
    assert FILE not in fleet.machine("head").files
    assert fleet.count("remove_tags") == 1


def test_the_file_is_written_before_the_tag_so_that_the_tag_proves_both(
    fleet: FakeFleet, activities: QuarantineActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.fail_next("run.quarantine_write", NodeUnreachable("head: no answer"))
    assert failure(lambda: surroundings.run(activities.quarantine_node, take(fleet))).type == "NodeUnreachable"
    assert tag(fleet) == ""


def test_the_tag_goes_last_so_that_a_half_lifted_quarantine_still_shows(
    fleet: FakeFleet, activities: QuarantineActivities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.quarantine_node, take(fleet))
    fleet.fail_next("remove_tags", ProviderBusy("no answer"))
    failure(lambda: surroundings.run(activities.lift_quarantine, lift(fleet)))
    assert tag(fleet) == OURS
    surroundings.run(activities.lift_quarantine, lift(fleet))
    assert tag(fleet) == ""


def test_a_quarantine_of_somebody_else_is_neither_taken_over_nor_lifted(
    fleet: FakeFleet, activities: QuarantineActivities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.quarantine_node, take(fleet, "incident/lab/other"))
    for call in (
        lambda: surroundings.run(activities.quarantine_node, take(fleet)),
        lambda: surroundings.run(activities.lift_quarantine, lift(fleet)),
    ):
        error = failure(call)
        assert (error.type, error.non_retryable) == ("NotOurs", True)
        assert "incident/lab/other" in error.message
    assert tag(fleet) == "incident/lab/other"


def test_a_file_that_a_person_left_is_a_quarantine_of_somebody_else(
    fleet: FakeFleet, activities: QuarantineActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.machine("head").files[FILE] = "do not touch, Ana\n"
    error = failure(lambda: surroundings.run(activities.quarantine_node, take(fleet)))
    assert error.type == "NotOurs"
    assert "Ana" in error.message
    assert fleet.machine("head").files[FILE] == "do not touch, Ana\n"


def test_without_a_head_node_the_tag_alone_is_the_quarantine(fleet: FakeFleet, surroundings: ActivityEnvironment) -> None:
    activities = QuarantineActivities(QuarantineMarks(fleet.ec2, None))
    assert surroundings.run(activities.quarantine_node, take(fleet)).owner == OURS
    assert tag(fleet) == OURS
    assert fleet.count("run.quarantine_write") == 0
