"""How a burn-in failed decides what a person reads: four kinds of failure, four pages, and no checkpoint trusted blindly."""

from __future__ import annotations

import pytest

from activities import names
from activities.clients.fake_access import FakeRun
from activities.clients.fake_machine import Cure, FakeFault
from activities.clients.fake_text import all_reduce_text, mpirun_unreachable_text
from activities.notify import Page
from checks.judges.judgement import KILLED_STATUSES
from tests.workflows.healing import Healing
from workflows.decisions.settings import PolicySettings

SOCKETS = "node-2:31000:31200 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm\n"


async def page_of_the_job(cluster: Healing, whole_group: FakeRun, monkeypatch: pytest.MonkeyPatch) -> Page:
    """What people are told when every group run of a recovery prints this."""
    fleet = cluster.fleet
    monkeypatch.setattr(fleet, "_group_run", lambda members: whole_group)
    fleet.inject("node-2", FakeFault(xid=94))
    await cluster.report("node-2", xid=94)
    job = cluster.client.get_workflow_handle(names.job_id(fleet.cluster, "train"))
    await cluster.until(lambda: _burned_in(cluster))
    await cluster.told(job, "burn-in")
    await cluster.env.fast_forward(job, PolicySettings().incident_speaks_s + 1)
    await cluster.paged("does not say which node")
    assert fleet.job.resumes == []
    return next(page for page in fleet.pages if any("does not say which node" in why for why in page.why))


async def _burned_in(cluster: Healing) -> bool:
    return len(cluster.fleet.group_run_nodes) >= 2


GROUP = ["node-1", "node-2", "node-3", "node-4"]
SLOW_BY_SOCKETS = FakeRun(SOCKETS + all_reduce_text(GROUP, 8, 11.2), 0)
DID_NOT_START = FakeRun(mpirun_unreachable_text("node-3"), 1)


@pytest.mark.parametrize(
    ("run", "cause", "words"),
    [
        (SLOW_BY_SOCKETS, "wrong_transport", "NCCL does not use EFA"),
        (DID_NOT_START, "could_not_run", "says nothing about the hardware"),
    ],
    ids=["wrong transport", "could not run"],
)
async def test_a_burn_in_that_says_nothing_of_a_node_ends_on_a_page_with_its_own_next_step(
    no_spares: Healing, run: FakeRun, cause: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await page_of_the_job(no_spares, run, monkeypatch)
    assert cause in page.why[0]
    assert words in page.why[0]
    assert no_spares.fleet.count("reboot") == 0


async def test_a_node_with_which_groups_hang_is_replaced_and_its_incident_says_that_they_hang(
    cluster: Healing, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, healthy = cluster.fleet, cluster.fleet._group_run
    stuck = FakeRun("\n".join(all_reduce_text(GROUP, 8, 470.0).splitlines()[:-4]), min(KILLED_STATUSES & set(range(128, 200))))
    monkeypatch.setattr(fleet, "_group_run", lambda members: stuck if "node-4" in members else healthy(members))
    fleet.inject("node-2", FakeFault(xid=94))
    await (await cluster.report("node-2", xid=94)).result()
    report = await cluster.incident_of("node-4").result()
    assert any("failed the burn-in: hang beside " in line for line in report.story)
    assert len(fleet.job.resumes) == 1


async def test_a_job_that_trained_on_a_node_with_wrong_results_is_not_resumed_without_a_person(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-4", FakeFault(wrong=3, cure=Cure.NEVER))
    fleet.inject("node-2", FakeFault(xid=94))
    restarted = await (await cluster.report("node-2", xid=94)).result()
    report = await cluster.incident_of("node-4").result()
    assert any("failed the burn-in: data_corruption beside " in line for line in report.story)
    assert fleet.group_run_nodes[-1] == ["node-1", "node-2", "node-3", "spare-1"], "the node set is mended all the same"
    assert fleet.job.resumes == []
    page = next(page for page in fleet.pages if page.title == "train stays held")
    assert "wrong results of a node that the job trained on (node-4: data_corruption" in page.why[0]
    assert f"step {fleet.job.status('train').checkpoint_step} is the last checkpoint" in page.why[0]
    assert restarted.outcome == "escalated"


async def test_a_spare_with_wrong_results_spoils_no_checkpoint(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-3", FakeFault(xid=79, cure=Cure.REBOOT))
    running = fleet.hold("group.start")
    handle = await cluster.report("node-3", xid=79)
    await running.reached()
    fleet.inject("spare-1", FakeFault(wrong=3, cure=Cure.NEVER))
    running.release()
    await handle.result()
    assert any("spare-1" in group for group in fleet.group_run_nodes)
    assert "spare-1" not in fleet.job.nodes
    assert len(fleet.job.resumes) == 1
