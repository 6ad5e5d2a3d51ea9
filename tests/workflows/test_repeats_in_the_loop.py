"""A fault that comes back in a later incident is met with what the catalog says of its repeat."""

from __future__ import annotations

import time

from activities.clients.fake_machine import Cure, FakeFault
from activities.host_memory import HostFault, HostRecord
from tests.workflows.healing import Healing


def record_of(healing: Healing, name: str) -> HostRecord:
    return healing.fleet.memory.recall(healing.fleet.node(name).instance_id)


async def test_a_gpu_lost_again_after_its_reboot_is_not_rebooted_a_second_time(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    first = await (await no_spares.report("node-2", xid=79)).result()
    assert (first.outcome, fleet.count("reboot", "node-2")) == ("resolved", 1)
    [remembered] = record_of(no_spares, "node-2").faults
    assert (remembered.code, remembered.job) == (79, "train")
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    second = await (await no_spares.report("node-2", xid=79)).result()
    assert second.fault == "hardware"
    assert any("second XID 79" in line for line in second.story)
    assert (fleet.count("reboot", "node-2"), fleet.count("stop", "node-2")) == (1, 0)
    assert len(record_of(no_spares, "node-2").faults) == 2


async def test_a_fault_that_outlives_its_reboot_is_one_fault_of_one_incident(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.POWER_CYCLE))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert (fleet.count("reboot", "node-2"), fleet.count("stop", "node-2")) == (1, 1)
    assert len({fault.incident for fault in record_of(no_spares, "node-2").faults}) == 1


async def test_a_program_error_on_one_gpu_under_another_job_is_looked_into_and_not_run_again(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    serial, at = fleet.machine("node-2").serial_of(3), time.time() - 3600
    before = HostFault(kind="xid", code=31, at=at, until=at, gpu_serial=serial, boot_id="earlier", job="other")
    fleet.memory.save(HostRecord(instance_id=fleet.node("node-2").instance_id, faults=[before]))
    fleet.inject("node-2", FakeFault(xid=31, gpu=3))
    report = await (await no_spares.report("node-2", xid=31)).result()
    assert report.outcome == "escalated"
    assert any("RUN_DIAGNOSTICS" in line and "different jobs" in line for line in report.story)
    assert fleet.job.resumes == []


async def test_a_program_error_that_is_back_under_the_same_job_restarts_it(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    serial, at = fleet.machine("node-2").serial_of(3), time.time() - 3600
    before = HostFault(kind="xid", code=31, at=at, until=at, gpu_serial=serial, boot_id="earlier", job="train")
    fleet.memory.save(HostRecord(instance_id=fleet.node("node-2").instance_id, faults=[before]))
    fleet.inject("node-2", FakeFault(xid=31, gpu=3))
    report = await (await no_spares.report("node-2", xid=31)).result()
    assert report.outcome == "resolved"
    assert len(fleet.job.resumes) == 1
