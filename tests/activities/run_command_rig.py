"""Run Command on loopback for tests: moto's documents and buckets, the lab's Run Command, a loopback node as its only node."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from activities.clients.run_command_boto3 import RunCommandBoto3
from activities.clients.ssm_access import SsmAccess
from activities.settings import AwsRole, AwsSettings
from activities.settings_access import AccessSettings, RunCommandSettings
from infra.lab.ec2_calls import Answer, read_call
from infra.lab.moto_instances import forget_everything
from infra.lab.node_root import install_hotspare
from infra.lab.options import REGION
from infra.lab.run_command import OPERATIONS, SERVICE, RunCommand
from infra.ssm.documents import ACTIONS, text_of
from tests.activities.loopback_node import LoopbackNode

BUCKET = "outputs"


class LoopbackManaged:
    """The loopback node as Run Command sees it. `up` is whether its agent answers."""

    def __init__(self, loopback: LoopbackNode) -> None:
        self._loopback = loopback
        self.name, self.instance_id = loopback.node.name, loopback.node.instance_id
        self.state = "Online"

    def agent(self) -> str:
        return self.state

    async def until_online(self) -> None:
        while self.state != "Online":  # noqa: ASYNC110  # set from the test's thread
            await asyncio.sleep(0.01)

    async def start(self, command: list[str]) -> asyncio.subprocess.Process:
        root, pipe = self._loopback.root, asyncio.subprocess.PIPE
        environment = {
            "PATH": f"{self._loopback.bin}:{os.environ['PATH']}",
            "HOME": str(self._loopback.home),
            "HOTSPARE_HOST_ROOT": str(root),
        }
        return await asyncio.create_subprocess_exec(
            *command, cwd=root, env=environment, stdout=pipe, stderr=pipe, start_new_session=True
        )


class RunCommandRig:
    """The endpoint with one node.

    `failures` are error codes for the next calls of an operation, `lost_answers` operations whose next call is carried out and
    answered with an error.
    """

    def __init__(self, loopback: LoopbackNode) -> None:
        forget_everything()
        install_hotspare(loopback.root)
        self.loopback, self.node = loopback, LoopbackManaged(loopback)
        self.failures: list[tuple[str, str]] = []
        self.lost_answers: list[str] = []
        self.calls: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._threads = [threading.Thread(target=self._loop.run_forever, daemon=True)]
        self.service = RunCommand(self._loop, lambda: [self.node], self._put, REGION)
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Quiet)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self._threads.append(threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True))
        for thread in self._threads:
            thread.start()
        self._patch = pytest.MonkeyPatch()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self._patch.setenv(name, "admin")
        ssm, self._s3 = self.client("ssm"), self.client("s3")
        for name in ACTIONS:
            ssm.create_document(Name=name, Content=text_of(name), DocumentType="Command")
        self._s3.create_bucket(Bucket=BUCKET)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def client(self, service: str) -> Any:
        """A client of somebody who may do everything."""
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="admin",
            aws_secret_access_key="admin",
        )

    def access(self, *, bucket: str = "", **more: Any) -> SsmAccess:
        """The product's access to the node."""
        settings = AccessSettings(kind="ssm", ssm=RunCommandSettings(bucket=bucket, poll_s=0.02, answer_s=20.0), **more)
        aws = AwsSettings(region=REGION, endpoint_url=self.url, roles={"ssh": AwsRole()})
        return SsmAccess(RunCommandBoto3(aws, settings.ssm), self.loopback.node, settings)

    def go_down(self) -> None:
        """The node loses power; the service waits for it, though not long."""
        self.node.state, self.service.deliver_at_most_s = "ConnectionLost", 0.02
        self.loopback.down()

    def come_up(self) -> None:
        """Another boot of the node."""
        self.loopback.new_boot_id()
        self.node.state, self.service.deliver_at_most_s = "Online", None

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.service.close(), self._loop).result(30)
        self._server.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._threads:
            thread.join()
        self._server.server_close()
        self._loop.close()
        self._patch.undo()

    def _put(self, bucket: str, key: str, content: bytes) -> None:
        self._s3.put_object(Bucket=bucket, Key=key, Body=content)

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        call = read_call(environ)
        if call.service != SERVICE or call.operation not in OPERATIONS:
            return list(self._moto(environ, start_response))
        self.calls.append(call.operation)
        failing = next((one for one in self.failures if one[0] == call.operation), None)
        if failing is not None:
            self.failures.remove(failing)
        answer = self.service.answer(call.operation, environ) if failing is None else refusal(failing[1])
        if call.operation in self.lost_answers:
            self.lost_answers.remove(call.operation)
            answer = refusal("InternalServerError", 500)
        start_response(f"{answer.status} {'OK' if answer.status < 400 else 'Error'}", list(answer.headers))
        return [answer.body]


def refusal(code: str, status: int = 400) -> Answer:
    """An error as Systems Manager words it."""
    body = json.dumps({"__type": code, "message": "told to fail"}).encode()
    return Answer(status, body, (("Content-Type", "application/x-amz-json-1.1"),))


class _Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""
