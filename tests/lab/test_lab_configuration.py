"""Lab nodes are set up alike, the probe over SSH can read how, and a node that drifts is found among the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.clients.ssh_paramiko import SshAccessTo
from activities.inventory import Node
from activities.probing import ChecksArchive, Probe, ProbeWish
from activities.settings_access import AccessSettings
from checks.archive import build_archive
from checks.parity import Configuration, compare, own_differences
from checks.parity.configuration import UNREADABLE
from infra.lab.faults import Fault
from infra.lab.lab import Lab


class Looks:
    """The configurations of all nodes, as the probe reads them."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        archive = build_archive()
        (folder / "checks.tar.gz").write_bytes(archive.content)
        settings = AccessSettings(ssh_config=lab.folder / "ssh" / "ssh_config")
        self.lab, self.access_to = lab, SshAccessTo(settings)
        self.probe = Probe(ChecksArchive(folder / "checks.tar.gz", archive.digest), settings)

    def one(self, name: str) -> Configuration:
        seen = self.lab.nodes[name]
        node = Node(instance_id=seen.instance_id, name=name, ip=seen.ip, instance_type=seen.instance_type, gpus=8)
        found = self.probe.run(self.access_to(node), node, ProbeWish()).configuration
        assert found is not None
        return found

    async def all(self) -> dict[str, Configuration]:
        return {name: await asyncio.to_thread(self.one, name) for name in ("node-1", "node-2", "spare-1")}


@pytest.fixture
async def looks(lab: Lab, tmp_path: Path) -> AsyncIterator[Looks]:
    looks = Looks(lab, tmp_path)
    yield looks
    looks.access_to.close()


async def test_lab_nodes_are_set_up_alike_and_all_of_it_can_be_read(looks: Looks) -> None:
    found = await looks.all()
    unread = {name for one in found.values() for name, fact in one.facts.items() if fact.state == UNREADABLE}
    assert unread == set()
    assert found["node-1"].value("efa_devices") == "32"
    assert {parity.differences for parity in compare(found).values()} == {()}


async def test_a_node_with_another_driver_is_found_among_the_others(looks: Looks) -> None:
    await looks.lab.inject("spare-1", Fault.named("other_driver"))
    found = compare(await looks.all())
    assert "driver" in {one.fact for one in found["spare-1"].differences}
    assert (found["node-1"].differences, found["node-2"].differences) == ((), ())


async def test_a_fabric_manager_of_another_version_is_found_without_any_peer(looks: Looks) -> None:
    await looks.lab.inject("node-1", Fault.named("fabric_manager_other_version"))
    assert [one.fact for one in own_differences(await asyncio.to_thread(looks.one, "node-1"))] == ["fabric_manager"]
