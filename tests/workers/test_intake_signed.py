"""Signed messages: taken once and only while they are fresh, whatever part of them somebody changes."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.workers.test_intake_alerts import alert
from tests.workers.test_intake_http import Door, message, opened
from workers.intake.proof import Proof, Refused
from workers.intake.token import TokenFile, write_token
from workers.sections import IntakeSettings

BODY = json.dumps(message(alert({"xid": "79"}))).encode()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    write_token(tmp_path / "token")
    async with opened(Door(tmp_path / "token")) as running:
        yield running


def signature(token_file: Path, body: bytes = BODY, at: float | None = None) -> str:
    """As a sender makes it, with nothing of ours."""
    stamp = int(time.time() if at is None else at)
    key = token_file.read_text().strip().encode()
    return f"t={stamp},v1={hmac.new(key, f'{stamp}.'.encode() + body, hashlib.sha256).hexdigest()}"


async def post(door: Door, headers: dict[str, str], body: bytes = BODY) -> httpx.Response:
    async with httpx.AsyncClient(verify=False) as client:
        return await client.post(door.url, content=body, headers=headers)


async def test_a_signed_message_is_taken_and_the_token_does_not_travel(door: Door) -> None:
    answer = await post(door, {"X-Hotspare-Signature": signature(door.token_file)})
    assert (answer.status_code, answer.json()["taken"]) == (200, 1)
    assert door.token_file.read_text().strip().encode() not in answer.request.content
    assert "authorization" not in answer.request.headers


async def test_the_same_signature_is_good_once(door: Door) -> None:
    once = {"X-Hotspare-Signature": signature(door.token_file)}
    assert (await post(door, once)).status_code == 200
    assert (await post(door, once)).status_code == 409
    upper = {"X-Hotspare-Signature": once["X-Hotspare-Signature"][:-64] + once["X-Hotspare-Signature"][-64:].upper()}
    assert (await post(door, upper)).status_code == 409
    assert len(door.gateway.reports) == 1


async def test_what_was_not_taken_may_be_sent_again_as_it_is(door: Door) -> None:
    door.gateway.away = True
    once = {"X-Hotspare-Signature": signature(door.token_file)}
    assert (await post(door, once)).status_code == 503
    door.gateway.away = False
    assert (await post(door, once)).status_code == 200


@pytest.mark.parametrize("change", ["body", "time", "key", "digit"])
async def test_a_changed_message_is_refused(door: Door, tmp_path: Path, change: str) -> None:
    (tmp_path / "other").write_text("another-token-that-is-long-enough")
    stamp = int(time.time())
    right = signature(door.token_file, at=stamp)
    shown = {
        "body": right,
        "time": right.replace(f"t={stamp}", f"t={stamp + 1}"),
        "key": signature(tmp_path / "other"),
        "digit": right[:-1] + ("0" if right[-1] != "0" else "1"),
    }[change]
    body = BODY.replace(b"79", b"48") if change == "body" else BODY
    assert (await post(door, {"X-Hotspare-Signature": shown}, body)).status_code == 403
    assert door.gateway.calls["report_fault"] == 0


@pytest.mark.parametrize("away_s", [-301, 302])
async def test_an_old_message_and_one_from_the_future_are_refused(door: Door, away_s: int) -> None:
    answer = await post(door, {"X-Hotspare-Signature": signature(door.token_file, at=time.time() + away_s)})
    assert answer.status_code == 403
    assert "clock" in answer.json()["error"]


@pytest.mark.parametrize("header", ["", "v1=00", "t=1", "t=x,v1=" + "0" * 64, "t=1,v1=" + "0" * 63, "sha256=" + "0" * 64])
async def test_what_is_no_signature_is_a_401(door: Door, header: str) -> None:
    assert (await post(door, {"X-Hotspare-Signature": header})).status_code == 401


async def test_a_bad_signature_is_not_mended_by_the_token(door: Door) -> None:
    token = door.token_file.read_text().strip()
    bad = {"X-Hotspare-Signature": "t=1,v1=" + "0" * 64, "Authorization": f"Bearer {token}"}
    assert (await post(door, bad)).status_code == 403


async def test_an_api_key_header_is_as_good_as_a_bearer_token(door: Door) -> None:
    assert (await post(door, {"X-Hotspare-Token": door.token_file.read_text().strip()})).status_code == 200
    assert (await post(door, {"X-Hotspare-Token": "wrong"})).status_code == 403


async def test_where_signatures_are_required_the_token_alone_does_not_do(tmp_path: Path) -> None:
    write_token(tmp_path / "token")
    async with opened(Door(tmp_path / "token", require_signature=True)) as door:
        assert (await door.post(message(alert()))).status_code == 403
        assert (await post(door, {"X-Hotspare-Signature": signature(door.token_file)})).status_code == 200


def test_a_signature_cannot_be_used_again_when_it_is_forgotten(tmp_path: Path) -> None:
    write_token(tmp_path / "token")
    now = [1_000_000.0]
    proof = Proof(TokenFile(tmp_path / "token"), IntakeSettings(token_file=tmp_path / "token"), lambda: now[0])

    def judge(headers: dict[str, str]) -> None:
        proof.before_body(headers)
        proof.of_body(headers, BODY)

    # A sender whose clock is as far ahead as it may be.
    early = {"x-hotspare-signature": signature(tmp_path / "token", at=now[0] + 300)}
    judge(early)
    for passed in (1, 299, 300, 301, 599, 600, 601, 10_000):
        now[0] = 1_000_000.0 + passed
        with pytest.raises(Refused):
            judge(early)
