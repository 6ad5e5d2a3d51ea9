"""The checks travel to a node over SSH, are unpacked once, and answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_memory import FakeMemory
from activities.clients.ssh_paramiko import SshAccessTo
from activities.node import Examine, NodeActivities
from activities.probing import ChecksArchive, Probe
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from checks.archive import build_archive
from checks.model import Verdict
from tests.activities.loopback_node import LoopbackNode


@pytest.fixture
def activities(loopback: LoopbackNode, tmp_path: Path) -> Iterator[NodeActivities]:
    archive = build_archive()
    file = tmp_path / "checks.tar.gz"
    file.write_bytes(archive.content)
    settings = AccessSettings(ssh_config=loopback.configuration)
    access_to = SshAccessTo(settings)
    probe = Probe(ChecksArchive(file, archive.digest), settings)
    yield NodeActivities(access_to, probe, FakeFleet().gate(probe), settings, BurnInSettings(), FakeMemory())
    access_to.close()


def test_a_node_without_a_driver_is_read_and_is_not_ok(
    loopback: LoopbackNode, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    seen = surroundings.run(activities.examine, Examine(node=loopback.node))
    assert seen.reachable
    assert seen.boot_id == loopback.boot_id
    assert seen.verdict in (Verdict.UNKNOWN, Verdict.CRITICAL)
    assert seen.gpu_processes is None


def test_the_checks_are_sent_and_unpacked_once(
    loopback: LoopbackNode, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    for _ in range(3):
        surroundings.run(activities.examine, Examine(node=loopback.node))
    assert sum("extractall" in command for command in loopback.commands) == 1
    assert sum("sha256sum" in command for command in loopback.commands) == 1


def test_a_fault_line_in_the_kernel_log_of_a_real_node_is_diagnosed(
    loopback: LoopbackNode, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    (loopback.root / "proc/uptime").write_text("500.00 0.00\n")
    with loopback.kernel_log.open("a") as log:
        log.write("[  490.000000] NVRM: Xid (PCI:0000:86:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n")
    seen = surroundings.run(activities.examine, Examine(node=loopback.node))
    assert (seen.verdict, seen.opinion.fault_class, seen.opinion.code) == (Verdict.CRITICAL, "gpu_lost", 79)


def test_an_archive_that_was_half_unpacked_is_unpacked_again(
    loopback: LoopbackNode, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    first = surroundings.run(activities.examine, Examine(node=loopback.node))
    (unpacked,) = (loopback.home / ".cache/hotspare").glob("*/run_checks.py")
    unpacked.unlink()
    again = surroundings.run(activities.examine, Examine(node=loopback.node))
    assert unpacked.exists()
    assert (again.verdict, again.findings[0].check) == (first.verdict, first.findings[0].check)
