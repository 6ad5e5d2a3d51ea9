"""The client of DynamoDB, and what its errors mean to us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import PATIENT
from activities.errors import AccessRefused, BadInput, HotspareError, PreconditionFailed, ProviderBusy, Throttled
from activities.memory_table import create
from activities.settings import AwsSettings, StoreSettings

if TYPE_CHECKING:
    from botocore.config import Config
    from mypy_boto3_dynamodb import DynamoDBClient

THROTTLES = frozenset(
    {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "LimitExceededException"}
)
REFUSED = frozenset(
    {
        *("AccessDeniedException", "UnrecognizedClientException", "MissingAuthenticationTokenException"),
        *("IncompleteSignatureException", "ExpiredTokenException", "InvalidSignatureException", "ExpiredToken"),
    }
)
MADE_SOON = frozenset({"ResourceInUseException", "ReplicatedWriteConflictException", "TransactionConflictException"})
"""Error codes. Source: DynamoDB Developer Guide, "Error handling with DynamoDB"."""


def dynamo_client(aws: AwsSettings, store: StoreSettings, role: str, config: Config) -> DynamoDBClient:
    """Return a client of the table's region."""
    with mapped(store.table, "open the client"):
        return session_of(aws, role).client(
            "dynamodb",
            region_name=store.region or aws.region or None,
            endpoint_url=store.endpoint_url or aws.endpoint_url or None,
            config=config,
        )


def create_memory_table(aws: AwsSettings, store: StoreSettings, role: str = "") -> str:
    """Make the table that the settings name and return its name. Raises BadInput where it is there already."""
    with mapped(store.table, "make it"):
        client = dynamo_client(aws, store, role, PATIENT)
        if store.table in (name for page in client.get_paginator("list_tables").paginate() for name in page["TableNames"]):
            raise BadInput(f"DynamoDB table {store.table}: it is there already")
        create(client, store.table)
    return store.table


@contextmanager
def mapped(table: str, what: str) -> Iterator[None]:
    """Turn DynamoDB's errors into ours."""
    try:
        yield
    except ClientError as error:
        raise _explained(table, what, error) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise AccessRefused(f"DynamoDB table {table}: {what}: {error}; give the process credentials") from error
    except BotoCoreError as error:
        raise ProviderBusy(f"DynamoDB table {table}: {what}: no clear answer: {error}") from error


def _explained(table: str, what: str, error: ClientError) -> HotspareError:
    code = error.response.get("Error", {}).get("Code", "").rpartition("#")[2]
    message = f"DynamoDB table {table}: {what}: {code}: {error.response.get('Error', {}).get('Message', '')}"
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "ConditionalCheckFailedException":
        return PreconditionFailed(f"DynamoDB table {table}: {what}: it was changed by somebody else")
    if code in THROTTLES:
        return Throttled(message)
    if code == "ResourceNotFoundException":
        return BadInput(f"{message}; make it with infra/terraform or: hotspare ledger --create-table")
    if code in REFUSED or status == 403:
        return AccessRefused(f"{message}; infra/iam/memory has the policy that each worker role needs (docs/ledger.md)")
    return ProviderBusy(message) if status >= 500 or code in MADE_SOON else BadInput(message)
