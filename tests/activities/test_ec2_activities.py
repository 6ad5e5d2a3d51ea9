"""Reboot, power cycle, waiting for a boot and tags, over FakeFleet: each effect once, each proved by looking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import Cure, FakeFault
from activities.ec2 import AwaitBoot, DisruptNode, Ec2Activities, InspectInstance, InstanceStatus, TagNode
from activities.errors import ProviderBusy, Throttled
from activities.settings import EffectSettings
from tests.activities.conftest import attempt


@pytest.fixture
def activities(fleet: FakeFleet) -> Ec2Activities:
    return Ec2Activities(fleet.ec2, fleet.access_to, fleet.memory, EffectSettings(), fleet.clock)


def disrupt(fleet: FakeFleet, alias: str = "node-1", **changes: Any) -> DisruptNode:
    request = DisruptNode(node=fleet.node(alias), boot_id=fleet.machine(alias).boot_id, token="incident/x/1")
    return request.model_copy(update=changes)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread is about to do."""
    while not condition():
        time.sleep(0.001)


def failure(call: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as raised:
        call()
    return raised.value


def test_a_node_is_rebooted_and_comes_up_with_another_boot(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    assert surroundings.run(activities.reboot_node, request).made_now
    seen = surroundings.run(activities.await_boot, AwaitBoot(node=request.node, old_boot_id=request.boot_id, deadline_s=1800.0))
    assert seen.boot_id == fleet.machine("node-1").boot_id != request.boot_id
    assert fleet.count("reboot", "node-1") == 1


@pytest.mark.parametrize("fault", [FakeFault(unreachable=True), FakeFault(cure=Cure.HANG)], ids=["silent", "hung"])
def test_ec2_tells_a_node_that_answers_from_one_that_does_not(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment, fault: FakeFault
) -> None:
    ask = InspectInstance(node=fleet.node("node-1"))
    well = InstanceStatus(state="running", system="ok", instance="ok")
    assert surroundings.run(activities.instance_status, ask) == well
    fleet.inject("node-1", fault)
    assert surroundings.run(activities.instance_status, ask).instance == "impaired"
    fleet.ec2.statuses[ask.node.instance_id] = well
    assert surroundings.run(activities.instance_status, ask) == well


def test_a_stopped_instance_has_no_status_checks(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    node = fleet.node("node-1")
    fleet.ec2.stop(node.instance_id)
    seen = surroundings.run(activities.instance_status, InspectInstance(node=node))
    assert (seen.system, seen.instance) == ("not-applicable", "not-applicable")


def test_a_boot_that_has_ended_is_not_ended_again(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    fleet.machine("node-1").reboot()
    fleet.machine("node-1").looks_until_up = 0
    assert not surroundings.run(activities.reboot_node, request).made_now
    assert fleet.count("reboot") == 0


def test_a_node_that_does_not_answer_may_be_rebooted(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    fleet.inject("node-1", FakeFault(unreachable=True))
    assert surroundings.run(activities.reboot_node, request).made_now
    assert fleet.count("reboot", "node-1") == 1


def test_a_retry_while_the_node_is_still_down_does_not_reboot_it_again(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    fleet.machine("node-1").looks_per_boot = 10_000
    assert surroundings.run(activities.reboot_node, request).made_now
    assert not attempt(2).run(activities.reboot_node, request).made_now
    assert fleet.count("reboot", "node-1") == 1


def test_a_retry_after_a_throttled_call_makes_it(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    fleet.fail_next("reboot", Throttled("RequestLimitExceeded"))
    error = failure(lambda: surroundings.run(activities.reboot_node, disrupt(fleet)))
    assert (error.type, error.non_retryable) == ("Throttled", False)
    assert attempt(2).run(activities.reboot_node, disrupt(fleet)).made_now
    assert fleet.count("reboot", "node-1") == 1


def test_a_retry_after_a_call_without_answer_acts_only_when_the_node_goes_on_in_its_old_boot(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    fleet.fail_next("reboot", ProviderBusy("no answer"))
    failure(lambda: surroundings.run(activities.reboot_node, disrupt(fleet)))
    assert attempt(2).run(activities.reboot_node, disrupt(fleet)).made_now
    assert fleet.count("reboot", "node-1") == 1


def test_another_step_with_the_same_boot_is_another_effect(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.reboot_node, disrupt(fleet))
    fleet.machine("node-1").looks_until_up = 0
    second = disrupt(fleet, token="incident/x/2")
    assert surroundings.run(activities.reboot_node, second).made_now
    assert fleet.count("reboot", "node-1") == 2


def test_a_node_that_answers_again_is_not_rebooted_for_having_been_silent(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    error = failure(lambda: surroundings.run(activities.reboot_node, disrupt(fleet, boot_id="")))
    assert (error.type, error.non_retryable) == ("PreconditionFailed", True)
    assert fleet.count("reboot") == 0


def test_a_power_cycle_stops_and_starts_once(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    fleet.inject("node-1", FakeFault(xid=79, cure=Cure.POWER_CYCLE))
    assert surroundings.run(activities.power_cycle_node, request).made_now
    assert not attempt(2).run(activities.power_cycle_node, request).made_now
    assert (fleet.count("stop", "node-1"), fleet.count("start_instance", "node-1")) == (1, 1)
    assert fleet.machine("node-1").faults == []


def test_a_retry_takes_a_power_cycle_up_where_it_was_left(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    fleet.fail_next("start_instance", Throttled("RequestLimitExceeded"))
    failure(lambda: surroundings.run(activities.power_cycle_node, request))
    assert fleet.machine("node-1").state == "stopped"
    assert attempt(2).run(activities.power_cycle_node, request).made_now
    assert (fleet.count("stop", "node-1"), fleet.count("start_instance", "node-1")) == (1, 1)


def test_a_stop_without_answer_that_ec2_does_not_show_is_made_on_a_silent_node_too(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    fleet.inject("node-1", FakeFault(unreachable=True, cure=Cure.POWER_CYCLE))
    fleet.fail_next("stop", ProviderBusy("no answer"))
    failure(lambda: surroundings.run(activities.power_cycle_node, request))
    assert attempt(2).run(activities.power_cycle_node, request).made_now
    assert (fleet.count("stop", "node-1"), fleet.count("start_instance", "node-1")) == (1, 1)


def test_a_retry_while_the_node_boots_after_its_power_cycle_does_not_stop_it_again(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    fleet.machine("node-1").looks_per_boot = 10_000
    surroundings.run(activities.power_cycle_node, request)
    assert not attempt(2).run(activities.power_cycle_node, request).made_now
    assert (fleet.count("stop", "node-1"), fleet.count("start_instance", "node-1")) == (1, 1)


def test_a_boot_that_never_comes_is_a_deadline_passed(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    request = disrupt(fleet)
    fleet.inject("node-1", FakeFault(xid=79, cure=Cure.NO_BOOT))
    surroundings.run(activities.reboot_node, request)
    wait = AwaitBoot(node=request.node, old_boot_id=request.boot_id, deadline_s=1800.0)
    error = failure(lambda: surroundings.run(activities.await_boot, wait))
    assert (error.type, error.non_retryable) == ("DeadlinePassed", True)
    assert "does not answer" in error.message


def test_a_node_that_goes_on_in_its_old_boot_is_a_deadline_passed_and_the_message_says_so(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    boot_id = fleet.machine("node-1").boot_id
    wait = AwaitBoot(node=fleet.node("node-1"), old_boot_id=boot_id, deadline_s=60.0)
    assert f"still runs boot {boot_id}" in failure(lambda: surroundings.run(activities.await_boot, wait)).message


def test_a_wait_that_another_worker_takes_up_keeps_its_deadline(fleet: FakeFleet, activities: Ec2Activities) -> None:
    beats: list[Any] = []
    environment = attempt(2)
    environment.info = environment.info.__class__(**{**vars(environment.info), "heartbeat_details": [1799.0]})
    environment.on_heartbeat = lambda *details: beats.append(details)
    wait = AwaitBoot(node=fleet.node("node-1"), old_boot_id=fleet.machine("node-1").boot_id, deadline_s=1800.0)
    failure(lambda: environment.run(activities.await_boot, wait))
    assert beats == [(1799.0,)]


def test_tags_of_ours_are_set_and_removed_and_nothing_is_written_twice(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    instance_id = fleet.node("spare-1").instance_id
    change = TagNode(instance_id=instance_id, set={names.TAG_LEASE: "replace/x"}, remove=[names.TAG_FATE])
    for _ in range(2):
        surroundings.run(activities.tag_node, change)
    assert fleet.ec2.tags[instance_id][names.TAG_LEASE] == "replace/x"
    assert (fleet.count("set_tags"), fleet.count("remove_tags")) == (1, 0)


def test_a_lease_that_somebody_else_has_is_left_alone(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    instance_id = fleet.node("spare-1").instance_id
    fleet.ec2.tags[instance_id][names.TAG_LEASE] = "replace/other"
    change = TagNode(instance_id=instance_id, set={names.TAG_LEASE: "replace/x"}, expect={names.TAG_LEASE: ""})
    assert failure(lambda: surroundings.run(activities.tag_node, change)).type == "NotOurs"
    assert fleet.ec2.tags[instance_id][names.TAG_LEASE] == "replace/other"


def test_a_retry_finds_its_own_lease_and_is_content(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    change = TagNode(
        instance_id=fleet.node("spare-1").instance_id, set={names.TAG_LEASE: "replace/x"}, expect={names.TAG_LEASE: ""}
    )
    surroundings.run(activities.tag_node, change)
    attempt(2).run(activities.tag_node, change)
    assert fleet.count("set_tags") == 1


def test_tags_of_others_are_never_written(fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment) -> None:
    change = TagNode(instance_id=fleet.node("node-1").instance_id, set={"Name": "mine now"})
    assert failure(lambda: surroundings.run(activities.tag_node, change)).type == "BadInput"


async def test_a_call_that_is_held_at_the_endpoint_while_its_caller_dies_is_not_made_a_second_time(
    fleet: FakeFleet, activities: Ec2Activities, surroundings: ActivityEnvironment
) -> None:
    hold = fleet.hold("reboot", "node-1")
    request = disrupt(fleet)
    first = asyncio.create_task(asyncio.to_thread(surroundings.run, activities.reboot_node, request))
    await hold.reached()
    second = asyncio.create_task(asyncio.to_thread(attempt(2).run, activities.reboot_node, request))
    await asyncio.to_thread(until, lambda: fleet.memory.intent_age_s("incident/x/1/watch") is not None)
    hold.release()
    answers = await asyncio.gather(first, second)
    assert [answer.made_now for answer in answers] == [True, False]
    assert fleet.count("reboot", "node-1") == 1
