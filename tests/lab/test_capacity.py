"""Reservations in the lab do what EC2 documents, and the product's clients read them; a stop that finds no capacity waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from activities import names
from activities.clients.capacity_boto3 import CapacityBoto3
from activities.clients.ec2_boto3 import Ec2Boto3
from activities.errors import NoCapacity, PreconditionFailed
from activities.settings import AwsSettings
from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.moto_instances import state_of
from infra.lab.node import NodeState
from infra.lab.options import REGION, LabOptions
from infra.lab.reservations import LabReservation
from tests.lab.conftest import Reach
from tests.lab.test_every_trigger import part, run
from workers.connection import connect
from workers.demo.worker_process import command
from workflows.messages import IncidentReport


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110  (the endpoint has no event to wait for)
        await asyncio.sleep(0.02)


def settings(lab: Lab) -> AwsSettings:
    return AwsSettings(region=REGION, endpoint_url=lab.endpoint.url)


def launch_into(reservation: str) -> dict[str, object]:
    target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
    return {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1, "CapacityReservationSpecification": target}


async def test_a_slot_is_taken_cleaned_and_free_again_and_a_full_reservation_refuses(
    lab: Lab, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    node = lab.nodes["node-2"]
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    held = lab.endpoint.reservations.add(
        LabReservation("cr-1", total=2, kind="capacity-block", ends_at=ends, others=1, cleaning_s=3600.0), node.instance_id
    )
    client, ec2 = CapacityBoto3(settings(lab)), Ec2Boto3(settings(lab))
    seen = await asyncio.to_thread(client.reservation, "cr-1")
    assert (seen.total, seen.available, seen.kind, seen.match, seen.ends_at) == (2, 0, "capacity-block", "targeted", ends)
    view = await asyncio.to_thread(ec2.describe, node.instance_id)
    assert (view.capacity_reservation, view.account) == ("cr-1", seen.account)
    with pytest.raises(ClientError, match="ReservationCapacityExceeded"):
        await reach.ec2("run_instances", **launch_into("cr-1"))
    await asyncio.to_thread(ec2.stop, node.instance_id)
    await until(lambda: state_of(node.instance_id) == "stopped")
    with pytest.raises(NoCapacity, match="cr-1"):
        await asyncio.to_thread(ec2.start, node.instance_id)
    held.cleaned_at.clear()
    await asyncio.to_thread(ec2.start, node.instance_id)
    await node.wait_until(lambda one: one.state is NodeState.UP and one.boots == 2)
    with pytest.raises(PreconditionFailed):
        await asyncio.to_thread(client.reservation, "cr-2")


async def test_a_slot_that_is_given_up_goes_to_whoever_waits_for_it(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-2"]
    reservation = LabReservation("cr-1", total=1, match="open", rivals=1, cleaning_s=60.0)
    held = lab.endpoint.reservations.add(reservation, node.instance_id)
    await reach.ec2("stop_instances", InstanceIds=[node.instance_id])
    await until(lambda: state_of(node.instance_id) == "stopped")
    lab.endpoint.clock.forward(61.0)
    with pytest.raises(ClientError, match="ReservationCapacityExceeded"):
        await reach.ec2("start_instances", InstanceIds=[node.instance_id])
    assert (held.others, held.rivals) == (1, 0)
    held.others = 0
    await reach.ec2("start_instances", InstanceIds=[node.instance_id])


async def test_capacity_that_lacks_for_an_hour_is_granted_after_it_on_the_labs_clock(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-2"]
    lab.endpoint.reservations.add(LabReservation("cr-1", total=1))
    lab.endpoint.shortage.begin(3600.0)
    launch = {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1}
    await reach.ec2("stop_instances", InstanceIds=[node.instance_id])
    await until(lambda: state_of(node.instance_id) == "stopped")
    for call, words in (("run_instances", launch), ("start_instances", {"InstanceIds": [node.instance_id]})):
        with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
            await reach.ec2(call, **words)
    await reach.ec2("run_instances", **launch_into("cr-1"))  # what is reserved is there
    lab.endpoint.clock.forward(3500.0)
    with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
        await reach.ec2("run_instances", **launch)
    lab.endpoint.clock.forward(100.0)
    await reach.ec2("run_instances", **launch)
    await reach.ec2("start_instances", InstanceIds=[node.instance_id])
    assert lab.endpoint.shortage.refused == 3


async def test_describes_show_the_time_before_a_change_for_a_while(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-2"]
    lab.endpoint.stale.stale_s = 3600.0

    async def seen() -> str:
        answer = await reach.ec2("describe_instances", InstanceIds=[node.instance_id])
        return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])

    assert await seen() == "running"
    await reach.ec2("stop_instances", InstanceIds=[node.instance_id])
    await until(lambda: state_of(node.instance_id) == "stopped")
    assert await seen() == "running"
    lab.endpoint.clock.forward(3600.0)
    assert await seen() == "stopped"


IN_TEN_MINUTES = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("total", "ends", "words"),
    [(4, IN_TEN_MINUTES, "Capacity Block cr-1 ends at"), (1, timedelta(days=3), "it is the last usable slot of cr-1")],
    ids=["a Capacity Block that ends in ten minutes", "the last usable reserved slot"],
)
async def test_a_slot_that_would_not_come_back_is_never_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, ends: timedelta, words: str
) -> None:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        node = lab.nodes["node-2"]
        block = LabReservation("cr-1", total=total, kind="capacity-block", ends_at=datetime.now(UTC) + ends)
        lab.endpoint.reservations.add(block, node.instance_id)
        await run(*command("init", "--yes", "--json"))
        client = await connect()
        handle = client.get_workflow_handle(names.incident_id("lab", node.instance_id), result_type=IncidentReport)
        await lab.inject("node-2", Fault(xid=79, cure=Cure.POWER_CYCLE.value))
        async with part(tmp_path / "worker.log", "worker"):
            await run(*command("report", "node-2", "--xid", "79", "--json"))
            report = await handle.result()
        assert report.fate == "retired"
        assert any("POWER_CYCLE" in line and words in line for line in report.story), report.story
        counts = {name: lab.endpoint.count(name, node.instance_id) for name in ("RebootInstances", "StopInstances")}
        assert (counts, node.state) == ({"RebootInstances": 1, "StopInstances": 0}, NodeState.UP)


async def test_a_stop_inside_an_open_reservation_waits_for_a_persons_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        node = lab.nodes["node-2"]
        lab.endpoint.reservations.add(
            LabReservation("cr-1", total=4, match="open"), *[one.instance_id for one in lab.nodes.values()]
        )
        await run(*command("init", "--yes", "--json"))
        client = await connect()
        handle = client.get_workflow_handle(names.incident_id("lab", node.instance_id), result_type=IncidentReport)
        await lab.inject("node-2", Fault(xid=79, cure=Cure.POWER_CYCLE.value))
        async with part(tmp_path / "worker.log", "worker"):
            await run(*command("report", "node-2", "--xid", "79", "--json"))
            pages = Path(lab.environment()["HOTSPARE_CONFIG"]).with_name("pages.jsonl")
            await until(lambda: pages.exists() and "cr-1 is open: any matching instance" in pages.read_text())
            assert lab.endpoint.count("StopInstances") == 0
            await run(*command("approve", "node-2", "--json"))
            report = await handle.result()
        assert (report.outcome, lab.endpoint.count("StopInstances", node.instance_id)) == ("resolved", 1)


async def test_a_node_whose_start_finds_no_capacity_waits_and_is_healed_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        node = lab.nodes["node-2"]
        ids = [one.instance_id for one in lab.nodes.values()]
        lab.endpoint.reservations.add(LabReservation("cr-1", total=4), *ids)
        await run(*command("init", "--yes", "--json"))
        client = await connect()
        handle = client.get_workflow_handle(names.incident_id("lab", node.instance_id), result_type=IncidentReport)
        await lab.inject("node-2", Fault(xid=79, cure=Cure.POWER_CYCLE.value))
        lab.endpoint.fail_next("StartInstances", "InsufficientInstanceCapacity", times=3)
        async with part(tmp_path / "worker.log", "worker"):
            await run(*command("report", "node-2", "--xid", "79", "--json"))
            report = await handle.result()
        assert (report.outcome, report.fate) == ("resolved", "back in service")
        assert any("InsufficientInstanceCapacity" in line for line in report.story)
        assert any("targeted reservation cr-1: 4 slots, 1 free" in line for line in report.story)
        counts = {
            name: lab.endpoint.count(name, node.instance_id) for name in ("RebootInstances", "StopInstances", "StartInstances")
        }
        assert counts == {"RebootInstances": 1, "StopInstances": 1, "StartInstances": 1}
