"""Watching objects of the Kubernetes API: lists, then follows the changes, over expiry, restarts and silence."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import urllib3

from activities.clients.kubernetes_http import KubernetesHttp, Refused, explained, path_of
from activities.errors import NodeUnreachable, ProviderBusy
from activities.kubernetes import Kind, Object

LOOK_S = 1.0
"""Seconds of silence after which the caller is let look up."""

ROUND_S = 240
"""Seconds after which the server ends one request. Hotspare default: below the 350 s after which an AWS load balancer cuts it."""

PAUSE_S = 0.5
"""Seconds between tries while the API server does not answer. Hotspare default."""

Event = tuple[str, Object]
NOTHING: Event = ("", {})


class Expired(Exception):
    """The server no longer knows what has changed since: list again."""


class Watch:
    """One watch. `list_all` returns the objects of now and the resource version of that list."""

    def __init__(
        self,
        http: KubernetesHttp,
        kind: Kind,
        namespace: str,
        selectors: dict[str, object],
        list_all: Callable[[], tuple[list[Object], str]],
    ) -> None:
        self._http = http
        self._kind = kind
        self._path = path_of(kind, namespace)
        self._selectors = selectors
        self._list_all = list_all
        self._known: dict[str, Object] = {}

    def events(self, deadline_s: float) -> Iterator[Event]:
        """Yield what exists, then what changes, and ("", {}) at least every second while nothing does."""
        until = time.monotonic() + deadline_s
        version = ""
        while time.monotonic() < until:
            try:
                if not version:
                    items, version = self._list_all()
                    yield from self._anew(items)
                for kind, item in self._follow(version, until):
                    version = item.get("metadata", {}).get("resourceVersion", version)
                    yield (kind, item) if kind not in ("", "BOOKMARK") else NOTHING
            except Expired:
                version = ""
            except (NodeUnreachable, ProviderBusy):
                yield NOTHING
                time.sleep(max(0.0, min(PAUSE_S, until - time.monotonic())))

    def _anew(self, items: list[Object]) -> Iterator[Event]:
        """Yield a new list: all that is there, and what went unseen."""
        now = {item["metadata"]["uid"]: item for item in items}
        gone = [item for uid, item in self._known.items() if uid not in now]
        self._known = now
        yield from (("DELETED", item) for item in gone)
        yield from (("ADDED", item) for item in items)

    def _follow(self, version: str, until: float) -> Iterator[Event]:
        """Yield the events of one request, until the server ends it or the deadline comes."""
        round_s = max(1, min(ROUND_S, int(until - time.monotonic()) + 1))
        query = self._selectors | {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        try:
            answer = self._http.open_stream(self._path, query | {"timeoutSeconds": round_s}, silence_s=round_s + 10.0)
        except Refused as refused:
            raise Expired if refused.code == 410 else explained(f"watch {self._kind.plural}", refused, self._kind) from refused
        with _Lines(answer) as lines:
            while time.monotonic() < until:
                line = lines.next(min(LOOK_S, max(0.01, until - time.monotonic())))
                if line is None:
                    return
                yield self._event(json.loads(line)) if line else NOTHING

    def _event(self, event: dict[str, Any]) -> Event:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            if item.get("code") == 410:
                raise Expired
            raise ProviderBusy(f"Kubernetes: watch {self._kind.plural}: {item.get('message', item)}")
        if kind in ("ADDED", "MODIFIED"):
            self._known[item["metadata"]["uid"]] = item
        elif kind == "DELETED":
            self._known.pop(item["metadata"]["uid"], None)
        return kind, item


class _Lines:
    """Reads the lines of an answer in a thread of its own, so that whoever waits for one can give up."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True, name="kubernetes watch")

    def __enter__(self) -> _Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            with suppress(OSError, ValueError, RuntimeError):  # it has ended meanwhile
                self._answer.shutdown()  # the thread's read ends at once
        self._thread.join()
        self._answer.close()

    def next(self, patience_s: float) -> bytes | None:
        """Return the next line, empty where none came in time, None at the end of the answer."""
        try:
            return self._lines.get(timeout=patience_s)
        except queue.Empty:
            return b""

    def _read(self) -> None:
        rest = b""
        try:
            for chunk in self._answer.stream(None):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        self._lines.put(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            pass  # a cut stream is one that has ended: the watch goes on with another request
        finally:
            self._lines.put(None)
