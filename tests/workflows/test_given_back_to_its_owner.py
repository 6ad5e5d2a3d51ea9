"""A retired node of an Auto Scaling group goes back to its group once; what the group launches becomes the spare in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import ProviderBusy, Throttled
from activities.notify import Page
from tests.workflows.healing import Healing, healing
from workflows.decisions.settings import Mode, PolicySettings
from workflows.messages import IncidentReport, Provisioned, StartProvision

RENEWS = PolicySettings(mode=Mode.ACT, renew_retired=True)
GROUP, NODES = "gpus", ("node-1", "node-2", "node-3", "node-4")
NEVER = FakeFault(xid=79, cure=Cure.NEVER)


@pytest.fixture
async def grouped(tmp_path: Path) -> AsyncIterator[Healing]:
    """Four workers of one Auto Scaling group with a job, and a spare of nobody's."""
    async with healing(tmp_path, policy=RENEWS) as one:
        one.fleet.join_group(GROUP, *NODES)
        yield one


def sent_back(cluster: Healing, instance_id: str) -> WorkflowHandle[object, Provisioned]:
    handle: WorkflowHandle[object, Provisioned] = cluster.client.get_workflow_handle(
        names.provision_id("lab", instance_id), result_type=Provisioned
    )
    return handle


async def retire(cluster: Healing, alias: str = "node-2") -> tuple[str, IncidentReport]:
    """Have an incident find that nothing mends a node; returns the instance and the report."""
    bad = cluster.fleet.node(alias).instance_id
    cluster.fleet.inject(alias, NEVER)
    report = await (await cluster.report(alias, xid=79)).result()
    return bad, report


async def test_the_group_ends_the_node_once_and_its_successor_becomes_a_tested_spare(grouped: Healing) -> None:
    fleet = grouped.fleet
    bad, report = await retire(grouped)
    assert (report.outcome, report.fate) == ("resolved", names.FATE_RETIRED)
    handle = sent_back(grouped, bad)
    done = await handle.result()
    new = fleet.node("new-7")
    assert (done.outcome, done.spare) == ("in the pool", new.instance_id)
    calls = ("terminate_in_group", "enter_standby", "exit_standby", "launch", "terminate")
    assert [fleet.count(call) for call in calls] == [1, 1, 1, 0, 0]
    size = fleet.auto_scaling.size(GROUP)
    assert (size.desired, len(size.members), new.instance_id in size.members) == (4, 4, True)
    assert grouped.tags("new-7")[names.TAG_ROLE] == names.ROLE_SPARE
    assert fleet.memory.recall(new.instance_id).succeeds == bad
    assert fleet.job.status("train").nodes == ["node-1", "spare-1", "node-3", "node-4"]
    assert (await grouped.overview()).state.grants == []


async def test_it_is_no_spare_before_it_has_passed(grouped: Healing) -> None:
    fleet = grouped.fleet
    testing = fleet.hold("start", "new-7")
    bad, _ = await retire(grouped)
    await testing.reached()
    assert grouped.tags("new-7")[names.TAG_ROLE] == names.ROLE_NEW
    testing.release()
    assert (await sent_back(grouped, bad).result()).outcome == "in the pool"


async def test_a_lost_answer_gives_it_back_once(grouped: Healing) -> None:
    fleet = grouped.fleet
    fleet.points.lose_answer("terminate_in_group", ProviderBusy("connection reset by peer"))
    bad, _ = await retire(grouped)
    assert (await sent_back(grouped, bad).result()).outcome == "in the pool"
    assert (fleet.count("terminate_in_group"), len(fleet.auto_scaling.size(GROUP).members)) == (1, 4)


async def test_throttled_and_lagging_looks_change_nothing(grouped: Healing) -> None:
    fleet = grouped.fleet
    fleet.fail_next("terminate_in_group", Throttled("RequestLimitExceeded"), times=2)
    bad, _ = await retire(grouped)
    assert (await sent_back(grouped, bad).result()).outcome == "in the pool"
    assert fleet.count("terminate_in_group") == 1


async def test_a_group_that_replaces_the_node_at_the_same_time_ends_with_one_node_and_no_lost_spare(grouped: Healing) -> None:
    """The group finds the member ill just before it is given back: two hands, one new node."""
    fleet = grouped.fleet
    bad = fleet.node("node-2").instance_id
    giving = fleet.hold("terminate_in_group", "node-2")
    _, report = await retire(grouped)
    await giving.reached()
    fleet.auto_scaling.replace(bad)
    giving.release()
    done = await sent_back(grouped, bad).result()
    assert (done.outcome, done.spare) == ("in the pool", fleet.node("new-7").instance_id)
    assert [node.name for node in fleet.inventory.list("lab")] == ["node-1", "node-3", "node-4", "spare-1", "head", "new-7"]
    assert report.outcome == "resolved"
    assert fleet.job.status("train").nodes == ["node-1", "spare-1", "node-3", "node-4"]
    assert grouped.tags("spare-1").get(names.TAG_LEASE, "") == ""


async def test_a_group_that_has_replaced_the_node_before_is_left_to_it_and_its_new_node_is_taken_on(grouped: Healing) -> None:
    fleet = grouped.fleet
    bad = fleet.node("node-2").instance_id
    resuming = fleet.hold("job.resume")
    fleet.inject("node-2", NEVER)
    incident = await grouped.report("node-2", xid=79)
    await resuming.reached()
    fleet.auto_scaling.replace(bad)
    resuming.release()
    report = await incident.result()
    done = await sent_back(grouped, bad).result()
    assert (report.outcome, done.outcome, done.spare) == ("resolved", "in the pool", fleet.node("new-7").instance_id)
    assert fleet.count("terminate_in_group") == 0
    assert len(fleet.auto_scaling.size(GROUP).members) == 4


async def test_a_group_that_launches_nothing_now_keeps_its_node_and_a_person_is_told(grouped: Healing) -> None:
    fleet = grouped.fleet
    fleet.auto_scaling.suspend(GROUP, "Launch")
    bad, _ = await retire(grouped)
    done = await sent_back(grouped, bad).result()
    assert done.outcome == "with a person"
    assert "resume-processes --auto-scaling-group-name gpus --scaling-processes Launch" in done.because[0]
    assert fleet.machines["node-2"].state == "running"
    assert fleet.count("terminate_in_group") == 0


async def test_a_group_without_capacity_is_waited_for_and_people_hear_where_it_says_why(grouped: Healing) -> None:
    fleet = grouped.fleet
    fleet.auto_scaling.dry = True
    sent = fleet.send

    def send(page: Page) -> None:
        sent(page)
        if "waits for its owner" in page.title:  # and then there is some
            fleet.auto_scaling.dry = False
            fleet.auto_scaling.fill(GROUP)

    fleet.send = send  # type: ignore[method-assign]
    bad, _ = await retire(grouped)
    done = await sent_back(grouped, bad).result()
    assert (done.outcome, fleet.count("terminate_in_group")) == ("in the pool", 1)
    told = [why for each in fleet.pages if "waits for its owner" in each.title for why in each.why]
    assert any("describe-scaling-activities --auto-scaling-group-name gpus" in why for why in told)


async def test_a_cancel_before_it_is_given_back_ends_no_instance_and_is_told(grouped: Healing) -> None:
    fleet = grouped.fleet
    leaving = fleet.hold("exit_standby", "node-2")
    bad, _ = await retire(grouped)
    await leaving.reached()
    handle = sent_back(grouped, bad)
    await handle.cancel()
    leaving.release()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert (fleet.count("terminate_in_group"), fleet.machines["node-2"].state) == (0, "running")
    assert [page for page in fleet.pages if "new spare for lab: cancelled" in page.title]


async def test_a_successor_that_somebody_has_leased_meanwhile_is_left_to_them(grouped: Healing) -> None:
    """It was launched as a spare of the pool, so a replacement may take it before its first test; that tests it too."""
    fleet = grouped.fleet
    running = fleet.hold("describe", "new-7")
    bad, _ = await retire(grouped)
    await running.reached()
    new, lease = fleet.node("new-7").instance_id, "replace/lab/i-9"
    fleet.ec2.tags[new][names.TAG_LEASE] = lease
    running.release()
    done = await sent_back(grouped, bad).result()
    assert (done.outcome, done.spare) == ("in use", new)
    assert grouped.tags("new-7")[names.TAG_LEASE] == lease


async def test_a_standby_of_somebody_else_is_respected(grouped: Healing) -> None:
    fleet = grouped.fleet
    fleet.auto_scaling.enter_standby(GROUP, fleet.node("node-2").instance_id)
    bad, _ = await retire(grouped)
    done = await sent_back(grouped, bad).result()
    assert done.outcome == "with a person"
    assert "put there by somebody else" in done.because[0]
    assert (fleet.machines["node-2"].state, fleet.count("exit_standby")) == ("running", 0)


async def test_a_successor_that_fails_its_test_joins_no_pool(grouped: Healing) -> None:
    fleet = grouped.fleet
    booting = fleet.hold("boot_id", "new-7")
    bad, _ = await retire(grouped)
    await booting.reached()
    fleet.inject("new-7", FakeFault(slow=0.3, slow_kind="intra", cure=Cure.NEVER))
    booting.release()
    done = await sent_back(grouped, bad).result()
    assert done.outcome == "did not pass"
    assert grouped.tags("new-7")[names.TAG_FATE] == names.FATE_RETIRED


async def test_two_nodes_of_a_group_given_back_at_once_have_a_successor_each(grouped: Healing) -> None:
    fleet = grouped.fleet
    bad = [fleet.node(alias).instance_id for alias in ("node-2", "node-3")]
    starting = []
    for instance_id in bad:
        incident = names.incident_id("lab", instance_id)
        fleet.ec2.tags[instance_id] |= {names.TAG_QUARANTINE: incident, names.TAG_FATE: names.FATE_RETIRED}
        start = StartProvision(cluster="lab", in_place_of=instance_id, incident=incident)
        starting.append(
            grouped.client.start_workflow(
                names.WORKFLOW_PROVISION_SPARE,
                start,
                id=names.provision_id("lab", instance_id),
                task_queue=names.QUEUE_WORKFLOWS,
            )
        )
    await asyncio.gather(*starting)
    done = await asyncio.gather(*(sent_back(grouped, each).result() for each in bad))
    assert [each.outcome for each in done] == ["in the pool", "in the pool"]
    assert len({each.spare for each in done}) == 2
    assert {fleet.memory.recall(each.spare).succeeds for each in done} == set(bad)
    assert (fleet.count("terminate_in_group"), len(fleet.auto_scaling.size(GROUP).members)) == (2, 4)


async def test_nothing_is_given_back_where_settings_do_not_want_it(tmp_path: Path) -> None:
    async with healing(tmp_path) as one:
        one.fleet.join_group(GROUP, *NODES)
        _, report = await retire(one)
        assert report.fate == names.FATE_RETIRED
        assert (one.fleet.count("terminate_in_group"), one.fleet.machines["node-2"].state) == (0, "running")
        told = [text for page in one.fleet.pages for text in (page.title, *page.why)]
        assert any("terminate-instance-in-auto-scaling-group" in text for text in told)
