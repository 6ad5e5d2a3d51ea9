"""Host memory in DynamoDB beyond the common contract: size limits, pages, throttling, closed doors, and time to live."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.config import Config

from activities import memory_table as schema
from activities.clients.dynamo_client import dynamo_client
from activities.clients.dynamo_memory import KEPT_INTENT_S, DynamoMemory, fitting
from activities.errors import AccessRefused, BadInput, HotspareError, PreconditionFailed, ProviderBusy, Throttled
from activities.gpu_records import GpuRecord
from activities.host_memory import ClosedIncident, HostFault, HostRecord, SeenConfiguration
from activities.settings import AwsSettings, StoreSettings
from tests.activities.dynamo_server import DynamoServer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def memory(dynamo: DynamoServer) -> DynamoMemory:
    return dynamo.memory()


def closed(number: int = 0, **more: Any) -> ClosedIncident:
    start: dict[str, Any] = {
        "incident": "incident/lab/i-1",
        "run_id": f"run-{number}",
        "cluster": "lab",
        "instance_id": "i-1",
        "opened_at": NOON,
        "closed_at": NOON + timedelta(minutes=number),
        "fault_class": "gpu_lost",
        "outcome": "resolved",
    }
    return ClosedIncident.model_validate({**start, **more})


def test_an_incident_too_big_for_an_item_keeps_its_newest_decisions(memory: DynamoMemory) -> None:
    decisions = [json.dumps({"n": number, "facts": "x" * 40_000}) for number in range(20)]
    memory.save_incident(closed(decisions=decisions, decisions_made=20))
    [kept] = memory.incidents("i-1")
    assert kept.decisions == decisions[-len(kept.decisions) :]
    assert 8 <= len(kept.decisions) < 20
    assert kept.decisions_made == 20


def test_a_story_too_big_for_an_item_is_cut_and_the_incident_is_kept() -> None:
    long = closed(summary=["x" * 5000] * 40, said=[{"at": NOON, "verb": "skip", "by": "y" * 5000}] * 50)
    kept = fitting(long, limit=20_000)
    assert len(kept.model_dump_json()) <= 20_000
    assert kept.outcome == "resolved"


def test_a_small_incident_is_kept_as_it_is() -> None:
    assert fitting(closed(decisions=["{}"])) == closed(decisions=["{}"])


def test_characters_of_several_bytes_count_as_such(memory: DynamoMemory) -> None:
    memory.save_incident(closed(decisions=["ü" * 150_000, "ä" * 150_000]))
    assert [decision[0] for decision in memory.incidents()[0].decisions] == ["ä"]


def test_a_host_with_more_faults_than_fit_forgets_the_oldest(memory: DynamoMemory) -> None:
    faults = [HostFault(kind="xid", code=number, at=float(number), until=0.0, signal="s" * 20_000) for number in range(40)]
    saved = memory.save(HostRecord(instance_id="i-1", faults=faults))
    assert memory.recall("i-1") == saved
    assert saved.faults[-1].code == 39
    assert 10 < len(saved.faults) < 40


def test_what_does_not_fit_at_all_is_refused(memory: DynamoMemory) -> None:
    with pytest.raises(BadInput, match="ValidationException"):
        memory.save_configuration(SeenConfiguration(instance_id="i-1", taken_at=NOON, document={"x": "y" * 500_000}))


def test_long_lists_come_whole_page_by_page(memory: DynamoMemory, dynamo: DynamoServer) -> None:
    for number in range(6):
        memory.save_incident(closed(number, summary=["x" * 300_000]))
    dynamo.calls.clear()
    assert [one.run_id for one in memory.incidents()] == [f"run-{number}" for number in (5, 4, 3, 2, 1, 0)]
    assert dynamo.calls["Query"] >= 2
    assert [one.run_id for one in memory.incidents(limit=2)] == ["run-5", "run-4"]
    assert [one.run_id for one in memory.incidents("i-1", limit=5)] == [f"run-{number}" for number in (5, 4, 3, 2, 1)]


def test_many_gpus_are_asked_for_in_batches(memory: DynamoMemory, dynamo: DynamoServer) -> None:
    serials = [f"{number:04}" for number in range(130)]
    for serial in serials:
        memory.save_gpu(GpuRecord(serial=serial))
    dynamo.calls.clear()
    assert [gpu.serial for gpu in memory.gpus([*serials, *serials])] == serials
    assert dynamo.calls["BatchGetItem"] == 2
    assert [gpu.serial for gpu in memory.gpus()] == serials


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("ProvisionedThroughputExceededException", 400, Throttled),
        ("ThrottlingException", 400, Throttled),
        ("RequestLimitExceeded", 400, Throttled),
        ("InternalServerError", 500, ProviderBusy),
        ("ResourceInUseException", 400, ProviderBusy),
        ("ResourceNotFoundException", 400, BadInput),
        ("AccessDeniedException", 400, AccessRefused),
        ("ValidationException", 400, BadInput),
        ("ConditionalCheckFailedException", 400, PreconditionFailed),
    ],
)
def test_each_error_becomes_one_of_ours_and_a_write_is_tried_once(
    memory: DynamoMemory, dynamo: DynamoServer, code: str, status: int, error: type[HotspareError]
) -> None:
    dynamo.fail("PutItem", code, status)
    with pytest.raises(error) as raised:
        memory.save(HostRecord(instance_id="i-1"))
    assert type(raised.value) is error
    assert dynamo.calls["PutItem"] == 0
    assert memory.save(HostRecord(instance_id="i-1")).version == 1


def test_a_throttled_look_is_tried_again(memory: DynamoMemory, dynamo: DynamoServer) -> None:
    dynamo.fail("GetItem", "ThrottlingException", times=2)
    assert memory.recall("i-1").version == 0
    assert dynamo.calls["GetItem"] == 1


def test_an_intent_whose_note_was_throttled_is_not_noted(memory: DynamoMemory, dynamo: DynamoServer) -> None:
    dynamo.fail("PutItem", "ThrottlingException")
    with pytest.raises(Throttled):
        memory.note_intent("t", "reboot")
    assert memory.intent_age_s("t") is None
    assert memory.note_intent("t", "reboot")


def test_an_intent_ends_with_its_time_though_dynamodb_takes_it_away_later(dynamo: DynamoServer) -> None:
    now = [NOON.timestamp()]
    memory = DynamoMemory(dynamo.aws, dynamo.store(), now=lambda: now[0])
    assert memory.note_intent("t", "reboot")
    now[0] += 60.0
    assert memory.intent_age_s("t") == pytest.approx(60.0)
    now[0] += KEPT_INTENT_S
    assert memory.intent_age_s("t") is None
    assert memory.note_intent("t", "reboot")


def test_a_table_that_is_not_there_is_named_with_what_to_do(dynamo: DynamoServer) -> None:
    memory = DynamoMemory(dynamo.aws, StoreSettings(memory="dynamodb", table="nowhere"))
    with pytest.raises(BadInput, match=r"nowhere.*ledger --create-table"):
        memory.recall("i-1")


def test_an_endpoint_that_does_not_answer_is_busy(dynamo: DynamoServer) -> None:
    closed_port = AwsSettings(region="us-east-1", endpoint_url="http://127.0.0.1:1")
    with pytest.raises(ProviderBusy, match="no clear answer"):
        DynamoMemory(closed_port, StoreSettings(memory="dynamodb")).note_intent("t", "reboot")


def test_the_table_is_made_with_time_to_live_and_backups(dynamo: DynamoServer) -> None:
    store = dynamo.store()
    client = dynamo.admin
    lives = client.describe_time_to_live(TableName=store.table)["TimeToLiveDescription"]
    assert (lives["TimeToLiveStatus"], lives["AttributeName"]) == ("ENABLED", schema.EXPIRES_AT)
    kept = client.describe_continuous_backups(TableName=store.table)["ContinuousBackupsDescription"]
    assert kept["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    assert client.describe_table(TableName=store.table)["Table"]["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


def test_the_table_may_have_a_region_and_an_endpoint_of_its_own() -> None:
    aws = AwsSettings(region="us-east-1", endpoint_url="http://127.0.0.1:1")
    there = StoreSettings(memory="dynamodb", region="eu-west-1", endpoint_url="http://127.0.0.1:2")
    client = dynamo_client(aws, there, "", Config())
    assert (client.meta.region_name, client.meta.endpoint_url) == ("eu-west-1", "http://127.0.0.1:2")
    near = dynamo_client(aws, StoreSettings(memory="dynamodb"), "", Config())
    assert (near.meta.region_name, near.meta.endpoint_url) == ("us-east-1", "http://127.0.0.1:1")
