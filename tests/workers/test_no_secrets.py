"""Planted secrets are looked for wherever an incident leaves words: histories, search attributes, logs, pages, command lines.

A node falls ill, one is reported though it is well, one takes no key of ours; the pager, whose address is secret, refuses first.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import httpx
import pytest
from temporalio.client import Client

from activities.names import incident_id
from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.lab.test_every_trigger import heard
from tests.workers.test_intake_alerts import alert
from tests.workers.test_run_in_lab import TREE, ended, hotspare
from workers.connection import connect
from workers.settings import load_settings

AWS_SECRET = "planted-aws-secret-9b1f0c"
AWS_TOKEN = "planted-session-token-77d2"
PAGER_TOKEN = "planted-pager-token-51aa"
INTAKE_TOKEN = "planted-intake-token-c0ffee-0123456789"


@pytest.fixture
async def pager() -> AsyncIterator[str]:
    """A pager that takes each second post; gives its address."""
    posts: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        posts.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 " + (b"503 No" if len(posts) % 2 else b"200 OK") + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hooks/{PAGER_TOKEN}"
    assert any(PAGER_TOKEN.encode() in post for post in posts), "nobody was paged"


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pager: str) -> AsyncIterator[Lab]:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=3, spares=0, boot_s=0.2)) as up:
        for name, value in up.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_SECRET)
        monkeypatch.setenv("AWS_SESSION_TOKEN", AWS_TOKEN)
        (up.folder / "intake.token").write_text(INTAKE_TOKEN + "\n")
        config = up.folder / "hotspare.toml"
        text = config.read_text().replace("[notify]\n", f'[notify]\nurls = ["{pager}"]\n')
        config.write_text(text.replace('"act"', '"approve"', 1))
        yield up


def secrets_of(lab: Lab) -> dict[str, str]:
    """Every secret by what it is: what somebody who reads it could use, and the beginning of what is long."""
    key = (lab.folder / "ssh" / "id_ed25519").read_text().splitlines()
    return {
        "AWS secret": AWS_SECRET,
        "AWS session token": AWS_TOKEN,
        "pager's address": PAGER_TOKEN,
        "intake token": INTAKE_TOKEN,
        "private key": key[2][:40],
        "private key's place": "id_ed25519",
        "encryption key": _encryption_key(lab),
    }


def _encryption_key(lab: Lab) -> str:
    file = lab.folder / "codec.keys"
    return file.read_text().split()[1] if file.exists() else "no encryption key in this run"


def found_in(text: str, secrets: dict[str, str]) -> list[str]:
    """The secrets that stand in a text, plain or in one of its words in base64."""
    whole = text + "".join(_decoded(word) for word in text.replace('"', " ").split() if len(word) >= 16)
    return [what for what, secret in secrets.items() if secret in whole]


def _decoded(word: str) -> str:
    try:
        return base64.b64decode(word, validate=True).decode("utf-8", "replace")
    except ValueError:
        return ""


class CommandLines:
    """The command lines of a process and of all its descendants, looked at as often as there is time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.seen: set[str] = set()

    async def look(self, until: asyncio.Event) -> None:
        while not until.is_set():
            for pid in _family(self._pid):
                with contextlib.suppress(OSError):
                    self.seen.add(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
            await asyncio.sleep(0.05)


def _family(pid: int) -> list[int]:
    family, parents = [pid], [pid]
    while parents:
        children: list[int] = []
        for parent in parents:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{parent}/task").iterdir():
                    children += [int(word) for word in (task / "children").read_text().split()]
        family, parents = family + children, children
    return family


@asynccontextmanager
async def running(log: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """`hotspare run --verbose` with its log in a file, once it is up."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "workers.launch", "run", "--json", "--verbose"),
            env={**os.environ, "PYTHONPATH": str(TREE)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    up: dict[str, Any] = {}
    try:
        while len(up) < 3:
            line = await process.stdout.readline()
            assert line, log.read_text()[-3000:]
            up[json.loads(line)["up"]] = json.loads(line)
        yield process, up
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


async def what_temporal_keeps(client: Client) -> dict[str, str]:
    """History, description and search attributes of every workflow."""
    kept = {}
    async for one in client.list_workflows():
        handle = client.get_workflow_handle(one.id, run_id=one.run_id)
        described = await handle.describe()
        kept[one.id] = (await handle.fetch_history()).to_json() + str(described.raw_description) + str(one.search_attributes)
    return kept


def shut_out_of(lab: Lab, name: str) -> None:
    """Let our configuration have a key for this node that the node does not take."""
    configuration, other = lab.folder / "ssh" / "ssh_config", lab.folder / "ssh" / "id_ed25519_other"
    other.touch(0o600)
    other.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key("openssh"))
    before, everyone = configuration.read_text().split("Host *\n", 1)
    own = everyone.replace("id_ed25519", other.name)
    configuration.write_text(f"{before}Host {name}\n{own}\nHost * !{name}\n{everyone}")


async def say(*words: str) -> str:
    """Type a command that succeeds, and return what it said."""
    process = await hotspare(*words)
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    return out.decode() + errors.decode()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_no_secret_is_in_a_history_a_log_a_page_or_a_command_line(lab: Lab, tmp_path: Path, encrypted: bool) -> None:
    if encrypted:
        config = lab.folder / "hotspare.toml"
        config.write_text(config.read_text() + f'\n[codec]\nenabled = true\nkeys_file = "{lab.folder / "codec.keys"}"\n')
        await (await hotspare("codec-key")).communicate()
    said = [await say("init", "--yes", "--json")]
    secrets = secrets_of(lab)
    shut_out_of(lab, "node-3")
    log, stop = tmp_path / "log", asyncio.Event()
    reader, client = await connect(codec=load_settings().codec), await connect()
    async with running(log) as (process, up):
        lines = CommandLines(process.pid)
        looking = asyncio.ensure_future(lines.look(stop))
        await lab.inject("node-1", Fault(xid=79))
        body = {"version": "4", "alerts": [alert({"Hostname": "node-2", "xid": "48"})]}
        async with httpx.AsyncClient() as sender:
            for token, status in (("wrong", 403), (INTAKE_TOKEN, 200)):
                answer = await sender.post(up["intake"]["url"], json=body, headers={"Authorization": f"Bearer {token}"})
                assert answer.status_code == status
                said.append(answer.text)
        said.append(await say("report", "node-3", "--xid", "79", "--json"))
        await heard(reader.get_workflow_handle(incident_id("lab", lab.nodes["node-3"].instance_id)), "diagnosed")
        await heard(reader.get_workflow_handle(incident_id("lab", lab.nodes["node-1"].instance_id)), "asks a person")
        said.append(await say("approve", "node-1", "--json"))
        # The job's burn-in is out of reach with node-3, so its incidents stay open; one has ended.
        await heard(reader.get_workflow_handle(incident_id("lab", lab.nodes["node-1"].instance_id)), "back in service")
        await ended(reader, lab, "node-2")
        said += [await say(*words) for words in (("status",), ("why", "node-1", "--json"), ("why", "node-3", "--json"))]
        kept = await what_temporal_keeps(client)
        stop.set()
        await looking
    assert lab.endpoint.count("RebootInstances") == 1
    assert {one for one in kept if found_in(kept[one], secrets)} == set()
    assert found_in(log.read_text(), secrets) == []
    assert found_in("\n".join(said), secrets) == []
    assert found_in((lab.folder / "pages.jsonl").read_text(), secrets) == []
    assert any("workers.launch run" in line for line in lines.seen)
    assert found_in("\n".join(lines.seen), secrets) == []


def test_a_secret_is_found_where_it_is() -> None:
    secrets = {"what": AWS_SECRET}
    assert found_in(f"key={AWS_SECRET}", secrets) == ["what"]
    assert found_in(json.dumps({"data": base64.b64encode(f'{{"key": "{AWS_SECRET}"}}'.encode()).decode()}), secrets) == ["what"]
    assert found_in(AWS_SECRET[:-1], secrets) == []
