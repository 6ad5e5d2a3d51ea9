"""AWS calls as they arrive over HTTP: reading the query protocol, and writing the answers that the lab gives itself."""

from __future__ import annotations

import base64
import io
import re
import urllib.parse
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

_READ_ONLY = ("Describe", "Get", "List", "Head", "Receive")
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
_INSTANCE_KEY = re.compile(r"(InstanceId|ResourceId|InstanceIds)(\.(member\.)?\d+)?")
_CREDENTIAL = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/")
_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


@dataclass(frozen=True)
class AwsCall:
    """One call: service and operation as AWS names them, its parameters, and the instances it is about."""

    service: str
    operation: str
    parameters: dict[str, str] = field(default_factory=dict)
    instance_ids: tuple[str, ...] = ()
    region: str = ""

    @property
    def mutates(self) -> bool:
        """Whether the call changes something."""
        return not self.operation.startswith(_READ_ONLY)


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/xml;charset=UTF-8"),)


def read_call(environ: dict[str, Any]) -> AwsCall:
    """Read the call from a WSGI environment and leave the body to be read again."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length)
    environ["wsgi.input"] = io.BytesIO(body)
    credential = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    region, service = credential.groups() if credential else ("", "")
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    parameters: dict[str, str] = {}
    if target:
        operation = target.rsplit(".", 1)[-1]
    else:
        text = body.decode("utf-8", "replace") if "json" not in environ.get("CONTENT_TYPE", "") else ""
        parameters = dict(urllib.parse.parse_qsl(text + "&" + environ.get("QUERY_STRING", ""), keep_blank_values=True))
        operation = parameters.get("Action") or _rest_operation(environ)
    ids = (value for key, value in parameters.items() if _INSTANCE_KEY.fullmatch(key) and _INSTANCE_ID.fullmatch(value))
    return AwsCall(service, operation, parameters, tuple(dict.fromkeys(ids)), region)


def _rest_operation(environ: dict[str, Any]) -> str:
    """Name of a REST call, as EKS has them: its method and path, a GET as a Get."""
    method, path = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
    return f"{'Get' if method == 'GET' else method} {path}"


def error(status: int, code: str, message: str) -> Answer:
    """An error as the EC2 API writes it."""
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{escape(code)}</Code>'
        f"<Message>{escape(message)}</Message></Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    )
    return Answer(status, text.encode())


def console_output(instance_id: str, output: str) -> Answer:
    """The answer to GetConsoleOutput."""
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<GetConsoleOutputResponse xmlns="{_NAMESPACE}">'
        f"<requestId>{uuid.uuid4()}</requestId><instanceId>{instance_id}</instanceId>"
        f"<timestamp>{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%S.000Z')}</timestamp>"
        f"<output>{base64.b64encode(output.encode()).decode()}</output></GetConsoleOutputResponse>"
    )
    return Answer(200, text.encode())


@dataclass(frozen=True)
class StatusRow:
    """Status checks of one instance, as EC2 words them."""

    instance_id: str
    state: str
    system: str
    instance: str


def instance_statuses(rows: list[StatusRow]) -> Answer:
    """The answer to DescribeInstanceStatus."""
    items = "".join(
        f"<item><instanceId>{row.instance_id}</instanceId><instanceState><name>{row.state}</name></instanceState>"
        f"<systemStatus><status>{row.system}</status></systemStatus>"
        f"<instanceStatus><status>{row.instance}</status></instanceStatus></item>"
        for row in rows
    )
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<DescribeInstanceStatusResponse xmlns="{_NAMESPACE}">'
        f"<requestId>{uuid.uuid4()}</requestId><instanceStatusSet>{items}</instanceStatusSet></DescribeInstanceStatusResponse>"
    )
    return Answer(200, text.encode())


def instance_ids_in(body: bytes) -> tuple[str, ...]:
    """Instance ids in the answer to RunInstances."""
    return tuple(dict.fromkeys(re.findall(r"<instanceId>(i-[0-9a-f]+)</instanceId>", body.decode())))
