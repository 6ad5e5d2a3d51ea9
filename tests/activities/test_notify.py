"""Pages are posted to every URL until each has taken them, and are always in the log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import httpx
import pytest

from activities.clients.webhook_notifier import WebhookNotifier
from activities.errors import TransientError
from activities.notify import Page
from activities.settings import NotifySettings

PAGE = Page(key="incident/lab/i-1/replace", incident="incident/lab/i-1", node="node-1", title="No spare", why=["none is free"])
GOOD, BAD = "https://pager.example/hook/s3cret", "https://chat.example/hook/s3cret"


def test_a_page_is_one_json_document_for_each_url_and_one_line_of_the_log(tmp_path: Path) -> None:
    taken: list[dict[str, object]] = []

    def take(request: httpx.Request) -> httpx.Response:
        taken.append(json.loads(request.content))
        return httpx.Response(202)

    log = tmp_path / "log" / "pages.jsonl"
    WebhookNotifier(NotifySettings(urls=[GOOD, BAD], log=log), httpx.MockTransport(take)).send(PAGE)
    assert taken == [PAGE.model_dump(mode="json")] * 2
    line = json.loads(log.read_text())
    assert (line["key"], line["why"]) == (PAGE.key, ["none is free"])


def test_a_retry_posts_only_to_those_who_have_not_taken_the_page(tmp_path: Path) -> None:
    posts: Counter[str] = Counter()
    down = True

    def answer(request: httpx.Request) -> httpx.Response:
        posts[request.url.host] += 1
        return httpx.Response(503 if down and request.url.host == "chat.example" else 200)

    log = tmp_path / "pages.jsonl"
    notifier = WebhookNotifier(NotifySettings(urls=[GOOD, BAD], log=log), httpx.MockTransport(answer))
    with pytest.raises(TransientError, match=r"chat\.example \(status 503\)") as raised:
        notifier.send(PAGE)
    assert "s3cret" not in str(raised.value)
    down = False
    notifier.send(PAGE)
    assert posts == {"pager.example": 1, "chat.example": 2}
    assert len(log.read_text().splitlines()) == 1


def test_a_page_that_everybody_took_is_sent_again_as_a_reminder(tmp_path: Path) -> None:
    posts: list[str] = []

    def take(request: httpx.Request) -> httpx.Response:
        posts.append(request.url.host)
        return httpx.Response(200)

    notifier = WebhookNotifier(NotifySettings(urls=[GOOD], log=tmp_path / "pages.jsonl"), httpx.MockTransport(take))
    notifier.send(PAGE)
    notifier.send(PAGE)
    assert len(posts) == len((tmp_path / "pages.jsonl").read_text().splitlines()) == 2


def test_a_pager_that_does_not_answer_leaves_the_page_in_the_log(tmp_path: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    log = tmp_path / "pages.jsonl"
    with pytest.raises(TransientError, match="ConnectError"):
        WebhookNotifier(NotifySettings(urls=[GOOD], log=log), httpx.MockTransport(refuse)).send(PAGE)
    assert "No spare" in log.read_text()
