"""A node that somebody else repairs too: they stand back before it restarts, and look after it again when it serves."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError

from activities import names
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import AccessRefused, ProviderBusy
from activities.incidents import StartIncident
from activities.jobs.protocol import RestartedBy
from activities.kubernetes import NODE, labels_of
from activities.node import Report
from activities.nvsentinel import OPT_OUT, REBOOT_NODE
from tests.workflows.healing import Healing, healing
from tests.workflows.test_trials import APPROVE_REBOOT
from workflows.messages import Word

GROUP = "gpus"


def in_standby(cluster: Healing, alias: str) -> bool:
    return cluster.fleet.auto_scaling.members[cluster.fleet.node(alias).instance_id].state == "Standby"


async def test_a_member_of_a_group_is_in_standby_while_it_reboots_and_in_service_afterwards(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.join_group(GROUP, "node-2", "node-3")
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.POWER_CYCLE))
    rebooting = fleet.hold("reboot")
    handle = await no_spares.report("node-2", xid=79)
    await rebooting.reached()
    assert in_standby(no_spares, "node-2")
    assert names.owner_in(no_spares.tags("node-2")[names.TAG_STOOD_BACK]) == handle.id
    rebooting.release()
    report = await handle.result()
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert (fleet.count("reboot"), fleet.count("stop")) == (1, 1)
    assert (fleet.count("enter_standby"), fleet.count("exit_standby")) == (1, 1)
    assert names.TAG_STOOD_BACK not in no_spares.tags("node-2")


async def test_a_group_that_may_not_shrink_leaves_no_rung_that_restarts_the_node(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.join_group(GROUP, "node-2", "node-3", smallest=2)
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (fleet.count("reboot"), fleet.count("stop"), fleet.count("enter_standby")) == (0, 0, 0)
    assert (report.outcome, report.fate) == ("escalated", "retired")
    assert any("--min-size 1" in line for line in report.story)
    page = next(page for page in fleet.pages if "another healer does not stand back" in page.title)
    assert "--min-size 1" in page.why[0]


async def test_once_the_group_may_shrink_a_report_by_hand_heals_the_node(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.join_group(GROUP, "node-2", "node-3", smallest=2)
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    await (await no_spares.report("node-2", xid=79)).result()
    fleet.join_group(GROUP, "node-2", "node-3", smallest=1)
    start = StartIncident(node="node-2", cluster=fleet.cluster, report=Report(source="hand", xid=79))
    by_hand = await no_spares.gateway.report_fault(start, fleet.node("node-2").instance_id)
    report = await no_spares.incident(by_hand.workflow_id).result()
    assert report.fate == "back in service"
    assert (fleet.count("reboot"), fleet.count("exit_standby")) == (1, 1)


async def test_a_node_that_is_retired_stays_in_standby_so_that_it_does_not_serve_again(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.join_group(GROUP, "node-2", "node-3")
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.NEVER))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert report.fate == "retired"
    assert in_standby(no_spares, "node-2")
    assert any(f"Auto Scaling group {GROUP}: until node-2 serves again" in line for line in report.story)
    assert fleet.count("exit_standby") == 0
    assert any(f"{GROUP} stands back" in page.why[0] for page in fleet.pages if page.title.endswith("retired"))


async def test_a_cancel_before_the_restart_leaves_the_group_as_it_was_and_one_after_it_leaves_a_known_standby(
    no_spares: Healing,
) -> None:
    fleet = no_spares.fleet
    fleet.join_group(GROUP, "node-2", "node-3")
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    assert fleet.count("enter_standby") == 0
    booting = fleet.hold("boot_id", "node-2")
    await handle.execute_update("approve", Word(by="ann"))
    await booting.reached()
    await handle.cancel()
    booting.release()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert in_standby(no_spares, "node-2")
    assert names.owner_in(no_spares.tags("node-2")[names.TAG_STOOD_BACK]) == no_spares.tags("node-2")[names.TAG_QUARANTINE]


async def test_an_incident_that_was_terminated_is_taken_up_with_its_standby(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.join_group(GROUP, "node-2", "node-3")
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    testing = fleet.hold("start", "node-2")
    handle = await no_spares.report("node-2", xid=79)
    await testing.reached()
    await handle.terminate("by mistake")
    testing.release()
    report = await (await no_spares.report("node-2", xid=79, key="again")).result()
    assert report.fate == "back in service"
    assert (fleet.count("enter_standby"), fleet.count("exit_standby")) == (1, 1)
    assert names.TAG_STOOD_BACK not in no_spares.tags("node-2")


async def test_a_release_that_is_throttled_is_made_once_in_the_end(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.join_group(GROUP, "node-2", "node-3")
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    fleet.fail_next("exit_standby", ProviderBusy("Throttling"), times=2)
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, fleet.count("exit_standby"), len(fleet.job.resumes)) == ("resolved", 1, 1)


async def test_a_node_that_goes_to_the_pool_is_in_service_in_its_group(tmp_path: Path) -> None:
    async with healing(tmp_path) as cluster:
        fleet = cluster.fleet
        fleet.join_group(GROUP, "node-1", "node-2", "node-3", "node-4", "spare-1")
        fleet.inject("node-1", FakeFault(xid=79, cure=Cure.REBOOT))
        report = await (await cluster.report("node-1", xid=79)).result()
        assert report.fate == "probation"
        assert not in_standby(cluster, "node-1")
        assert fleet.count("enter_standby") == 1


def in_kubernetes(cluster: Healing, **labels: str) -> FakeKubernetes:
    """Put node-2 into a Kubernetes of its own, where NVSentinel is not installed."""
    cluster.fleet.kubernetes = api = FakeKubernetes()
    api.missing.add(REBOOT_NODE)
    gpus, ready = 8, True
    api.add_node("ip-10-0-0-12", cluster.fleet.node("node-2").instance_id, gpus=gpus, ready=ready, **labels)
    return api


async def test_nvsentinel_is_opted_out_while_a_node_reboots_and_looks_after_it_again_afterwards(no_spares: Healing) -> None:
    api = in_kubernetes(no_spares, **{"nvsentinel.dgxc.nvidia.com/driver.installed": "true"})
    await no_spares.restart_worker()
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    rebooting = fleet.hold("reboot")
    handle = await no_spares.report("node-2", xid=79)
    await rebooting.reached()
    assert labels_of(api.list(NODE)[0])[OPT_OUT.key] == "false"
    rebooting.release()
    report = await handle.result()
    assert (report.outcome, report.fate, fleet.count("reboot")) == ("resolved", "back in service", 1)
    assert OPT_OUT.key not in labels_of(api.list(NODE)[0])
    assert names.TAG_STOOD_BACK not in no_spares.tags("node-2")


async def test_where_it_cannot_be_told_whether_nvsentinel_is_there_the_decision_says_so_and_it_is_opted_out(
    no_spares: Healing,
) -> None:
    api = in_kubernetes(no_spares)
    api.missing.clear()
    api.points.fail_next("list rebootnodes", AccessRefused("may not list rebootnodes"), times=99)
    await no_spares.restart_worker()
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    rebooting = fleet.hold("reboot")
    handle = await no_spares.report("node-2", xid=79)
    await rebooting.reached()
    assert labels_of(api.list(NODE)[0])[OPT_OUT.key] == "false"
    rebooting.release()
    report = await handle.result()
    assert (report.outcome, report.fate, fleet.count("reboot")) == ("resolved", "back in service", 1)
    assert OPT_OUT.key not in labels_of(api.list(NODE)[0])
    doubted = [line for line in report.story if "cannot tell whether NVSentinel is installed: may not list rebootnodes" in line]
    assert doubted


async def test_a_node_of_auto_mode_is_never_disrupted_and_a_person_is_told_why(no_spares: Healing) -> None:
    in_kubernetes(no_spares, **{"eks.amazonaws.com/compute-type": "auto"})
    await no_spares.restart_worker()
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (fleet.count("reboot"), fleet.count("stop"), fleet.count("start_instance")) == (0, 0, 0)
    assert report.outcome == "left to its owner"
    assert any("EKS Auto Mode repairs and replaces its nodes by itself" in line for line in report.story)


async def test_a_controllers_job_on_a_node_of_auto_mode_is_watched_until_it_trains_without_the_node(cluster: Healing) -> None:
    in_kubernetes(cluster, **{"eks.amazonaws.com/compute-type": "auto"})
    await cluster.restart_worker()
    fleet = cluster.fleet
    fleet.job.restarted_by = RestartedBy.CONTROLLER
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.NEVER))
    fleet.job.supplied.append("spare-1")  # the owner's new node
    report = await (await cluster.report("node-2", xid=79)).result()
    assert report.outcome == "left to its owner"
    assert (fleet.job.controller_restarts, fleet.job.resumes) == (1, [])
    assert (fleet.count("reboot"), fleet.count("set_tags")) == (0, 0)
