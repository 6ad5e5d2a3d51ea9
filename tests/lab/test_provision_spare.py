"""A new spare on the lab's EC2: a retired node goes first in a full reservation; its slot is cleaned, and launched into."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import boto3
import pytest

from activities import names
from infra.lab.lab import Lab
from infra.lab.node import NodeState
from infra.lab.options import REGION, LabOptions
from infra.lab.reservations import LabReservation
from tests.lab.test_every_trigger import part, run
from workers.connection import connect
from workers.demo.worker_process import command
from workflows.messages import Provisioned, StartProvision

TEMPLATE = {"ImageId": "ami-12c6146b", "InstanceType": "p5.48xlarge"}


async def test_a_retired_node_goes_for_a_new_spare_that_is_launched_into_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        file = Path(lab.environment()["HOTSPARE_CONFIG"])
        file.write_text(file.read_text() + '\n[provision]\ntemplates = {"p5.48xlarge" = "gpu"}\n')
        bad, well = lab.nodes["node-2"], lab.nodes["node-1"]
        incident = names.incident_id("lab", bad.instance_id)
        lab.endpoint.reservations.add(LabReservation("cr-1", total=2, cleaning_s=3.0), bad.instance_id, well.instance_id)
        ec2: Any = boto3.client("ec2", endpoint_url=lab.endpoint.url, region_name=REGION)
        await asyncio.to_thread(ec2.create_launch_template, LaunchTemplateName="gpu", LaunchTemplateData=TEMPLATE)
        tags = [{"Key": names.TAG_QUARANTINE, "Value": incident}, {"Key": names.TAG_FATE, "Value": names.FATE_RETIRED}]
        await asyncio.to_thread(ec2.create_tags, Resources=[bad.instance_id], Tags=tags)
        lab.endpoint.visible_after_s = 3.0
        await run(*command("init", "--yes", "--json"))
        client = await connect()
        before = set(lab.nodes)
        lab.endpoint.fail_next("DescribeInstances", "RequestLimitExceeded", times=7)
        async with part(tmp_path / "worker.log", "worker"):
            handle = await client.start_workflow(
                names.WORKFLOW_PROVISION_SPARE,
                StartProvision(in_place_of="node-2", incident=incident),
                id=names.provision_id("lab", bad.instance_id),
                task_queue=names.QUEUE_WORKFLOWS,
                result_type=Provisioned,
            )
            done = await handle.result()
            story = [line["text"] for line in await handle.query("story")]
        assert done.outcome == "in the pool", story
        [new] = [lab.nodes[name] for name in set(lab.nodes) - before]
        assert (new.instance_id, new.state, bad.state) == (done.spare, NodeState.UP, NodeState.TERMINATED)
        shown = await asyncio.to_thread(ec2.describe_instances, InstanceIds=[new.instance_id])
        instance = shown["Reservations"][0]["Instances"][0]
        assert {tag["Key"]: tag["Value"] for tag in instance["Tags"]}[names.TAG_ROLE] == names.ROLE_SPARE
        assert instance["CapacityReservationId"] == "cr-1"
        assert any("ReservationCapacityExceeded" in text for text in story)
        counts = {name: lab.endpoint.count(name) for name in ("TerminateInstances", "RunInstances")}
        assert counts == {"TerminateInstances": 1, "RunInstances": 1}


async def test_a_launch_that_finds_no_capacity_for_an_hour_is_made_once_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Describes lag and are throttled meanwhile."""
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        file = Path(lab.environment()["HOTSPARE_CONFIG"])
        file.write_text(file.read_text() + '\n[provision]\ntemplates = {"p5.48xlarge" = "gpu"}\n')
        ec2: Any = boto3.client("ec2", endpoint_url=lab.endpoint.url, region_name=REGION)
        await asyncio.to_thread(ec2.create_launch_template, LaunchTemplateName="gpu", LaunchTemplateData=TEMPLATE)
        await run(*command("init", "--yes", "--json"))
        client = await connect()
        before, launched = set(lab.nodes), lab.endpoint.count("RunInstances")
        lab.endpoint.shortage.begin(3600.0)
        lab.endpoint.stale.stale_s = 2.0
        async with part(tmp_path / "worker.log", "worker"):
            handle = await client.start_workflow(
                names.WORKFLOW_PROVISION_SPARE,
                StartProvision(instance_type="p5.48xlarge"),
                id=names.provision_id("lab", "one-more"),
                task_queue=names.QUEUE_WORKFLOWS,
                result_type=Provisioned,
            )
            while lab.endpoint.shortage.refused < 3:  # noqa: ASYNC110  (the endpoint has no event to wait for)
                await asyncio.sleep(0.02)
            assert (lab.endpoint.count("RunInstances"), set(lab.nodes)) == (launched, before)
            lab.endpoint.fail_next("DescribeInstances", "RequestLimitExceeded", times=7)
            lab.endpoint.clock.forward(3600.0)
            done = await handle.result()
            story = [line["text"] for line in await handle.query("story")]
        assert done.outcome == "in the pool", story
        assert any("InsufficientInstanceCapacity" in text for text in story)
        assert lab.endpoint.count("RunInstances") == launched + 1
        assert len(set(lab.nodes) - before) == 1
