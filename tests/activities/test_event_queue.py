"""The queue of events in SQS, over its real protocol: a message comes until it is done, and what is wrong has a name."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from activities.clients.ec2_boto3 import ONCE
from activities.clients.sqs_boto3 import SqsBoto3
from activities.errors import BadInput, ProviderBusy
from activities.settings import AwsSettings
from infra.lab.options import REGION
from tests.activities.iam_endpoint import IamEndpoint, unenforced


@pytest.fixture(scope="module")
def endpoint() -> Iterator[IamEndpoint]:
    with unenforced(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "admin")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "admin")
        running = IamEndpoint()
        yield running
        running.stop()


def queue_at(endpoint: IamEndpoint, url: str) -> SqsBoto3:
    return SqsBoto3(AwsSettings(region=REGION, endpoint_url=endpoint.url), url)


def test_a_message_is_there_until_it_is_done(endpoint: IamEndpoint) -> None:
    endpoint.forget_instances()
    url = endpoint.queue("c1", json.dumps({"source": "aws.ec2"}))
    admin = endpoint.client("sqs", "admin", "admin")
    admin.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0"})
    queue = queue_at(endpoint, url)
    first, again = queue.receive(), queue.receive()
    assert [json.loads(event.body) for event in (*first, *again)] == [{"source": "aws.ec2"}] * 2
    queue.done(again[0])
    assert "Messages" not in admin.receive_message(QueueUrl=url)


def test_a_queue_that_is_not_there_is_named(endpoint: IamEndpoint) -> None:
    endpoint.forget_instances()
    with pytest.raises(BadInput, match=r"other-queue.*NonExistentQueue"):
        queue_at(endpoint, f"{endpoint.url}/123456789012/other-queue").receive()


def test_an_endpoint_that_does_not_answer_is_a_matter_of_time() -> None:
    settings = AwsSettings(region=REGION, endpoint_url="http://127.0.0.1:9")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "x")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        patch.setattr("activities.clients.sqs_boto3.PATIENT", ONCE)
        with pytest.raises(ProviderBusy, match="no clear answer"):
            SqsBoto3(settings, "http://127.0.0.1:9/1/events").receive()
