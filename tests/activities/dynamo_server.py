"""DynamoDB on loopback for tests: the lab's, with a table of its own for each test. Calls can be made to fail by name."""

from __future__ import annotations

import copy
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from activities.clients.dynamo_client import dynamo_client
from activities.clients.dynamo_memory import DynamoMemory
from activities.memory_table import create
from activities.settings import AwsSettings, StoreSettings
from infra.lab.dynamodb import OneAtATime
from infra.lab.ec2_calls import read_call
from infra.lab.options import REGION

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoServer:
    """Serves DynamoDB. `calls` counts what was carried out, `failing` are error codes that calls by that name get next."""

    def __init__(self) -> None:
        self._app = OneAtATime(DomainDispatcherApplication(create_backend_app))
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Quiet)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self._tables = 0
        self.aws = AwsSettings(region=REGION, endpoint_url=f"http://127.0.0.1:{self._server.server_port}")
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, list[tuple[int, str]]] = {}

    @cached_property
    def admin(self) -> DynamoDBClient:
        """Who makes the tables."""
        return dynamo_client(self.aws, StoreSettings(memory="dynamodb"), "", Config())

    @cached_property
    def _memory(self) -> DynamoMemory:
        return DynamoMemory(self.aws, StoreSettings(memory="dynamodb"))

    def store(self) -> StoreSettings:
        """Settings of a new table."""
        self._tables += 1
        store = StoreSettings(memory="dynamodb", table=f"memory-{id(self):x}-{self._tables}")
        create(self.admin, store.table)
        self.calls.clear()
        return store

    def memory(self) -> DynamoMemory:
        """Host memory in a new table. Clients are slow to make, so all share two."""
        made = copy.copy(self._memory)
        made._table = self.store().table
        return made

    def fail(self, operation: str, code: str, status: int = 400, times: int = 1) -> None:
        """Answer the next calls of a name with an error."""
        self.failing.setdefault(operation, []).extend([(status, code)] * times)

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        operation = read_call(environ).operation
        if waiting := self.failing.get(operation):
            status, code = waiting.pop(0)
            start_response(f"{status} Error", [("Content-Type", "application/x-amz-json-1.0")])
            return [json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "told to fail"}).encode()]
        self.calls[operation] += 1
        return self._app(environ, start_response)


class _Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""
