"""`Permissions` and `QueueLook` through boto3: dry runs on EC2, reads elsewhere, IAM's own simulation where neither exists."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import mapped
from activities.errors import AccessRefused
from activities.permissions import Identity, Permitted, QueueSeen, Tried
from activities.settings import AwsSettings

TIMEOUTS = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
"""Limits of one call, seconds. Hotspare default: a person waits for the answer."""

REFUSALS = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthorizationError")
DRY = "DryRunOperation"
"""The error code that says: you might have done it."""

NO_ANSWER = (BotoCoreError, ResponseParserError)
"""What botocore raises where no clear answer came; the latter stands outside of its own errors."""

_ASSUMED = re.compile(r"arn:([a-z-]+):sts::(\d{12}):assumed-role/([^/]+)/.*")

Call = Callable[[Any, str, str, str], Any]

_DRY_RUNS: dict[str, Call] = {
    "ec2:DescribeInstances": lambda ec2, node, tag, template: ec2.describe_instances(InstanceIds=[node], DryRun=True),
    "ec2:DescribeInstanceStatus": lambda ec2, node, tag, template: ec2.describe_instance_status(InstanceIds=[node], DryRun=True),
    "ec2:DescribeCapacityReservations": lambda ec2, node, tag, template: ec2.describe_capacity_reservations(DryRun=True),
    "ec2:GetConsoleOutput": lambda ec2, node, tag, template: ec2.get_console_output(InstanceId=node, DryRun=True),
    "ec2:RebootInstances": lambda ec2, node, tag, template: ec2.reboot_instances(InstanceIds=[node], DryRun=True),
    "ec2:StopInstances": lambda ec2, node, tag, template: ec2.stop_instances(InstanceIds=[node], DryRun=True),
    "ec2:StartInstances": lambda ec2, node, tag, template: ec2.start_instances(InstanceIds=[node], DryRun=True),
    "ec2:TerminateInstances": lambda ec2, node, tag, template: ec2.terminate_instances(InstanceIds=[node], DryRun=True),
    "ec2:CreateTags": lambda ec2, node, tag, template: ec2.create_tags(
        Resources=[node], Tags=[{"Key": tag, "Value": "dry run"}], DryRun=True
    ),
    "ec2:DeleteTags": lambda ec2, node, tag, template: ec2.delete_tags(Resources=[node], Tags=[{"Key": tag}], DryRun=True),
    "ec2:RunInstances": lambda ec2, node, tag, template: ec2.run_instances(
        MinCount=1, MaxCount=1, LaunchTemplate=_template(template), DryRun=True
    ),
}

_READS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "autoscaling:DescribeAutoScalingInstances": (
        "autoscaling",
        lambda client, name: client.describe_auto_scaling_instances(MaxRecords=1),
    ),
    "autoscaling:DescribeAutoScalingGroups": (
        "autoscaling",
        lambda client, name: client.describe_auto_scaling_groups(MaxRecords=1),
    ),
    "eks:DescribeCluster": ("eks", lambda client, name: client.describe_cluster(name=name)),
}


class PermissionsBoto3:
    """`Permissions` of one worker role's credentials, or of the process's own."""

    def __init__(self, settings: AwsSettings, role: str = "") -> None:
        self._settings = settings
        self._session = session_of(settings, role)
        self._clients: dict[str, Any] = {}
        self._source = ""
        self._no_simulation = ""

    def identity(self) -> Identity:
        try:
            began = datetime.now(UTC)
            seen = self._client("sts").get_caller_identity()
            middle = began + (datetime.now(UTC) - began) / 2
        except (*NO_ANSWER, ClientError) as error:
            raise AccessRefused(f"AWS does not say who we are: {error}") from error
        region = self._settings.region or self._session.region_name or "no region"
        at = None
        with suppress(TypeError, ValueError):
            at = parsedate_to_datetime(seen["ResponseMetadata"]["HTTPHeaders"].get("date"))
        return Identity(seen["Arn"], region, at, middle)

    def try_dry(self, action: str, instance_id: str, tag: str = "", template: str = "") -> Tried:
        call = _DRY_RUNS.get(action)
        if call is None:
            return Tried(action, Permitted.UNKNOWN, "the call has no dry run")
        if not self._knows_dry_runs:
            return Tried(
                action, Permitted.UNKNOWN, "this endpoint does not keep to dry runs, so no call that changes anything is tried"
            )
        return _answer(action, lambda: call(self._client("ec2"), instance_id, tag, template))

    def read(self, action: str, name: str = "") -> Tried:
        if action not in _READS:
            return Tried(action, Permitted.UNKNOWN, "the call does not only read")
        service, call = _READS[action]
        return _answer(action, lambda: call(self._client(service), name))

    def simulate(self, action: str, resource: str, context: Mapping[str, str]) -> Tried:
        entries = [
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"} for key, value in context.items()
        ]
        if self._no_simulation:
            return Tried(action, Permitted.UNKNOWN, self._no_simulation)
        try:
            answer = self._client("iam").simulate_principal_policy(
                PolicySourceArn=self._principal(), ActionNames=[action], ResourceArns=[resource], ContextEntries=entries
            )
        except (*NO_ANSWER, ClientError, AccessRefused) as error:
            # It is refused, or not known there: for the next action too.
            self._no_simulation = f"IAM does not simulate it: {_short(error)}"
            return Tried(action, Permitted.UNKNOWN, self._no_simulation)
        decisions = {one["EvalActionName"]: one["EvalDecision"] for one in answer["EvaluationResults"]}
        decision = decisions.get(action, "")
        permitted = Permitted.YES if decision == "allowed" else Permitted.NO if decision else Permitted.UNKNOWN
        return Tried(action, permitted, "" if permitted is Permitted.YES else f"IAM: {decision or 'no decision'}")

    @cached_property
    def _knows_dry_runs(self) -> bool:
        """Whether a call that only reads is answered as a dry run: who carries that one out might carry out a reboot."""
        tried = _answer("", lambda: self._client("ec2").describe_instances(DryRun=True))
        return tried.said == DRY or tried.permitted is Permitted.NO

    def _principal(self) -> str:
        """The role behind an assumed one: IAM simulates policies of roles and users, not of sessions."""
        if not self._source:
            arn = self.identity().arn
            found = _ASSUMED.fullmatch(arn)
            self._source = f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}" if found else arn
        return self._source

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            settings = self._settings
            # No worker role may ask IAM about itself: who runs this does.
            session = session_of(settings) if service == "iam" else self._session
            self._clients[service] = session.client(  # type: ignore[call-overload]
                service, region_name=settings.region or None, endpoint_url=settings.endpoint_url or None, config=TIMEOUTS
            )
        return self._clients[service]


class QueueLookBoto3:
    """`QueueLook` with the process's own credentials: a person's, who asks."""

    def __init__(self, settings: AwsSettings, url: str) -> None:
        session, self._url = session_of(settings), url
        where = {"region_name": settings.region or None, "endpoint_url": settings.endpoint_url or None, "config": TIMEOUTS}
        with mapped("open the SQS client"):
            self._sqs = session.client("sqs", **where)  # type: ignore[call-overload]
            self._events = session.client("events", **where)  # type: ignore[call-overload]

    def look(self) -> QueueSeen:
        with mapped(f"describe the queue {self._url}"):
            seen = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["All"])["Attributes"]
        waiting = int(seen.get("ApproximateNumberOfMessages", 0))
        try:
            rules = self._events.list_rule_names_by_target(TargetArn=seen["QueueArn"])["RuleNames"]
            off = tuple(rule for rule in rules if self._events.describe_rule(Name=rule).get("State") == "DISABLED")
        except (*NO_ANSWER, ClientError) as error:
            return QueueSeen(waiting, rules_unknown=_short(error))
        return QueueSeen(waiting, tuple(rules), off)

    def send(self, body: str) -> None:
        with mapped(f"send to the queue {self._url}"):
            self._sqs.send_message(QueueUrl=self._url, MessageBody=body)


def _answer(action: str, call: Callable[[], Any]) -> Tried:
    """Make a call that changes nothing. `said` is empty for one that was carried out."""
    try:
        call()
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == DRY:
            return Tried(action, Permitted.YES, code)
        permitted = Permitted.NO if code in REFUSALS else Permitted.UNKNOWN
        return Tried(action, permitted, _short(error))
    except (*NO_ANSWER, AccessRefused) as error:
        return Tried(action, Permitted.UNKNOWN, _short(error))
    return Tried(action, Permitted.YES)


def _template(name: str) -> dict[str, str]:
    return {"LaunchTemplateId" if name.startswith("lt-") else "LaunchTemplateName": name}


def _short(error: Exception) -> str:
    if isinstance(error, ResponseParserError):
        return "no clear answer"
    return " ".join(str(error).split())[:200]
