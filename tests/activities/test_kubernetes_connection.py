"""How the Kubernetes API is reached: the token of EKS as its authenticator reads it, and settings that lead nowhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from moto import mock_aws

from activities.clients.eks_token import RENEW_S, EksToken
from activities.clients.kubernetes_connection import connect, described
from activities.errors import AccessRefused, BadInput, NodeUnreachable
from activities.kubernetes import NODE
from activities.settings import AwsSettings
from activities.settings_jobs import KubernetesSettings

CLUSTER = "train"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret that nobody sees")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of a role")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def address_in(token: str) -> Any:
    """Decode a token as aws-iam-authenticator does: prefix, then URL-safe base64 without padding."""
    assert token.startswith("k8s-aws-v1.")
    text = token.removeprefix("k8s-aws-v1.")
    assert "=" not in text
    return urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "sts.us-east-1.amazonaws.com"),
        ("us-gov-west-1", "sts.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_token_is_a_presigned_question_who_we_are_for_this_cluster_alone(region: str, host: str) -> None:
    token = EksToken(boto3.session.Session(), region, CLUSTER)()
    url = address_in(token)
    asked = {key: values[0] for key, values in parse_qs(url.query).items()}
    assert (url.scheme, url.hostname, url.path) == ("https", host, "/")
    assert (asked["Action"], asked["Version"]) == ("GetCallerIdentity", "2011-06-15")
    assert asked["X-Amz-SignedHeaders"].split(";") == ["host", "x-k8s-aws-id"]
    assert asked["X-Amz-Expires"] == "60"
    assert asked["X-Amz-Credential"].endswith(f"/{region}/sts/aws4_request")
    made = datetime.strptime(asked["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - made).total_seconds()) < 600
    assert len(token) <= 4096
    assert "a secret" not in str(url)


def test_a_token_serves_until_shortly_before_it_expires() -> None:
    at = [0.0]
    asked = []

    class Counting(boto3.session.Session):
        def get_credentials(self) -> Any:
            asked.append(at[0])
            return super().get_credentials()

    token = EksToken(Counting(), "us-east-1", CLUSTER, lambda: at[0])
    token()
    made = len(asked)
    at[0] = RENEW_S - 1
    token()
    assert len(asked) == made
    at[0] = RENEW_S
    token()
    assert len(asked) > made
    assert RENEW_S < 14 * 60


def test_without_credentials_the_door_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(AccessRefused, match="get-caller-identity"):
        EksToken(boto3.session.Session(), "us-east-1", CLUSTER)()


@pytest.fixture
def eks() -> Iterator[None]:
    """EKS with one cluster."""
    with mock_aws():
        boto3.client("eks", "us-east-1").create_cluster(
            name=CLUSTER, roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig={"subnetIds": ["subnet-1"]}
        )
        yield


@pytest.mark.usefixtures("eks")
def test_address_and_certificate_come_from_eks() -> None:
    endpoint, authority = described(CLUSTER, "us-east-1", AwsSettings(), boto3.session.Session())
    seen = boto3.client("eks", "us-east-1").describe_cluster(name=CLUSTER)["cluster"]
    assert endpoint == seen["endpoint"]
    assert authority == base64.b64decode(seen["certificateAuthority"]["data"])


@pytest.mark.usefixtures("eks")
def test_a_cluster_that_eks_does_not_know_is_told_with_the_settings_to_look_at() -> None:
    settings = KubernetesSettings(source="eks", eks_cluster="other")
    client = connect(settings, AwsSettings(region="us-east-1"), lambda: boto3.session.Session())
    with pytest.raises(BadInput, match=r"kubernetes\.eks_cluster"):
        client.list(NODE)
    client.close()


def test_a_kubeconfig_that_is_not_there_or_lacks_the_context_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config"
    settings = KubernetesSettings(source="kubeconfig", kubeconfig=file, context="other")
    with pytest.raises(BadInput, match="no such file"):
        connect(settings, AwsSettings(), boto3.session.Session).list(NODE)
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [], "contexts": [], "users": []}))
    with pytest.raises(BadInput, match="other"):
        connect(settings, AwsSettings(), boto3.session.Session).list(NODE)


def test_outside_of_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadInput, match="in-cluster"):
        connect(KubernetesSettings(source="in-cluster"), AwsSettings(), boto3.session.Session).list(NODE)


def test_an_api_server_that_is_not_there_is_unreachable_within_the_time_limit(tmp_path: Path) -> None:
    file = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {"token": "t"}}]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "contexts": [context],
        "users": users,
        "current-context": "c",
    }
    file.write_text(json.dumps(config))
    client = connect(KubernetesSettings(source="kubeconfig", kubeconfig=file), AwsSettings(), boto3.session.Session)
    with pytest.raises(NodeUnreachable, match=r"127\.0\.0\.1:1.*does not answer"):
        client.list(NODE)
    client.close()
