"""Run Command of Systems Manager in the lab: really runs the document's script on the node, and tells of it as the service does.

moto has documents but runs nothing. What is imitated, and from where: states and their names (Systems Manager User Guide,
"Understanding command statuses"), output cut at 24,000 and 8,000 characters and an invocation that is not known at once (SSM API
Reference, GetCommandInvocation), refusal of nodes without an agent and of a delivery time below 30 s (SendCommand), values and
patterns of parameters (User Guide, "Data elements and parameters"), whole outputs in S3 (User Guide, "Writing command output").
Unlike there, an agent that is not heard of shows at once, not after minutes.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from infra.lab.ec2_calls import Answer
from infra.lab.holds import Hold, Holds
from infra.lab.moto_instances import document
from infra.lab.processes import kill_group

SERVICE = "ssm"
OUT_LIMIT, ERR_LIMIT = 24_000, 8_000
OPERATIONS = frozenset(
    {"SendCommand", "GetCommandInvocation", "ListCommandInvocations", "CancelCommand", "DescribeInstanceInformation"}
)
"""What is answered here; documents are moto's."""

ACCOUNT = "123456789012"
_ENDED = ("Success", "Failed", "Cancelled", "Delivery Timed Out", "Execution Timed Out")
_STATUS = {"In Progress": "InProgress", "Delivery Timed Out": "TimedOut", "Execution Timed Out": "TimedOut"}


class Managed(Protocol):
    """A node with an agent on it."""

    name: str
    instance_id: str

    def agent(self) -> str:
        """Return Online, ConnectionLost, or empty where the instance is stopped or gone."""
        ...

    async def until_online(self) -> None:
        """Wait until the agent takes commands."""
        ...

    async def start(self, command: list[str]) -> asyncio.subprocess.Process:
        """Start a process of the node, with its output to be read."""
        ...


@dataclass
class Sent:
    """A command for one node, and what has become of it."""

    node: Managed
    document: str
    parameters: dict[str, str]
    bucket: str
    prefix: str
    deliver_s: float
    command_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    details: str = "Pending"
    looks: int = 0
    response_code: int = -1
    stdout: str = ""
    stderr: str = ""
    process: asyncio.subprocess.Process | None = None

    @property
    def key(self) -> str:
        """Key of its whole output in the bucket."""
        prefix = f"{self.prefix}/" if self.prefix else ""
        return f"{prefix}{self.command_id}/{self.node.instance_id}/awsrunShellScript/hotspare/stdout"


class _Refused(Exception):
    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        self.code = code


class RunCommand:
    """The service. `sent` are the commands that it took, in order; `unseen_looks` how often a new one is not known yet.

    `holds_back_output`: agents may not write to the bucket, which they say in their own log alone. `without_agent` are instances
    whose agent never registered.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        nodes: Callable[[], Iterable[Managed]],
        put: Callable[[str, str, bytes], None],
        region: str,
    ) -> None:
        """`put` writes an object (bucket, key, content) into S3."""
        self._loop, self._nodes, self._put, self._region = loop, nodes, put, region
        self.sent: list[Sent] = []
        self.holds: Holds[Sent] = Holds(loop)
        self.without_agent: set[str] = set()
        self.unseen_looks = 1
        self.holds_back_output = False
        self.deliver_at_most_s: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self, node: str, check: str) -> Hold:
        """Hold the next command of this name before it is delivered to a node."""
        return self.holds.add(f"{node}: {check}", lambda sent: sent.node.name == node and sent.parameters.get("Check") == check)

    def count(self, node: str, check: str = "") -> int:
        """How many commands of a name, or all, were sent to a node."""
        return sum(sent.node.name == node and check in ("", sent.parameters.get("Check")) for sent in self.sent)

    async def close(self) -> None:
        """End what runs."""
        self.holds.drop_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def answer(self, operation: str, environ: dict[str, Any]) -> Answer:
        """Answer one call. Called from a server thread."""
        body = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or b"{}")
        calls: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "SendCommand": self._send,
            "GetCommandInvocation": self._get,
            "ListCommandInvocations": self._list,
            "CancelCommand": self._cancel,
            "DescribeInstanceInformation": self._describe,
        }
        try:
            return _json(200, calls[operation](body))
        except _Refused as refused:
            return _json(400, {"__type": refused.code, "Message": str(refused), "message": str(refused)})

    def _send(self, body: dict[str, Any]) -> dict[str, Any]:
        instance_ids, deliver_s = body.get("InstanceIds", []), body.get("TimeoutSeconds", 3600)
        if not 30 <= deliver_s <= 2592000:
            raise _Refused("ValidationException", "TimeoutSeconds: 30 to 2592000")
        made = _document(body["DocumentName"])
        parameters = _checked(made, body.get("Parameters", {}))
        node = self._managed(instance_ids)
        sent = Sent(
            node,
            body["DocumentName"],
            parameters,
            body.get("OutputS3BucketName", ""),
            body.get("OutputS3KeyPrefix", ""),
            min(deliver_s, self.deliver_at_most_s or deliver_s),
        )
        self.sent.append(sent)
        step = made["mainSteps"][0]["inputs"]
        script = "\n".join(_filled(line, parameters) for line in step["runCommand"])
        self._loop.call_soon_threadsafe(self._begin, sent, script, float(step["timeoutSeconds"]))
        return {"Command": {"CommandId": sent.command_id, "DocumentName": sent.document, "Status": "Pending"}}

    def _managed(self, instance_ids: list[str]) -> Managed:
        known = {node.instance_id: node for node in self._nodes()}
        for one in instance_ids:
            if one not in known or one in self.without_agent or known[one].agent() == "":
                raise _Refused("InvalidInstanceId", f"Instances [[{one}]] not in a valid state for account {ACCOUNT}")
        if len(instance_ids) != 1:
            raise _Refused("ValidationException", "the lab sends to one node at a time")
        return known[instance_ids[0]]

    def _begin(self, sent: Sent, script: str, limit_s: float) -> None:
        task = asyncio.ensure_future(self._carry_out(sent, script, limit_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, sent: Sent, script: str, limit_s: float) -> None:
        hold = self.holds.take(sent)
        if hold is not None and not await hold.stop_here():
            sent.details = "Undeliverable"
            return
        if sent.node.agent() != "Online":
            sent.details = "Delayed"
        try:
            async with asyncio.timeout(sent.deliver_s):
                await sent.node.until_online()
        except TimeoutError:
            sent.details = "Delivery Timed Out"
            return
        if sent.details == "Cancelled":
            return
        sent.details = "In Progress"
        sent.process = process = await sent.node.start(["/bin/sh", "-c", script])
        try:
            async with asyncio.timeout(limit_s):
                out, err = await process.communicate()
        except TimeoutError:
            kill_group(process)
            sent.details = "Execution Timed Out"
            return
        await self._end(sent, out, err, process.returncode or 0)

    async def _end(self, sent: Sent, out: bytes, err: bytes, status: int) -> None:
        if sent.details == "Cancelled":
            return
        if status < 0 and sent.node.agent() != "Online":
            return  # it went down with its node, and nobody has told the service
        if sent.bucket and not self.holds_back_output:
            await asyncio.to_thread(self._put, sent.bucket, sent.key, out)
        sent.stdout = out.decode("utf-8", "replace")[:OUT_LIMIT]
        sent.stderr = err.decode("utf-8", "replace")[:ERR_LIMIT]
        sent.response_code = status
        sent.details = "Failed" if status else "Success"

    def _get(self, body: dict[str, Any]) -> dict[str, Any]:
        sent = self._find(body["CommandId"], body["InstanceId"])
        sent.looks += 1
        if sent.looks <= self.unseen_looks:
            raise _Refused("InvocationDoesNotExist")
        ended = sent.details in ("Success", "Failed")
        return {
            "CommandId": sent.command_id,
            "InstanceId": sent.node.instance_id,
            "DocumentName": sent.document,
            "ResponseCode": sent.response_code,
            "Status": _STATUS.get(sent.details, sent.details),
            "StatusDetails": sent.details.replace(" ", ""),
            "StandardOutputContent": sent.stdout if ended else "",
            "StandardErrorContent": sent.stderr if ended else "",
            "StandardOutputUrl": self._url(sent) if ended and sent.bucket else "",
        }

    def _url(self, sent: Sent) -> str:
        return f"https://s3.{self._region}.amazonaws.com/{sent.bucket}/{sent.key}"

    def _list(self, body: dict[str, Any]) -> dict[str, Any]:
        found = [one for one in self.sent if body.get("CommandId") in (None, one.command_id)]
        found = [one for one in found if body.get("InstanceId") in (None, one.node.instance_id)]
        return {
            "CommandInvocations": [
                {
                    "CommandId": one.command_id,
                    "InstanceId": one.node.instance_id,
                    "DocumentName": one.document,
                    "Status": _STATUS.get(one.details, one.details),
                    "StatusDetails": one.details.replace(" ", ""),
                }
                for one in found
            ]
        }

    def _cancel(self, body: dict[str, Any]) -> dict[str, Any]:
        sent = self._find(body["CommandId"], (body.get("InstanceIds") or [None])[0])
        if sent.details not in _ENDED:
            sent.details = "Cancelled"
            if sent.process is not None:
                self._loop.call_soon_threadsafe(kill_group, sent.process)
        return {}

    def _find(self, command_id: str, instance_id: str | None) -> Sent:
        for sent in self.sent:
            if sent.command_id == command_id and instance_id in (None, sent.node.instance_id):
                return sent
        raise _Refused("InvalidCommandId")

    def _describe(self, body: dict[str, Any]) -> dict[str, Any]:
        wanted = {value for one in body.get("Filters", []) if one["Key"] == "InstanceIds" for value in one["Values"]}
        found = [
            {
                "InstanceId": node.instance_id,
                "PingStatus": node.agent(),
                "LastPingDateTime": time.time() if node.agent() == "Online" else datetime(2026, 1, 1, tzinfo=UTC).timestamp(),
                "PlatformType": "Linux",
            }
            for node in self._nodes()
            if node.agent() and node.instance_id not in self.without_agent and (not wanted or node.instance_id in wanted)
        ]
        return {"InstanceInformationList": found}


def _document(name: str) -> dict[str, Any]:
    """The content of a document that somebody made at the endpoint."""
    content = document(name)
    if content is None:
        raise _Refused("InvalidDocument", f"Document {name} does not exist in your account")
    found: dict[str, Any] = json.loads(content)
    return found


def _checked(made: dict[str, Any], given: dict[str, list[str]]) -> dict[str, str]:
    """The values of the parameters, as far as the document allows them."""
    wanted = made.get("parameters", {})
    if unknown := sorted(set(given) - set(wanted)):
        raise _Refused("InvalidParameters", f"{', '.join(unknown)}: not in the document")
    values: dict[str, str] = {}
    for name, rule in wanted.items():
        value = given.get(name, [rule.get("default")])[0]
        if value is None:
            raise _Refused("InvalidParameters", f"{name}: is required")
        if "allowedValues" in rule and value not in rule["allowedValues"]:
            raise _Refused("InvalidParameters", f"{name}: {value} is not among the allowed values")
        if "allowedPattern" in rule and re.fullmatch(rule["allowedPattern"], value) is None:
            raise _Refused("InvalidParameters", f"{name}: does not match {rule['allowedPattern']}")
        values[name] = value
    return values


def _filled(line: str, parameters: dict[str, str]) -> str:
    """Put the values in, as text: what keeps a shell from reading them are the document's own rules."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: parameters[found.group(1)], line)


def _json(status: int, body: dict[str, Any]) -> Answer:
    return Answer(status, json.dumps(body).encode(), (("Content-Type", "application/x-amz-json-1.1"),))
