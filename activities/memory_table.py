"""The DynamoDB table of host memory: its keys, its index, and the command that makes it. Terraform makes the same one.

One table holds everything, one item per record: `pk` says what and whose it is, `sk` which one of several. The index `by-time`
lists all of a kind, so that no Scan is needed. Intents go by themselves when `expires_at` has passed (time to live).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PARTITION, SORT = "pk", "sk"
KIND, AT = "kind", "at"
DOCUMENT, VERSION = "document", "version"
NOTED_AT, EXPIRES_AT = "noted_at", "expires_at"
INDEX = "by-time"

HOST, GPU, INCIDENT, CONFIGURATION, FREEZES, INTENT = "host", "gpu", "incident", "configuration", "freezes", "intent"
BANDWIDTH = "bandwidth"
"""What a partition is of: its key is the kind, "#", and the instance id, serial, cluster, token or what runs have in common."""

ONLY = "-"
"""Sort key where a partition has one item."""

ITEM_LIMIT = 390_000
"""Bytes of one document. Source: DynamoDB Developer Guide, "Quotas": 400 KB an item, attribute names and values together; the
rest is room for keys."""


def table_definition(table: str) -> dict[str, Any]:
    """Return the table as CreateTable takes it: on demand, because a healer writes little and at bad times much."""
    keys = {PARTITION: "HASH", SORT: "RANGE"}
    index = {KIND: "HASH", AT: "RANGE"}
    return {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in (*keys, *index)],
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": INDEX,
                "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in index.items()],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    }


def create(client: DynamoDBClient, table: str) -> None:
    """Make the table, wait until it is there, and switch on time to live and point-in-time recovery."""
    client.create_table(**table_definition(table))
    client.get_waiter("table_exists").wait(TableName=table)
    client.update_time_to_live(TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRES_AT})
    client.update_continuous_backups(TableName=table, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True})
