"""An instance that was launched a moment ago is reached over SSH, and nobody touched known_hosts for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner

from activities.errors import AccessRefused
from infra.lab.fleet import IMAGE, Fleet
from infra.lab.lab import Lab
from infra.lab.node import LabNode, NodeState
from infra.lab.options import REGION, LabOptions
from workers.cli.app import app
from workers.settings import load_settings
from workers.wiring import Wiring


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    options = LabOptions(folder=tmp_path / "lab", nodes=1, spares=0, temporal=False, boot_s=0.05)
    async with Lab(options) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def wiring(lab: Lab) -> Iterator[Wiring]:
    """The product's own clients, as a running process has them."""
    made = Wiring(load_settings())
    yield made
    made.close()


async def launched(lab: Lab, name: str) -> LabNode:
    """Launch an instance through EC2 and wait until it is up."""

    def run_instances() -> None:
        tags: Any = [{"Key": key, "Value": value} for key, value in tags_of.items()]
        boto3.client("ec2", region_name=REGION).run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            InstanceType="p5.48xlarge",
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )

    tags_of = {"Name": name, "hotspare:cluster": lab.options.cluster, "hotspare:role": "spare"}
    await asyncio.to_thread(run_instances)
    await lab.nodes[name].wait_until(lambda node: node.state is NodeState.UP)
    return lab.nodes[name]


async def boot_id_of(wiring: Wiring, name: str) -> str:
    """Reach a node as every activity does."""

    def reach() -> str:
        return wiring.access_to(wiring.inventory.resolve("lab", name)).boot_id(10.0)

    return await asyncio.to_thread(reach)


def known_hosts(lab: Lab) -> str:
    return (lab.folder / "ssh" / "known_hosts").read_text()


async def trust(*words: str) -> tuple[int, str, str]:
    """Type `hotspare trust`."""
    answer = await asyncio.to_thread(lambda: CliRunner().invoke(app, ["trust", *words], catch_exceptions=False))
    return answer.exit_code, answer.stdout, answer.stderr


async def test_a_launched_instance_is_reached_by_a_process_that_ran_before_it(lab: Lab, wiring: Wiring) -> None:
    assert await boot_id_of(wiring, "node-1") == lab.nodes["node-1"].boot_id
    node = await launched(lab, "spare-9")
    assert str(node.ssh_port) not in known_hosts(lab)
    assert await boot_id_of(wiring, "spare-9") == node.boot_id
    assert f"[127.0.0.1]:{node.ssh_port} {node.server.public_key}\n" in known_hosts(lab)


async def test_what_answers_with_another_key_than_the_console_shows_is_refused(lab: Lab, wiring: Wiring) -> None:
    node, other = await launched(lab, "spare-8"), await launched(lab, "spare-9")
    configuration = lab.folder / "ssh" / "ssh_config"
    before = known_hosts(lab)
    right = configuration.read_text()
    configuration.write_text(right.replace(f"Port {node.ssh_port}\n", f"Port {other.ssh_port}\n"))
    with pytest.raises(AccessRefused, match=f"not this instance: it offers .* console shows .*address of {node.name}"):
        await boot_id_of(wiring, "spare-8")
    assert known_hosts(lab) == before
    assert lab.ssh.count("spare-9", "") == 0
    configuration.write_text(right)
    assert await boot_id_of(wiring, "spare-8") == node.boot_id


async def test_trust_shows_fingerprints_and_their_source_and_adds_keys_once(lab: Lab) -> None:
    node = await launched(lab, "spare-9")
    status, out, _ = await trust("spare-9", "--json")
    first = json.loads(out)
    assert status == 0
    assert first["host"] == f"[127.0.0.1]:{node.ssh_port}"
    assert first["source"] == f"console output of {node.instance_id}"
    [key] = first["keys"]
    assert key["type"] == "ssh-ed25519"
    assert key["fingerprint"].startswith("SHA256:")
    assert key["added"]
    assert f"[127.0.0.1]:{node.ssh_port} {node.server.public_key}\n" in known_hosts(lab)
    status, out, _ = await trust(node.instance_id)
    assert status == 0
    assert f"ssh-ed25519 {key['fingerprint']}  known before" in out


async def test_trust_refuses_while_the_console_has_no_keys(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await launched(lab, "spare-9")
    before = known_hosts(lab)
    monkeypatch.setattr(Fleet, "console_of", lambda self, instance_id: "booting\n")
    status, out, err = await trust("spare-9", "--json")
    assert status == 3
    assert json.loads(out)["kind"] == "AccessRefused"
    assert f"the console of {node.instance_id} shows no SSH host keys (yet)" in err
    assert known_hosts(lab) == before


async def test_trust_of_a_node_that_nobody_knows_is_wrong_usage(lab: Lab) -> None:
    status, _, err = await trust("node-7")
    assert status == 64
    assert "node-1" in err
