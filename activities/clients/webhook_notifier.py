"""Sends pages: one JSON document to every configured URL, and always a line in a log file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from activities.clock import beat
from activities.errors import TransientError
from activities.notify import Page
from activities.settings import NotifySettings


class WebhookNotifier:
    """`Notifier` by HTTP. `post` is replaced in tests by a transport of theirs."""

    def __init__(self, settings: NotifySettings, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._transport = transport
        self._lock = threading.Lock()
        self._taken: set[tuple[str, str]] = set()

    def send(self, page: Page) -> None:
        """Post to each URL that has not taken this page yet. Raises TransientError that names those that did not."""
        self._log(page)
        failed = [place for url in self._settings.urls if (place := self._post(url, page))]
        if failed:
            raise TransientError(f"page {page.key} was not taken by {'; '.join(failed)}")
        with self._lock:  # sent to all; sent again later, it is a reminder
            self._taken = {(place, key) for place, key in self._taken if key != page.key}

    def _post(self, url: str, page: Page) -> str:
        """Post once; returns what went wrong, empty if nothing. The URL's path may be a secret, so only its host is told."""
        if (url, page.key) in self._taken:
            return ""
        beat(f"page {page.key}")
        try:
            with httpx.Client(transport=self._transport, timeout=self._settings.timeout_s) as client:
                answer = client.post(url, json=page.model_dump(mode="json"), headers={"Idempotency-Key": page.key})
        except httpx.HTTPError as error:
            return f"{urlsplit(url).hostname} ({type(error).__name__})"
        if answer.is_success:
            with self._lock:
                self._taken.add((url, page.key))
            return ""
        return f"{urlsplit(url).hostname} (status {answer.status_code})"

    def _log(self, page: Page, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Append the page once. One write in append mode, so that lines of several processes never mix."""
        with self._lock:
            if ("", page.key) in self._taken:
                return
            self._taken.add(("", page.key))
        line = json.dumps({"at": now().isoformat(), **page.model_dump(mode="json")}, ensure_ascii=False) + "\n"
        file = Path(self._settings.log).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(target, line.encode())
        finally:
            os.close(target)
