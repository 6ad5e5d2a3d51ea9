"""Run Command in the lab: a document's command really runs on a node, outputs are cut and kept, and every state has its cause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from checks.named_runs import packed_options, unpacked
from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.managed import BUCKET
from infra.lab.node import NodeState
from infra.lab.options import LabOptions
from infra.lab.processes import PROC, marked_processes
from infra.lab.run_command import OUT_LIMIT
from infra.ssm.documents import LOOK, NODE
from tests.lab.conftest import Reach


@pytest.fixture
async def lab(lab_options: LabOptions) -> AsyncIterator[Lab]:
    """A lab whose nodes are reached by Run Command."""
    async with Lab(replace(lab_options, access="ssm")) as lab:
        yield lab


class Console:
    """What an operator does at the endpoint."""

    def __init__(self, lab: Lab, reach: Reach) -> None:
        self.lab, self.ssm, self.s3 = lab, reach.aws("ssm"), reach.aws("s3")

    async def send(self, node: str, check: str, document: str = LOOK, **options: Any) -> str:
        parameters = {
            "Action": [options.pop("action", "run")],
            "Check": [check],
            "RunId": [options.pop("run_id", "r1")],
            "Options": [packed_options({"deadline_s": 30, "words": [], **options.pop("words", {})})],
        }
        instance = self.lab.nodes[node].instance_id
        answer = await asyncio.to_thread(
            self.ssm.send_command, DocumentName=document, InstanceIds=[instance], Parameters=parameters, **options
        )
        return str(answer["Command"]["CommandId"])

    async def look(self, command_id: str, node: str) -> dict[str, Any]:
        instance = self.lab.nodes[node].instance_id
        found: dict[str, Any] = await asyncio.to_thread(
            self.ssm.get_command_invocation, CommandId=command_id, InstanceId=instance
        )
        return found

    async def until(self, command_id: str, node: str, *states: str) -> dict[str, Any]:
        """Look until the command is in one of these states."""
        while True:
            try:
                if (seen := await self.look(command_id, node))["StatusDetails"] in states:
                    return seen
            except self.ssm.exceptions.InvocationDoesNotExist:
                pass
            await asyncio.sleep(0.02)


@pytest.fixture
def console(lab: Lab, reach: Reach) -> Console:
    return Console(lab, reach)


async def test_a_command_runs_on_its_node_and_is_not_known_everywhere_at_once(console: Console) -> None:
    sent = await console.send("node-1", "boot-id")
    with pytest.raises(console.ssm.exceptions.InvocationDoesNotExist):
        await console.look(sent, "node-1")
    seen = await console.until(sent, "node-1", "Success")
    assert seen["ResponseCode"] == 0
    answer = unpacked(seen["StandardOutputContent"])
    assert answer is not None
    assert answer["stdout"].strip() == console.lab.nodes["node-1"].boot_id
    assert (console.lab.run_command.count("node-1", "boot-id"), console.lab.ssh.count("node-1", "")) == (1, 0)


async def test_a_long_output_is_cut_and_whole_in_the_bucket(console: Console) -> None:
    node = console.lab.nodes["node-1"]
    (node.root / "opt/hotspare/bin/python").write_text("#!/bin/sh\nhead -c 60000 /dev/zero | tr '\\0' x\nexit 3\n")
    sent = await console.send("node-1", "uptime", OutputS3BucketName=BUCKET, OutputS3KeyPrefix="outputs")
    seen = await console.until(sent, "node-1", "Failed")
    assert (seen["ResponseCode"], len(seen["StandardOutputContent"])) == (3, OUT_LIMIT)
    key = seen["StandardOutputUrl"].split(f"/{BUCKET}/")[1]
    assert key.startswith(f"outputs/{sent}/{node.instance_id}/")
    assert len(console.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()) == 60_000


async def test_a_command_can_be_held_before_it_is_delivered_and_cancelled(console: Console) -> None:
    hold = console.lab.run_command.hold("node-1", "uptime")
    sent = await console.send("node-1", "uptime")
    await hold.reached()
    assert (await console.until(sent, "node-1", "Pending"))["StandardOutputContent"] == ""
    await asyncio.to_thread(console.ssm.cancel_command, CommandId=sent)
    hold.release()
    assert (await console.until(sent, "node-1", "Cancelled"))["ResponseCode"] == -1


async def test_a_node_that_hangs_takes_a_command_and_never_answers(console: Console) -> None:
    await console.lab.inject("node-1", Fault(hang=True, cure=Cure.REBOOT.value))
    sent = await console.send("node-1", "uptime")
    assert (await console.until(sent, "node-1", "InProgress"))["Status"] == "InProgress"


async def test_a_node_that_is_stopped_takes_none_and_is_not_shown(console: Console, reach: Reach) -> None:
    node = console.lab.nodes["node-2"]
    shown = await asyncio.to_thread(console.ssm.describe_instance_information)
    assert {one["PingStatus"] for one in shown["InstanceInformationList"]} == {"Online"}
    await reach.ec2("stop_instances", InstanceIds=[node.instance_id])
    await node.wait_until(lambda seen: seen.state is NodeState.STOPPED)
    with pytest.raises(console.ssm.exceptions.InvalidInstanceId):
        await console.send("node-2", "uptime")
    shown = await asyncio.to_thread(console.ssm.describe_instance_information)
    assert node.instance_id not in {one["InstanceId"] for one in shown["InstanceInformationList"]}


async def test_a_command_for_a_node_that_boots_waits_and_one_that_waits_too_long_is_not_run(console: Console) -> None:
    await console.lab.inject("node-1", Fault(xid=79, cure=Cure.NO_BOOT.value))
    node = console.lab.nodes["node-1"]
    console.lab._fleet.reboot(node)
    await node.wait_until(lambda seen: seen.state is NodeState.DEAD)
    waiting = await console.send("node-1", "uptime", run_id="waits")
    await console.until(waiting, "node-1", "Delayed")
    console.lab.run_command.deliver_at_most_s = 0.05
    late = await console.send("node-1", "uptime", run_id="late")
    seen = await console.until(late, "node-1", "DeliveryTimedOut")
    assert (seen["Status"], seen["ResponseCode"]) == ("TimedOut", -1)


async def test_the_agent_on_a_node_starts_with_each_boot(console: Console) -> None:
    node = console.lab.nodes["node-1"]
    before = agents_of(console.lab, "node-1")
    boot = node.boot_id
    console.lab._fleet.reboot(node)
    await console.lab.reboot_done("node-1", boot)
    while not (after := agents_of(console.lab, "node-1")):  # noqa: ASYNC110  # units start when the node is up, and tell nobody
        await asyncio.sleep(0.02)
    assert len(before) == len(after) == 1
    assert before != after
    assert agents_of(console.lab, "head") == []


def agents_of(lab: Lab, node: str) -> list[int]:
    """Processes of Hotspare's agent on a node."""
    found = []
    for pid in marked_processes(lab.nodes[node].root):
        with suppress(OSError):  # it has ended meanwhile
            found += [pid] if b"agent" in (PROC / str(pid) / "cmdline").read_bytes().split(b"\0") else []
    return found


@pytest.mark.parametrize(
    ("document", "changed", "error"),
    [
        (LOOK, {"check": "gpu-reset"}, "InvalidParameters"),
        (NODE, {"check": "boot-id", "TimeoutSeconds": 29}, "min value|ValidationException|less than minimum"),
        ("AWS-RunShellScript", {"check": "boot-id"}, "InvalidDocument"),
    ],
)
async def test_what_the_service_refuses(console: Console, document: str, changed: dict[str, Any], error: str) -> None:
    check = changed.pop("check")
    with pytest.raises(Exception, match=error) as raised:
        await console.send("node-1", check, document, **changed)
    assert isinstance(raised.value, ClientError) or "29" in str(raised.value)


async def test_on_kubernetes_there_is_none(lab_options: LabOptions) -> None:
    with pytest.raises(ValueError, match="reached by ssh or agent, not by ssm"):
        Lab(replace(lab_options, access="ssm", orchestrator="kubernetes"))
