"""The incident saves its evidence after the quarantine and before anything is done, once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import NodeUnreachable
from activities.evidence_bundle import Bundle, unpack
from activities.names import TAG_QUARANTINE
from tests.workflows.healing import Healing


def bundles(one: Healing) -> list[Bundle]:
    return [unpack(file.read_bytes()) for file in (one.folder / "evidence").glob("*.tar.gz")]


async def story_of(handle: Any) -> list[str]:
    return [line["text"] for line in await handle.query("story") if line["phase"] == "evidence"]


async def test_evidence_comes_after_the_quarantine_and_before_the_hold_of_the_job_and_the_reboot(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    reading = fleet.hold("run.ps", "node-2")
    handle = await no_spares.report("node-2", xid=79)
    await reading.reached()
    assert no_spares.tags("node-2").get(TAG_QUARANTINE)
    assert (fleet.count("job.hold"), fleet.count("reboot"), fleet.count("stop")) == (0, 0, 0)
    reading.release()
    assert (await handle.result()).outcome == "resolved"
    (bundle,) = bundles(no_spares)
    (told,) = await story_of(handle)
    assert told.startswith("file:///")
    assert f"{len(bundle.items)} of " in told
    assert "XID 79" in bundle.texts["support-case.txt"]
    assert "Diagnosis: gpu_lost" in bundle.texts["support-case.txt"]
    assert bundle.manifest["boot_id"] != fleet.machine("node-2").boot_id
    assert fleet.count("run.nvidia-smi", "node-2") == 0


async def test_a_node_that_dies_while_its_evidence_is_read_is_healed_and_its_bundle_says_what_is_missing(
    no_spares: Healing,
) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    for point in ("run.uptime", "run.uname"):
        fleet.fail_next(point, NodeUnreachable("node-2: the connection broke"), node="node-2")
    handle = await no_spares.report("node-2", xid=79)
    assert (await handle.result()).outcome == "resolved"
    (bundle,) = bundles(no_spares)
    assert bundle.manifest["node_stopped_answering"]
    assert {"dmesg.txt", "probe.json", "support-case.txt"} <= set(bundle.items)
    assert any("uptime.txt (node-2: the connection broke)" in text for text in await story_of(handle))


async def test_a_worker_that_goes_down_while_evidence_is_read_leaves_one_bundle_and_reads_nothing_twice(
    no_spares: Healing,
) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    reading = fleet.hold("run.ps", "node-2")
    handle = await no_spares.report("node-2", xid=79)
    await reading.reached()
    stopping = asyncio.ensure_future(no_spares.stop_worker())
    await no_spares.until(lambda: spooled(no_spares.folder))
    await stopping
    reading.release()
    await no_spares.start_worker()
    assert (await handle.result()).outcome == "resolved"
    (bundle,) = bundles(no_spares)
    assert "processes.txt" in {part["name"] for part in bundle.parts}
    assert fleet.count("run.dmesg", "node-2") == 1
    assert fleet.count("reboot", "node-2") == 1


async def spooled(folder: Path) -> bool:
    """Whether what was read before is on disk."""
    return any((folder / "evidence/.spool").glob("*/uname.txt.part"))
