"""The codec server over HTTP: who may read, what comes back, and that a page of somebody else reads nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.workers.conftest import temporal_binary
from workers.codec.codec import EncryptionCodec
from workers.codec.keys import add_key
from workers.codec.server import CodecServer
from workers.connection import encrypting
from workers.http_server import bind, serve_app
from workers.intake.token import TokenFile, write_token
from workers.sections import CodecSettings

UI = "http://localhost:8233"
PLAIN = {"metadata": {"encoding": base64.b64encode(b"json/plain").decode()}, "data": base64.b64encode(b'"hello"').decode()}


class Reader:
    """A running codec server and its files."""

    def __init__(self, url: str, settings: CodecSettings) -> None:
        self.url = url
        self.codec = EncryptionCodec(settings.keys_file)
        self.token_file = settings.token_file
        self.client = httpx.AsyncClient(base_url=url, verify=False)

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}

    def encrypted(self, text: str) -> dict[str, Any]:
        [made] = self.codec.encrypt(pydantic_data_converter.payload_converter.to_payloads([text]))
        return {
            "metadata": {key: base64.b64encode(value).decode() for key, value in made.metadata.items()},
            "data": base64.b64encode(made.data).decode(),
        }

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(path, content=content, headers={"Content-Type": "application/json", **headers})


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    settings = CodecSettings(port=0, keys_file=tmp_path / "codec.keys", token_file=tmp_path / "codec.token")
    add_key(settings.keys_file)
    write_token(settings.token_file)
    stop = asyncio.Event()
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    listening = bind(settings.host, settings.port, "codec server", "codec")
    server = CodecServer(EncryptionCodec(settings.keys_file), TokenFile(settings.token_file), settings)
    serving = asyncio.ensure_future(serve_app(server.app(), listening, stop, up.set_result))
    running = Reader(await up, settings)
    try:
        yield running
    finally:
        await running.client.aclose()
        stop.set()
        await serving
        listening.close()


async def test_what_encode_gives_decode_takes_back_and_plain_payloads_pass(reader: Reader) -> None:
    coded = (await reader.post("/encode", {"payloads": [PLAIN]}, **reader.bearer)).json()["payloads"]
    assert coded[0]["data"] != PLAIN["data"]
    answer = await reader.post("/decode", {"payloads": [*coded, PLAIN, reader.encrypted("hello")]}, **reader.bearer)
    assert answer.status_code == 200
    assert answer.json()["payloads"] == [PLAIN, PLAIN, PLAIN]


async def test_without_the_token_nobody_reads(reader: Reader) -> None:
    body = {"payloads": [reader.encrypted("hello")]}
    for path in ("/decode", "/encode"):
        assert (await reader.post(path, body)).status_code == 401
        assert (await reader.post(path, body, Authorization="Bearer wrong")).status_code == 403
        assert (await reader.post(path, body, Authorization="Basic eDp5")).status_code == 401
    reader.token_file.unlink()
    assert (await reader.post("/decode", body, Authorization="Bearer x")).status_code == 503


async def test_the_browser_is_told_that_only_the_ui_may_ask(reader: Reader) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type,x-namespace"}
    answer = await reader.client.options("/decode", headers={"Origin": UI, **asked})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == UI
    assert "x-namespace" in answer.headers["access-control-allow-headers"]
    other = await reader.client.options("/decode", headers={"Origin": "http://evil.example", **asked})
    assert other.status_code == 400
    assert "access-control-allow-origin" not in other.headers


async def test_a_browser_that_logged_in_reads_from_pages_of_the_ui_alone(reader: Reader) -> None:
    token = reader.token_file.read_text().strip()
    assert "<form" in (await reader.client.get("/login")).text
    assert (await reader.client.post("/login", data={"token": "wrong"})).status_code == 403
    assert not reader.client.cookies
    answer = await reader.client.post("/login", data={"token": token})
    assert answer.status_code == 200
    assert "httponly" in answer.headers["set-cookie"].lower()
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert token not in answer.headers["set-cookie"]
    body = {"payloads": [reader.encrypted("hello")]}
    assert (await reader.post("/decode", body, Origin=UI)).json()["payloads"] == [PLAIN]
    assert (await reader.post("/decode", body, Origin="http://evil.example")).status_code == 401
    assert (await reader.post("/decode", body)).status_code == 401


@pytest.mark.parametrize("body", [b"", b"nonsense", b'{"payloads": 3}', b'{"payloads": [{"data": 1}]}', b"\xff\xfe"])
async def test_what_is_no_list_of_payloads_is_a_400(reader: Reader, body: bytes) -> None:
    assert (await reader.post("/decode", body, **reader.bearer)).status_code == 400


async def test_a_payload_of_an_unknown_key_is_named(reader: Reader) -> None:
    stranger = reader.encrypted("hello")
    stranger["metadata"]["encryption-key-id"] = base64.b64encode(b"2020-01-01").decode()
    answer = await reader.post("/decode", {"payloads": [stranger]}, **reader.bearer)
    assert answer.status_code == 422
    assert "2020-01-01" in answer.json()["error"]


async def test_health_needs_no_token(reader: Reader) -> None:
    assert (await reader.client.get("/healthz")).json() == {"status": "ok"}


async def test_the_temporal_command_shows_an_encrypted_input_through_it(reader: Reader, client: Client) -> None:
    workflow_id = f"codec-{os.urandom(4).hex()}"
    coded = Client(client.service_client, namespace=client.namespace, data_converter=encrypting(reader.codec))
    await coded.start_workflow("Nobody", {"node": "node-7"}, id=workflow_id, task_queue=workflow_id, static_summary="on node-7")
    auth = {"TEMPORAL_CODEC_ENDPOINT": reader.url, "TEMPORAL_CODEC_AUTH": reader.bearer["Authorization"]}
    shown = {}
    for name, environment in (("with", auth), ("without", {})):
        process = await asyncio.create_subprocess_exec(
            *(temporal_binary(), "workflow", "show", "-w", workflow_id, "--output", "json"),
            *("--address", client.service_client.config.target_host),
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        shown[name] = out.decode()
    plain = base64.b64encode(b'{"node":"node-7"}').decode()
    assert plain in shown["with"]
    assert plain not in shown["without"]
    assert base64.b64encode(b"binary/encrypted").decode() in shown["without"]
