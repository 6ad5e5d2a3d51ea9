"""What `hotspare init` prepares on a server: proven search attributes and the sweep's schedule. Twice is once."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, RemoveSearchAttributesRequest
from temporalio.client import Client, ScheduleActionStartWorkflow, ScheduleOverlapPolicy

from activities.names import SEARCH_ATTRIBUTES, reconcile_schedule_id, sweep_schedule_id
from workers.attributes import missing_attributes, prove_attributes, register_attributes
from workers.cli.sweeping import CATCH_UP, schedule_reconcile, schedule_sweep
from workers.settings import parse_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _remove(client: Client, *names: str) -> None:
    if not names:
        return
    request = RemoveSearchAttributesRequest(namespace=client.namespace, search_attributes=names)
    await client.operator_service.remove_search_attributes(request)


async def test_registered_attributes_are_proven_and_a_second_time_changes_nothing(client: Client) -> None:
    present = set(SEARCH_ATTRIBUTES) - {line.split()[0] for line in await missing_attributes(client)}
    await _remove(client, *present)
    assert len(await missing_attributes(client)) == len(SEARCH_ATTRIBUTES)
    for _ in range(2):
        assert await register_attributes(client) == []
        await prove_attributes(client)
    assert await missing_attributes(client) == []


async def test_a_name_with_another_type_is_told_and_left_alone(client: Client) -> None:
    await register_attributes(client)
    await _remove(client, "HotspareJob")
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace=client.namespace, search_attributes={"HotspareJob": IndexedValueType.INDEXED_VALUE_TYPE_INT}
        )
    )
    try:
        assert await register_attributes(client) == ["HotspareJob is registered as Int, not as Keyword"]
    finally:
        await _remove(client, "HotspareJob")
        await register_attributes(client)


async def test_the_sweep_is_scheduled_once_follows_its_setting_and_stays_paused_when_a_person_paused_it(client: Client) -> None:
    settings = parse_settings({"cluster": {"name": "swept"}}, Path("/x/hotspare.toml"))
    assert await schedule_sweep(client, settings) == "scheduled every 300 s"
    handle = client.get_schedule_handle(sweep_schedule_id("swept"))
    await handle.pause(note="maintenance")
    slower = parse_settings({"cluster": {"name": "swept"}, "sweep": {"interval_s": 900}}, Path("/x/hotspare.toml"))
    assert await schedule_sweep(client, slower) == "scheduled before, now every 900 s"
    schedule = (await handle.describe()).schedule
    assert [interval.every.total_seconds() for interval in schedule.spec.intervals] == [900]
    assert (schedule.policy.overlap, schedule.policy.catchup_window) == (ScheduleOverlapPolicy.SKIP, CATCH_UP)
    assert (schedule.state.paused, schedule.state.note) == (True, "maintenance")
    assert isinstance(schedule.action, ScheduleActionStartWorkflow)
    assert schedule.action.task_queue == "hotspare"
    await handle.delete()


async def test_the_look_for_what_was_left_behind_has_a_schedule_of_its_own(client: Client) -> None:
    settings = parse_settings({"cluster": {"name": "tidied"}, "sweep": {"reconcile_interval_s": 60}}, Path("/x/hotspare.toml"))
    assert await schedule_reconcile(client, settings) == "scheduled every 60 s"
    handle = client.get_schedule_handle(reconcile_schedule_id("tidied"))
    schedule = (await handle.describe()).schedule
    assert isinstance(schedule.action, ScheduleActionStartWorkflow)
    assert (schedule.action.workflow, schedule.policy.overlap) == ("Reconcile", ScheduleOverlapPolicy.SKIP)
    await handle.delete()
