"""Host memory in a DynamoDB table: shared by all workers, with the same conditional writes as the file.

Writes are never retried here, as no mutating call of ours is: who wrote last is told by the version that is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from activities import memory_table as schema
from activities.bandwidth_records import BandwidthRecord
from activities.clients.dynamo_client import dynamo_client, mapped
from activities.clients.ec2_boto3 import ONCE, PATIENT
from activities.errors import PreconditionFailed, Throttled
from activities.gpu_records import GpuRecord
from activities.host_memory import ClosedIncident, Freeze, Freezes, HostRecord, SeenConfiguration
from activities.settings import AwsSettings, StoreSettings

R = TypeVar("R", HostRecord, GpuRecord, BandwidthRecord)

KEPT_INTENT_S = 30 * 86_400
"""How long the token of an effect is kept, seconds. Hotspare default: longer than any incident waits for a person."""

KEPT_BANDWIDTH_S = 400 * 86_400
"""How long clean runs are kept after the last of their kind, seconds. Hotspare default: a year; software is renewed sooner."""

BATCH = 100
"""Items of one BatchGetItem. Source: DynamoDB API reference, BatchGetItem."""

BATCH_TRIES = 5
"""How often what DynamoDB left out of a batch is asked for again. Hotspare default; then it counts as throttled."""

Item = dict[str, Any]


class DynamoMemory:
    """`HostMemory` in a table. It must be there: infra/terraform makes it, or `hotspare ledger --create-table`."""

    def __init__(self, aws: AwsSettings, store: StoreSettings, role: str = "", now: Callable[[], float] = time.time) -> None:
        """`role` is the entry of aws.roles whose credentials are used. `now` is Unix time."""
        self._table = store.table
        self._now = now
        self._read = dynamo_client(aws, store, role, PATIENT)
        self._change = dynamo_client(aws, store, role, ONCE)

    def note_intent(self, token: str, what: str) -> bool:
        noted = self._now()
        item = {
            **_key(schema.INTENT, token),
            "what": {"S": what},
            schema.NOTED_AT: {"N": f"{noted:.3f}"},
            schema.EXPIRES_AT: {"N": str(int(noted) + KEPT_INTENT_S)},
        }
        # Time to live takes an item away up to days after its time.
        condition = f"attribute_not_exists({schema.PARTITION}) OR {schema.EXPIRES_AT} < :now"
        try:
            self._put(item, f"note {what}", condition, {":now": {"N": str(int(noted))}})
        except PreconditionFailed:
            return False
        return True

    def intent_age_s(self, token: str) -> float | None:
        item = self._get(schema.INTENT, token)
        if item is None or float(item[schema.EXPIRES_AT]["N"]) < self._now():
            return None
        return max(0.0, self._now() - float(item[schema.NOTED_AT]["N"]))

    def withdraw_intent(self, token: str) -> None:
        with self._mapped(f"withdraw {token}"):
            self._change.delete_item(TableName=self._table, Key=_key(schema.INTENT, token))

    def recall(self, instance_id: str) -> HostRecord:
        item = self._get(schema.HOST, instance_id)
        return _record(HostRecord, item) if item else HostRecord(instance_id=instance_id)

    def save(self, record: HostRecord) -> HostRecord:
        saved = record.model_copy(update={"version": record.version + 1})
        while len(saved.model_dump_json().encode()) > schema.ITEM_LIMIT and saved.faults:
            saved = saved.model_copy(update={"faults": saved.faults[1:]})
        self._save(schema.HOST, record.instance_id, saved.version, saved.model_dump_json())
        return saved

    def records(self) -> list[HostRecord]:
        found = [_record(HostRecord, item) for item in self._list(schema.HOST)]
        return sorted(found, key=lambda record: record.instance_id)

    def gpus(self, serials: Sequence[str] | None = None) -> list[GpuRecord]:
        items = self._list(schema.GPU) if serials is None else self._several(schema.GPU, serials)
        return sorted((_record(GpuRecord, item) for item in items), key=lambda record: record.serial)

    def save_gpu(self, record: GpuRecord) -> GpuRecord:
        saved = record.model_copy(update={"version": record.version + 1})
        self._save(schema.GPU, record.serial, saved.version, saved.model_dump_json())
        return saved

    def bandwidths(self, keys: Sequence[str] | None = None) -> list[BandwidthRecord]:
        items = self._list(schema.BANDWIDTH) if keys is None else self._several(schema.BANDWIDTH, keys)
        return sorted((_record(BandwidthRecord, item) for item in items), key=lambda record: record.key)

    def save_bandwidth(self, record: BandwidthRecord) -> BandwidthRecord:
        saved = record.model_copy(update={"version": record.version + 1})
        kept = {schema.EXPIRES_AT: {"N": str(int(self._now()) + KEPT_BANDWIDTH_S)}}
        self._save(schema.BANDWIDTH, record.key, saved.version, saved.model_dump_json(), kept)
        return saved

    def save_incident(self, closed: ClosedIncident) -> None:
        kept = fitting(closed)
        key = _key(schema.INCIDENT, closed.instance_id, f"{closed.incident}#{closed.run_id}")
        at = closed.closed_at.astimezone(UTC).isoformat(timespec="microseconds")
        item = {**key, **_listed(schema.INCIDENT, at), schema.DOCUMENT: {"S": kept.model_dump_json()}}
        self._put(item, f"remember the end of {closed.incident}")

    def incidents(self, instance_id: str = "", limit: int = 100) -> list[ClosedIncident]:
        if instance_id:
            items = list(self._query(_of(schema.PARTITION, f"{schema.INCIDENT}#{instance_id}")))
        else:
            newest = {"IndexName": schema.INDEX, "ScanIndexForward": False}
            items = list(self._query({**_of(schema.KIND, schema.INCIDENT), **newest}, limit))
        found = [ClosedIncident.model_validate_json(item[schema.DOCUMENT]["S"]) for item in items]
        return sorted(found, key=lambda closed: closed.closed_at, reverse=True)[:limit]

    def configurations(self, instance_ids: Sequence[str]) -> list[SeenConfiguration]:
        items = self._several(schema.CONFIGURATION, instance_ids)
        found = [SeenConfiguration.model_validate_json(item[schema.DOCUMENT]["S"]) for item in items]
        return sorted(found, key=lambda seen: seen.instance_id)

    def save_configuration(self, seen: SeenConfiguration) -> None:
        item = {**_key(schema.CONFIGURATION, seen.instance_id), schema.DOCUMENT: {"S": seen.model_dump_json()}}
        self._put(item, f"remember how {seen.instance_id} is set up")

    def freezes(self, cluster: str) -> list[Freeze]:
        item = self._get(schema.FREEZES, cluster)
        return Freezes.model_validate_json(item[schema.DOCUMENT]["S"]).freezes if item else []

    def save_freezes(self, cluster: str, freezes: list[Freeze]) -> None:
        document = Freezes(freezes=freezes).model_dump_json()
        self._put({**_key(schema.FREEZES, cluster), schema.DOCUMENT: {"S": document}}, f"remember the freezes of {cluster}")

    def _save(self, kind: str, name: str, version: int, document: str, more: Item | None = None) -> None:
        """Write a record in place of the version before it, the first where there is none."""
        at = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="microseconds")
        item = {
            **_key(kind, name),
            **_listed(kind, at),
            schema.VERSION: {"N": str(version)},
            schema.DOCUMENT: {"S": document},
            **(more or {}),
        }
        first = version == 1
        condition = f"attribute_not_exists({schema.PARTITION})" if first else f"{schema.VERSION} = :before"
        self._put(item, f"remember {kind} {name}", condition, {} if first else {":before": {"N": str(version - 1)}})

    def _put(self, item: Item, what: str, condition: str = "", values: Item | None = None) -> None:
        asked: dict[str, Any] = {"ConditionExpression": condition} if condition else {}
        asked |= {"ExpressionAttributeValues": values} if values else {}
        with self._mapped(what):
            self._change.put_item(TableName=self._table, Item=item, **asked)

    def _get(self, kind: str, name: str) -> Item | None:
        with self._mapped(f"recall {kind} {name}"):
            answer = self._read.get_item(TableName=self._table, Key=_key(kind, name), ConsistentRead=True)
        return answer.get("Item")

    def _several(self, kind: str, wanted: Sequence[str]) -> list[Item]:
        names = list(dict.fromkeys(wanted))
        return [item for start in range(0, len(names), BATCH) for item in self._batch(kind, names[start : start + BATCH])]

    def _batch(self, kind: str, wanted: Sequence[str]) -> list[Item]:
        found: list[Item] = []
        keys: list[Any] = [_key(kind, name) for name in wanted]
        for _ in range(BATCH_TRIES):
            with self._mapped(f"recall {len(keys)} records of kind {kind}"):
                answer = self._read.batch_get_item(RequestItems={self._table: {"Keys": keys, "ConsistentRead": True}})
            found += answer["Responses"].get(self._table, [])
            left: dict[str, Any] = {**answer["UnprocessedKeys"]}
            keys = list(left.get(self._table, {}).get("Keys", []))
            if not keys:
                return found
        raise Throttled(f"DynamoDB table {self._table}: {len(keys)} records of kind {kind} were left out {BATCH_TRIES} times")

    def _list(self, kind: str) -> Iterator[Item]:
        return self._query({**_of(schema.KIND, kind), "IndexName": schema.INDEX})

    def _query(self, asked: dict[str, Any], limit: int | None = None) -> Iterator[Item]:
        """Give the items of a query, page by page."""
        given = 0
        start: dict[str, Any] = {}
        while True:
            page: dict[str, Any] = {"Limit": limit - given} if limit is not None else {}
            with self._mapped("list what is remembered"):
                answer = self._read.query(TableName=self._table, **asked, **start, **page)
            yield from answer["Items"]
            given += len(answer["Items"])
            if "LastEvaluatedKey" not in answer or (limit is not None and given >= limit):
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    @contextmanager
    def _mapped(self, what: str) -> Iterator[None]:
        with mapped(self._table, what):
            yield


def fitting(closed: ClosedIncident, limit: int = schema.ITEM_LIMIT) -> ClosedIncident:
    """Return the incident as it fits into an item: without its oldest decisions, then without its story, if need be."""
    while len(closed.model_dump_json().encode()) > limit and closed.decisions:
        closed = closed.model_copy(update={"decisions": closed.decisions[1:]})
    if len(closed.model_dump_json().encode()) > limit:
        closed = closed.model_copy(update={"summary": closed.summary[-1:], "said": closed.said[-1:]})
    return closed


def _key(kind: str, name: str, which: str = schema.ONLY) -> Item:
    return {schema.PARTITION: {"S": f"{kind}#{name}"}, schema.SORT: {"S": which}}


def _listed(kind: str, at: str) -> Item:
    """What brings an item into the index."""
    return {schema.KIND: {"S": kind}, schema.AT: {"S": at}}


def _of(attribute: str, value: str) -> dict[str, Any]:
    return {
        "KeyConditionExpression": "#attribute = :value",
        "ExpressionAttributeNames": {"#attribute": attribute},
        "ExpressionAttributeValues": {":value": {"S": value}},
    }


def _record(model: type[R], item: Item) -> R:
    return model.model_validate_json(item[schema.DOCUMENT]["S"]).model_copy(update={"version": int(item[schema.VERSION]["N"])})
