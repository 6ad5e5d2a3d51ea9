"""Encrypted payloads: nothing to read in what Temporal keeps, plain input still taken, private keys that can be rotated."""

from __future__ import annotations

import base64
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.errors import BadInput
from workers.codec.codec import EncryptionCodec, PayloadUnreadable
from workers.codec.keys import add_key, read_keys
from workers.connection import encrypting

SECRET = "node-7-of-project-halcyon"


def payload(text: str) -> Payload:
    [made] = pydantic_data_converter.payload_converter.to_payloads([text])
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    add_key(tmp_path / "keys" / "codec.keys")
    return tmp_path / "keys" / "codec.keys"


def test_what_was_encrypted_comes_back_and_shows_nothing_meanwhile(file: Path) -> None:
    codec = EncryptionCodec(file)
    one, same = codec.encrypt([payload(SECRET), payload(SECRET)])
    assert SECRET.encode() not in one.SerializeToString()
    assert one.metadata["encoding"] == b"binary/encrypted"
    assert one.data != same.data
    assert codec.decrypt([one, same]) == [payload(SECRET)] * 2


def test_what_is_not_encrypted_passes(file: Path) -> None:
    assert EncryptionCodec(file).decrypt([payload(SECRET)]) == [payload(SECRET)]


@pytest.mark.parametrize("place", [0, 12, -1])
def test_a_changed_payload_is_refused(file: Path, place: int) -> None:
    codec = EncryptionCodec(file)
    [one] = codec.encrypt([payload(SECRET)])
    data = bytearray(one.data)
    data[place] ^= 1
    with pytest.raises(PayloadUnreadable, match="was changed"):
        codec.decrypt([Payload(metadata=one.metadata, data=bytes(data))])
    with pytest.raises(PayloadUnreadable, match="was changed"):
        codec.decrypt([Payload(metadata=one.metadata, data=b"short")])


def test_the_newest_key_encrypts_and_the_older_ones_still_decrypt(file: Path) -> None:
    before = EncryptionCodec(file)
    [old] = before.encrypt([payload("old")])
    key_id = add_key(file)
    after = EncryptionCodec(file)
    [new] = after.encrypt([payload("new")])
    assert new.metadata["encryption-key-id"] == key_id.encode() != old.metadata["encryption-key-id"]
    assert after.decrypt([old, new]) == [payload("old"), payload("new")]


def test_a_process_that_still_runs_reads_what_a_newer_key_encrypted_and_encrypts_with_its_own(file: Path) -> None:
    running = EncryptionCodec(file)
    [own] = running.encrypt([payload("x")])
    add_key(file)
    [new] = EncryptionCodec(file).encrypt([payload("new")])
    assert running.decrypt([new]) == [payload("new")]
    [own_again] = running.encrypt([payload("x")])
    assert own_again.metadata["encryption-key-id"] == own.metadata["encryption-key-id"]


def test_a_key_that_was_taken_away_is_named(file: Path) -> None:
    [old] = EncryptionCodec(file).encrypt([payload("old")])
    [key_id] = read_keys(file)
    file.unlink()
    add_key(file)
    with pytest.raises(PayloadUnreadable, match=f"{key_id}.*not in .*codec.keys"):
        EncryptionCodec(file).decrypt([old])


def test_a_key_file_is_made_for_its_owner_alone_and_never_loses_a_key(file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
    first = file.read_text()
    add_key(file)
    assert file.read_text().startswith(first)
    assert len(read_keys(file)) == 2


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_file_that_others_can_read_or_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(BadInput, match="chmod 600"):
        EncryptionCodec(file)
    with pytest.raises(BadInput, match="chmod 600"):
        add_key(file)


KEY = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no key"),
        ("# only a comment\n", "has no key"),
        (f"a {KEY} b\n", "line 1: not `ID KEY`"),
        (f"ä {KEY}\n", "line 1: not `ID KEY`"),
        (f"a {KEY}\n\na {KEY}\n", "line 3: key a stands there twice"),
        ("a c2hvcnQ=\n", "line 1: key a: not 32 bytes"),
        ("a !!!!\n", "line 1: key a: not 32 bytes"),
    ],
)
def test_a_mistake_in_the_key_file_is_told_by_its_line_and_shows_no_key(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "codec.keys"
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(BadInput, match=complaint) as raised:
        read_keys(file)
    assert KEY not in str(raised.value)


def test_a_missing_key_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="hotspare codec-key"):
        read_keys(tmp_path / "codec.keys")


@activity.defn
def echo(text: str) -> str:
    if text.startswith("fail"):
        raise ApplicationError(f"cannot do {text}", type="Refused", non_retryable=True)
    return text


@workflow.defn
class Telling:
    """Carries a text through everything that a history can hold."""

    def __init__(self) -> None:
        self._heard = ""

    @workflow.run
    async def run(self, text: dict[str, str]) -> str:
        workflow.set_current_details(f"works on {text['node']}")
        await workflow.wait_condition(lambda: bool(self._heard), timeout_summary=f"wait for {text['node']}")
        return await workflow.execute_activity(
            echo,
            self._heard,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
            summary=f"echo {self._heard}",
        )

    @workflow.signal
    def hear(self, text: str) -> None:
        """Keep a word."""
        self._heard = text


def encrypted(client: Client, file: Path) -> Client:
    """The same connection, with encryption."""
    return Client(client.service_client, namespace=client.namespace, data_converter=encrypting(EncryptionCodec(file)))


@pytest.fixture
async def coded(client: Client, file: Path) -> Client:
    return encrypted(client, file)


def worker(client: Client, queue: str) -> Worker:
    runner = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("activities", "workers"))
    return Worker(
        client,
        task_queue=queue,
        workflows=[Telling],
        activities=[echo],
        activity_executor=ThreadPoolExecutor(2),
        workflow_runner=runner,
    )


async def history_of(client: Client, workflow_id: str) -> str:
    """The history and the description as the server keeps them, with every base64 text read."""
    handle = client.get_workflow_handle(workflow_id)
    text = (await handle.fetch_history()).to_json() + str((await handle.describe()).raw_description)
    return text + "".join(_decoded(word) for word in _words(json.loads((await handle.fetch_history()).to_json())))


def _words(data: Any) -> list[str]:
    if isinstance(data, dict):
        return [word for value in data.values() for word in _words(value)]
    if isinstance(data, list):
        return [word for value in data for word in _words(value)]
    return [data] if isinstance(data, str) else []


def _decoded(word: str) -> str:
    try:
        return base64.b64decode(word, validate=True).decode("utf-8", "replace")
    except ValueError:
        return ""


@pytest.mark.parametrize("what", [SECRET, f"fail on {SECRET}"], ids=["result", "error"])
async def test_a_history_shows_no_input_message_summary_result_or_error(client: Client, coded: Client, what: str) -> None:
    queue = f"codec-{os.urandom(4).hex()}"
    async with worker(coded, queue):
        handle = await coded.start_workflow(
            "Telling", {"node": SECRET}, id=queue, task_queue=queue, static_summary=f"about {SECRET}", static_details=SECRET
        )
        await handle.signal("hear", what)
        if what == SECRET:
            assert await handle.result() == SECRET
        else:
            with pytest.raises(WorkflowFailureError) as raised:
                await handle.result()
            cause = raised.value.cause.__cause__
            assert isinstance(cause, ApplicationError)
            assert (cause.message, cause.type) == (f"cannot do fail on {SECRET}", "Refused")
        assert await (await handle.describe()).static_summary() == f"about {SECRET}"
    kept = await history_of(client, queue)
    assert "binary/encrypted" in kept
    assert SECRET not in kept


async def test_a_workflow_that_was_started_by_hand_with_plain_json_is_understood(client: Client, coded: Client) -> None:
    queue = f"codec-{os.urandom(4).hex()}"
    async with worker(coded, queue):
        handle: Any = await client.start_workflow("Telling", {"node": "node-1"}, id=queue, task_queue=queue)
        await handle.signal("hear", "plain words")
        assert await coded.get_workflow_handle(queue).result() == "plain words"
    assert "plain words" in await history_of(client, queue)
