"""Run Command of AWS Systems Manager through boto3; long outputs come from the bucket into which the node's agent puts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from botocore.config import Config
from botocore.exceptions import ClientError

from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import ONCE, PATIENT, mapped
from activities.errors import AccessRefused, BadInput, CapabilityMissing, NodeUnreachable, ProviderBusy
from activities.run_command import CARRIED, AgentSeen, Invocation
from activities.settings import AwsSettings
from activities.settings_access import RunCommandSettings

NO_AGENT = "InvalidInstanceId"
"""No agent is registered or heard of, or the instance is not running. Source: SSM API Reference, SendCommand, "Errors"."""

NOT_YET = "InvocationDoesNotExist"
"""What GetCommandInvocation says right after SendCommand now and then. Source: its page, on eventual consistency."""

ABSENT = frozenset({"NoSuchKey", "404", "NotFound"})


class RunCommandBoto3:
    """`RunCommandClient` on AWS or on an endpoint that speaks its protocol."""

    def __init__(self, aws: AwsSettings, settings: RunCommandSettings, role: str = "") -> None:
        """`role` is the worker role whose credentials are used."""
        self._settings = settings
        session = session_of(aws, role)
        where: dict[str, Any] = {"region_name": aws.region or None, "endpoint_url": aws.endpoint_url or None}
        with mapped("open the SSM client"):
            self._read = session.client("ssm", config=PATIENT, **where)
            self._change = session.client("ssm", config=ONCE, **where)
            path_style = Config(s3={"addressing_style": "path"}) if aws.endpoint_url else Config()
            self._s3 = session.client("s3", config=PATIENT.merge(path_style), **where)

    def send(self, document: str, instance_id: str, parameters: Mapping[str, str], deliver_s: int) -> str:
        output = {"OutputS3BucketName": self._settings.bucket, "OutputS3KeyPrefix": self._settings.prefix}
        request: dict[str, Any] = {
            "DocumentName": document,
            "InstanceIds": [instance_id],
            "Parameters": {name: [value] for name, value in parameters.items()},
            "TimeoutSeconds": deliver_s,
            **(output if self._settings.bucket else {}),
        }
        with _mapped(f"send {document} to {instance_id}", instance_id):
            return str(self._change.send_command(**request)["Command"]["CommandId"])

    def look(self, command_id: str, instance_id: str) -> Invocation | None:
        try:
            with _mapped(f"look at command {command_id} on {instance_id}", instance_id):
                seen = self._read.get_command_invocation(CommandId=command_id, InstanceId=instance_id)
        except _NotYet:
            return None
        return Invocation(
            state=str(seen.get("StatusDetails") or seen["Status"]).replace(" ", ""),
            response_code=seen.get("ResponseCode", -1),
            stdout=seen.get("StandardOutputContent", ""),
            stderr=seen.get("StandardErrorContent", ""),
            output_url=seen.get("StandardOutputUrl", ""),
        )

    def cancel(self, command_id: str, instance_id: str) -> None:
        with _mapped(f"cancel command {command_id} on {instance_id}", instance_id):
            self._change.cancel_command(CommandId=command_id, InstanceIds=[instance_id])

    def agent(self, instance_id: str) -> AgentSeen | None:
        with _mapped(f"look for the SSM Agent of {instance_id}", instance_id):
            answer = self._read.describe_instance_information(Filters=[{"Key": "InstanceIds", "Values": [instance_id]}])
        found = answer.get("InstanceInformationList", [])
        return AgentSeen(ping=found[0].get("PingStatus", ""), last_ping=found[0].get("LastPingDateTime")) if found else None

    def whole_output(self, invocation: Invocation) -> str:
        bucket = self._settings.bucket
        if not bucket:
            raise CapabilityMissing(
                f"its output is longer than the {CARRIED} characters that Run Command carries; set access.ssm.bucket"
            )
        key = _key_of(invocation.output_url, bucket)
        try:
            with mapped(f"read {key} in bucket {bucket}"):
                return self._s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode("utf-8", "replace")
        except BadInput as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and cause.response.get("Error", {}).get("Code") in ABSENT:
                raise ProviderBusy(
                    f"s3://{bucket}/{key} is not there (yet); the node's instance profile needs s3:PutObject there: {error}"
                ) from error
            raise


class _NotYet(ProviderBusy):
    """The service does not know of the command everywhere yet."""


@contextmanager
def _mapped(what: str, instance_id: str) -> Iterator[None]:
    """Turn boto3's errors into ours: those of Run Command here, the others as everywhere."""
    with mapped(what):
        try:
            yield
        except ClientError as error:
            _explain(what, instance_id, error)


def _explain(what: str, instance_id: str, error: ClientError) -> NoReturn:
    code, said = (error.response.get("Error", {}).get(key, "") for key in ("Code", "Message"))
    if code == NO_AGENT:
        raise NodeUnreachable(f"SSM: {what}: no agent to send to on {instance_id}: {said}") from error
    if code == NOT_YET:
        raise _NotYet(f"SSM: {what}: {code}") from error
    if code in ("InvalidDocument", "InvalidDocumentVersion"):
        raise AccessRefused(
            f"SSM: {what}: {code}: {said}; Terraform makes the documents (run_command = true), access.ssm names them"
        ) from error
    if code == "InvalidParameters":
        raise AccessRefused(f"SSM: {what}: {said}; the document is of another release: apply Terraform again") from error
    raise error


def _key_of(url: str, bucket: str) -> str:
    """Key of an object by its address, which has the bucket in its path or in its host name."""
    parts = urlsplit(url)
    path = unquote(parts.path).lstrip("/")
    if not path:
        raise ProviderBusy(f"the service tells no place in bucket {bucket} where the whole output is")
    return path.removeprefix(f"{bucket}/") if not parts.netloc.startswith(f"{bucket}.") else path
