"""The permissions for a bucket of evidence, as the docs have them: they are enough, each is needed, and none of them deletes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.clients.evidence_store_s3 import S3EvidenceStore
from activities.errors import AccessRefused
from activities.evidence_store import bundle_name
from activities.settings import AwsRole, AwsSettings, EvidenceSettings
from infra.lab.options import REGION
from tests.activities.iam_endpoint import ACCOUNT, IamEndpoint, enforced, unenforced, without

DOCS = Path(__file__).resolve().parents[2] / "docs/evidence.md"
ROLE = "hotspare-evidence"
NAME = bundle_name("incident/lab/i-1", "t1")


def documented() -> dict[str, Any]:
    """The policy in the docs."""
    (statement,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return {"Version": "2012-10-17", "Statement": [json.loads(statement.replace("BUCKET", "evidence"))]}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[IamEndpoint]:
    with unenforced():
        running = IamEndpoint()
        key, secret = running.person("worker")
        running.role(ROLE)
        running.client("s3", "admin", "admin").create_bucket(Bucket="evidence")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            yield running
        running.stop()


@pytest.fixture
def store(endpoint: IamEndpoint) -> S3EvidenceStore:
    who = AwsRole(role_arn=f"arn:aws:iam::{ACCOUNT}:role/{ROLE}")
    aws = AwsSettings(region=REGION, endpoint_url=endpoint.url, roles={"ssh": who})
    return S3EvidenceStore(aws, EvidenceSettings(bucket="evidence"), "ssh")


def test_a_bundle_is_kept_and_found_with_the_documented_permissions(endpoint: IamEndpoint, store: S3EvidenceStore) -> None:
    endpoint.permit(ROLE, documented())
    with enforced():
        kept = store.keep(NAME, b"content")
        assert store.keep(NAME, b"other") == kept
        assert store.find(NAME) == kept


@pytest.mark.parametrize("action", documented()["Statement"][0]["Action"])
def test_each_documented_permission_is_needed(endpoint: IamEndpoint, store: S3EvidenceStore, action: str) -> None:
    endpoint.permit(ROLE, without(documented(), action))
    with enforced(), pytest.raises(AccessRefused, match=r"allow s3:PutObject and s3:GetObject on evidence/hotspare/evidence/\*"):
        there_and_back(store, bundle_name("incident/lab/i-2", action))


def there_and_back(store: S3EvidenceStore, name: str) -> None:
    store.keep(name, b"content")
    store.find(name)


def test_the_documented_permissions_list_and_delete_nothing(endpoint: IamEndpoint, store: S3EvidenceStore) -> None:
    endpoint.permit(ROLE, documented())
    with enforced():
        with pytest.raises(AccessRefused):
            store.names("")
        with pytest.raises(store._s3.exceptions.ClientError, match="AccessDenied"):
            store._s3.delete_object(Bucket="evidence", Key=f"hotspare/evidence/{NAME}")
