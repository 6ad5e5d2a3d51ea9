"""Every fault that the lab has a name for is diagnosed as what it is, by the checks as they travel to a node over SSH."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from activities.clients.ssh_paramiko import SshAccessTo
from activities.inventory import Node
from activities.node_access import NodeAccess
from activities.probing import ChecksArchive, Probe, ProbeAnswer, ProbeWish
from activities.settings_access import AccessSettings
from checks.archive import build_archive
from checks.model import Confidence, Verdict
from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.named_faults import NamedFault, table
from infra.lab.options import LabOptions
from workflows.decisions.settings import DEFAULT_LADDERS

in_one_loop = pytest.mark.asyncio(loop_scope="module")

FROM_OUTSIDE = {"slow_node", "unreachable"}
"""Classes that no look at the node itself can give."""
SEEN_ON_THE_NODE = {name: row for name, row in table().items() if row.fault_class not in FROM_OUTSIDE}
NODE = "node-1"


@dataclass
class Ward:
    """A lab whose first node is broken and made well again, and the way in which activities probe it."""

    lab: Lab
    access: NodeAccess
    probe: Probe
    node: Node

    async def look(self) -> ProbeAnswer:
        """Probe the node, as an examination does."""
        return await asyncio.to_thread(self.probe.run, self.access, self.node, ProbeWish())

    async def make_well(self) -> None:
        """Give the node back without faults and with an empty kernel log, as if it had run for days."""
        await self.lab.cure(NODE)
        node = self.lab.nodes[NODE]
        await node.stop()
        await node.start_up()
        (node.files.home / ".cache/hotspare/looks.json").unlink(missing_ok=True)

    def let_time_pass(self, seconds: float) -> None:
        """Make what the node remembers of earlier looks older."""
        path = self.lab.nodes[NODE].files.home / ".cache/hotspare/looks.json"
        memory = json.loads(path.read_text())
        for look in memory["looks"]:
            look[0] -= seconds
        path.write_text(json.dumps(memory))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def infirmary(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ward]:
    """One lab for all tests here."""
    folder = tmp_path_factory.mktemp("ward")
    archive = build_archive()
    (folder / "checks.tar.gz").write_bytes(archive.content)
    async with Lab(LabOptions(folder=folder / "lab", nodes=2, spares=0, temporal=False, boot_s=0.05, group_test_s=0.1)) as lab:
        settings = AccessSettings(ssh_config=lab.folder / "ssh" / "ssh_config")
        access_to = SshAccessTo(settings)
        sick = lab.nodes[NODE]
        node = Node(instance_id=sick.instance_id, name=NODE, ip=sick.ip, instance_type=sick.instance_type, gpus=8)
        probe = Probe(ChecksArchive(folder / "checks.tar.gz", archive.digest), settings)
        yield Ward(lab, access_to(node), probe, node)
        access_to.close()


@pytest_asyncio.fixture(loop_scope="module")
async def ward(infirmary: Ward) -> AsyncIterator[Ward]:
    """The ward with a node that is well."""
    yield infirmary
    await infirmary.make_well()


@in_one_loop
async def test_a_node_without_a_fault_is_ok_with_high_confidence(ward: Ward) -> None:
    seen = await ward.look()
    assert seen.verdict is Verdict.OK, [finding for finding in seen.findings if finding.verdict is not Verdict.OK]
    assert (seen.diagnosis.fault_class, seen.diagnosis.confidence) == ("none", Confidence.HIGH)


@in_one_loop
@pytest.mark.parametrize(("name", "row"), SEEN_ON_THE_NODE.items(), ids=SEEN_ON_THE_NODE)
async def test_a_named_fault_is_diagnosed_as_what_it_is(ward: Ward, name: str, row: NamedFault) -> None:
    if row.by_rise:
        assert (await ward.look()).verdict is Verdict.OK
        ward.let_time_pass(600.0)
    lines = await ward.lab.inject(NODE, Fault.named(name))
    seen = await ward.look()
    if row.by_rise or row.fault_class != "none":
        assert seen.verdict is not Verdict.OK
    assert (seen.diagnosis.fault_class, seen.diagnosis.action) == (row.fault_class, row.action), seen.diagnosis.because
    assert bool(lines) == ("kernel log" in row.signal)


def test_the_named_faults_cover_every_class_that_has_a_ladder() -> None:
    assert {row.fault_class for row in table().values()} == set(DEFAULT_LADDERS)
