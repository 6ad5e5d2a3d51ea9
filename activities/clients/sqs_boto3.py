"""The event queue in Amazon SQS, through boto3."""

from __future__ import annotations

from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import PATIENT, READ_TIMEOUT_S, mapped
from activities.event_queue import QueuedEvent
from activities.settings import AwsSettings

AT_ONCE = 10
"""Messages of one reception. Source: SQS API Reference, ReceiveMessage: at most 10."""
WAIT_S = READ_TIMEOUT_S // 2
"""How long one reception waits for messages: well below the time that a call has."""


class SqsBoto3:
    """`EventQueue` on AWS or on an endpoint that speaks its protocol."""

    def __init__(self, settings: AwsSettings, queue_url: str, role: str = "") -> None:
        self._url = queue_url
        with mapped("open the SQS client"):
            self._client = session_of(settings, role).client(
                "sqs", region_name=settings.region or None, endpoint_url=settings.endpoint_url or None, config=PATIENT
            )

    def receive(self) -> list[QueuedEvent]:
        with mapped(f"receive from the queue {self._url}"):
            answer = self._client.receive_message(QueueUrl=self._url, MaxNumberOfMessages=AT_ONCE, WaitTimeSeconds=WAIT_S)
        return [QueuedEvent(one["Body"], one["ReceiptHandle"]) for one in answer.get("Messages", [])]

    def done(self, event: QueuedEvent) -> None:
        with mapped(f"delete a message of the queue {self._url}"):
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=event.receipt)
