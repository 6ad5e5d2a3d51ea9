"""Run Command under IAM: each way of using it works with the policy of its role, and each permission is needed for something."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from activities import names
from activities.clients.run_command_boto3 import RunCommandBoto3
from activities.clients.ssm_access import SsmAccess
from activities.errors import AccessRefused, DeadlinePassed, HotspareError, NodeUnreachable
from activities.inventory import Node
from activities.settings import AwsRole, AwsSettings
from activities.settings_access import AccessSettings, RunCommandSettings
from infra.iam.run_command import (
    AGENT,
    CANCEL,
    DOCUMENT,
    LOOK_DOCUMENT,
    LOOKS,
    PERMISSIONS,
    RESULT,
    SEND,
    file_of,
    policy_of,
    text_of,
)
from infra.lab.node_root import install_hotspare
from infra.lab.options import REGION
from infra.lab.run_command import RunCommand
from infra.ssm.documents import LOOK, NODE
from infra.ssm.documents import text_of as document_of
from tests.activities.iam_endpoint import ACCOUNT, IamEndpoint, enforced, unenforced, without

ROLE, CLUSTER = "hotspare-run-command", "c1"


class Plain:
    """A node that runs what it is sent as this machine does, in a root of its own."""

    def __init__(self, name: str, instance_id: str, root: Path) -> None:
        self.name, self.instance_id, self.state = name, instance_id, "Online"
        self._root = root
        install_hotspare(root)
        for tool, text in (("nvidia-smi", "echo reset: success"), ("all_reduce_perf", "echo done"), ("dmesg", "exec sleep 600")):
            file = root / "bin" / tool
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"#!/bin/sh\n{text}\n")
            file.chmod(0o755)
        boot = root / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text("boot-1\n")

    def agent(self) -> str:
        return self.state

    async def until_online(self) -> None:
        await asyncio.sleep(0)

    async def start(self, command: list[str]) -> asyncio.subprocess.Process:
        environment = {"PATH": f"{self._root}/bin:{os.environ['PATH']}", "HOTSPARE_HOST_ROOT": str(self._root)}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe, start_new_session=True)


class Rig:
    """Nodes of two clusters, and the product's access to them as the role under test."""

    def __init__(self, endpoint: IamEndpoint, service: RunCommand, nodes: dict[str, Plain]) -> None:
        self.endpoint, self.service, self.nodes = endpoint, service, nodes

    def access(self, node: str = "node-1") -> SsmAccess:
        who = AwsRole(role_arn=f"arn:aws:iam::{ACCOUNT}:role/{ROLE}")
        aws = AwsSettings(region=REGION, endpoint_url=self.endpoint.url, roles={"ssh": who})
        ssm = RunCommandSettings(document=_here(DOCUMENT), look_document=_here(LOOK_DOCUMENT), poll_s=0.05)
        settings = AccessSettings(kind="ssm", ssm=ssm)
        entry = Node(instance_id=self.nodes[node].instance_id, name=node)
        return SsmAccess(RunCommandBoto3(aws, ssm, "ssh"), entry, settings)


def _here(text: str) -> str:
    return text.replace("CLUSTER", CLUSTER)


def here(role: str) -> dict[str, Any]:
    """The policy of a role in this cluster."""
    changed: dict[str, Any] = {**policy_of(role), "Statement": [_of_cluster(one) for one in policy_of(role)["Statement"]]}
    return changed


def _of_cluster(statement: dict[str, Any]) -> dict[str, Any]:
    changed = dict(statement)
    if isinstance(statement["Resource"], list):
        changed["Resource"] = [_here(one) for one in statement["Resource"]]
    if "Condition" in statement:
        changed["Condition"] = {"StringEquals": {f"ssm:resourceTag/{names.TAG_CLUSTER}": CLUSTER}}
    return changed


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with unenforced():
        running = IamEndpoint()
        key, secret = running.person("worker")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            running.role(ROLE)
            nodes = {}
            for name, cluster in (("node-1", CLUSTER), ("other", "c2")):
                root = tmp_path_factory.mktemp(name)
                nodes[name] = Plain(name, running.launch(name, "worker", cluster), root)
            service = RunCommand(loop, nodes.values, lambda bucket, key, content: None, REGION)
            service.unseen_looks = 0
            admin = running.client("ssm", "admin", "admin")
            for document, content in ((_here(DOCUMENT), NODE), (_here(LOOK_DOCUMENT), LOOK)):
                admin.create_document(Name=document, Content=document_of(content), DocumentType="Command")
            running.run_command = service
            yield Rig(running, service, nodes)
        asyncio.run_coroutine_threadsafe(service.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        running.stop()


def look(rig: Rig) -> None:
    assert rig.access().boot_id(10.0) == "boot-1"


def look_at_one_that_is_away(rig: Rig) -> None:
    rig.service.without_agent.add(rig.nodes["node-1"].instance_id)
    try:
        with pytest.raises(NodeUnreachable, match="no SSM Agent"):
            rig.access().boot_id(10.0)
    finally:
        rig.service.without_agent.clear()


def change(rig: Rig) -> None:
    access = rig.access()
    assert access.run(["nvidia-smi", "--gpu-reset", "-i", "0"], 10.0).stdout == "reset: success\n"
    access.start("deep/1", ["all_reduce_perf"], 10.0)
    assert access.poll("deep/1").known


def give_up(rig: Rig) -> None:
    with pytest.raises(DeadlinePassed):
        rig.access().run(["dmesg"], 0.1)
    client = rig.access()._client
    sent = client.send(_here(LOOK_DOCUMENT), rig.nodes["node-1"].instance_id, dict(rig.service.sent[-1].parameters), 30)
    client.cancel(sent, rig.nodes["node-1"].instance_id)


USES: dict[str, tuple[Callable[[Rig], None], set[str]]] = {
    "look": (look, {SEND, RESULT}),
    "look_at_one_that_is_away": (look_at_one_that_is_away, {SEND, AGENT}),
    "change": (change, {SEND, RESULT}),
    "give_up": (give_up, {SEND, RESULT, CANCEL}),
}
ROWS = [(role, use) for role in PERMISSIONS for use in USES if role in ("aws", "ssh") or use.startswith("look")]


def test_the_policies_are_those_of_the_table() -> None:
    for role in PERMISSIONS:
        assert file_of(role).read_text() == text_of(role), "write them anew: python -m infra.iam.run_command"


@pytest.mark.parametrize(("role", "use"), ROWS)
def test_each_use_works_under_the_policy_of_its_role(rig: Rig, role: str, use: str) -> None:
    rig.endpoint.permit(ROLE, here(role))
    with enforced():
        USES[use][0](rig)
    assert rig.endpoint.denied == []
    asked = {f"ssm:{one}" for one in rig.endpoint.made if one != "AssumeRole"}
    assert asked <= set(PERMISSIONS[role][0])


@pytest.mark.parametrize(("use", "action"), [(use, action) for use, (_, needs) in USES.items() for action in sorted(needs)])
def test_without_any_one_of_its_actions_it_is_denied(rig: Rig, use: str, action: str) -> None:
    rig.endpoint.permit(ROLE, without(here("ssh"), action))
    with enforced(), suppress(HotspareError, AssertionError, pytest.fail.Exception):
        USES[use][0](rig)
    assert set(rig.endpoint.denied) == {action.split(":")[1]}


def test_every_action_of_a_policy_is_used_by_something() -> None:
    assert set().union(*(needs for _, needs in USES.values())) == set(PERMISSIONS["ssh"][0])
    assert USES["look"][1] | USES["look_at_one_that_is_away"][1] == set(LOOKS)


@pytest.mark.parametrize("role", ["observe", "intake"])
def test_who_may_look_can_change_nothing(rig: Rig, role: str) -> None:
    rig.endpoint.permit(ROLE, here(role))
    access = rig.access()
    with enforced():
        for deed in (
            lambda: access.run(["nvidia-smi", "--gpu-reset", "-i", "0"], 5.0),
            lambda: access.run(["reboot"], 5.0),
            lambda: access.start("deep/2", ["all_reduce_perf"], 5.0),
            lambda: access.kill("deep/2"),
        ):
            with pytest.raises(AccessRefused, match="infra/iam"):
                deed()
    assert rig.endpoint.made == ["AssumeRole"]


def test_a_policy_ends_at_the_border_of_its_cluster_and_at_its_documents(rig: Rig) -> None:
    rig.endpoint.permit(ROLE, here("ssh"))
    with enforced():
        with pytest.raises(AccessRefused):
            rig.access("other").boot_id(5.0)
        with pytest.raises(AccessRefused):
            rig.access()._client.send("AWS-RunShellScript", rig.nodes["node-1"].instance_id, {"commands": "id"}, 30)
    assert "SendCommand" not in rig.endpoint.made
