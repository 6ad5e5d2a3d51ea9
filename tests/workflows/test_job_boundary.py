"""What can wait for the job's next checkpoint does, and a worse fault ends the wait at once."""

from __future__ import annotations

from activities.clients.fake_machine import Cure, FakeFault
from tests.workflows.healing import Healing


async def test_a_reset_that_can_wait_lets_the_job_write_its_checkpoint_first(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=156, cure=Cure.REBOOT))
    at_checkpoint = fleet.hold("job.status")
    handle = await no_spares.report("node-2", xid=156)
    await at_checkpoint.reached()
    assert [fleet.count(point) for point in ("run.quarantine_write", "job.hold", "reboot")] == [0, 0, 0]
    before = fleet.job.checkpoint_step
    at_checkpoint.release()
    report = await handle.result()
    assert report.outcome == "resolved"
    assert fleet.count("reboot", "node-2") == 1
    assert fleet.job.checkpoint_step > before
    assert len(fleet.job.resumes) == 1


async def test_a_lost_gpu_ends_the_wait_for_a_checkpoint(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=156, cure=Cure.REBOOT))
    at_checkpoint = fleet.hold("job.status")
    handle = await no_spares.report("node-2", xid=156)
    await at_checkpoint.reached()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "quarantined")
    at_checkpoint.release()
    assert (await handle.result()).outcome == "resolved"
    assert fleet.count("reboot", "node-2") == 1
