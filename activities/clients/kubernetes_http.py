"""One request to the Kubernetes API: its address, its time limit, its errors as ours. What changes something is sent once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from kubernetes.client import ApiClient
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError, SSLError

from activities.errors import (
    AccessRefused,
    BadInput,
    CapabilityMissing,
    HotspareError,
    NodeUnreachable,
    PreconditionFailed,
    ProviderBusy,
    Throttled,
)
from activities.kubernetes import Kind

CONNECT_TIMEOUT_S = 5.0
"""TCP and TLS handshake, seconds. Hotspare default: an API server that lives answers in milliseconds."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


def path_of(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of a kind's objects, of one of them, or of a part of one."""
    parts = ["apis" if "/" in kind.api_version else "api", *kind.api_version.split("/")]
    parts += ["namespaces", namespace] if kind.namespaced and namespace else []
    parts += [kind.plural, *(part for part in (name, subresource) if part)]
    return "/" + "/".join(quote(part, safe="") for part in parts)


class Refused(Exception):
    """An answer with a status of 400 or more: the API's Status object, or the text where it is none."""

    def __init__(self, code: int, body: bytes) -> None:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        status: dict[str, Any] = answer if isinstance(answer, dict) else {"message": body.decode(errors="replace").strip()[:500]}
        self.code = code
        self.message = str(status.get("message") or status.get("reason") or f"status {code}")
        self.details: dict[str, Any] = status.get("details") or {}
        super().__init__(self.message)

    @property
    def names_object(self) -> bool:
        """Whether the answer is about one object; the answer about a kind that is not served names none."""
        return bool(self.details.get("name"))

    def cause(self, kind: str) -> str | None:
        """Return the words of a cause of this kind, None where it is not among them."""
        for cause in self.details.get("causes") or []:
            if cause.get("reason") == kind:
                return str(cause.get("message", ""))
        return None


class KubernetesHttp:
    """Sends requests through the official client's connection pool and credentials."""

    def __init__(self, api: ApiClient | Callable[[], ApiClient], timeout_s: float) -> None:
        self._opened: ApiClient | None = api if isinstance(api, ApiClient) else None
        self._open_api: Callable[[], ApiClient] | None = None if isinstance(api, ApiClient) else api
        self._timeout_s = timeout_s
        self._lock = threading.Lock()

    @property
    def _api(self) -> ApiClient:
        with self._lock:
            if self._opened is None and self._open_api is not None:
                self._opened = self._open_api()
            return self._opened

    @property
    def host(self) -> str:
        """Address of the API server."""
        return str(self._api.configuration.host)

    def close(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            self._opened.rest_client.pool_manager.clear()

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Read; once more where the connection broke, as one that the server has closed meanwhile does."""
        try:
            return self.send("GET", path, query=query)
        except NodeUnreachable:
            return self.send("GET", path, query=query)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        content_type: str = JSON,
    ) -> Any:
        """Send one request and return the JSON of the answer. Raises Refused, NodeUnreachable, AccessRefused."""
        until = time.monotonic() + self._timeout_s
        with self._reaching():
            answer = self._open(method, path, body, query, content_type, self._timeout_s)
            try:
                content = b"".join(_within(answer.stream(65536), until))
            except BaseException:
                answer.close()
                raise
            answer.release_conn()
        if answer.status >= 400:
            raise Refused(answer.status, content)
        return json.loads(content) if content else {}

    def open_stream(self, path: str, query: Mapping[str, object], silence_s: float) -> urllib3.BaseHTTPResponse:
        """Start to read a stream, which may be silent for so long. Raises as `send` does."""
        with self._reaching():
            answer = self._open("GET", path, None, query, JSON, silence_s)
            if answer.status >= 400:
                content = answer.read()
                answer.release_conn()
                raise Refused(answer.status, content)
            return answer

    def _open(
        self, method: str, path: str, body: object, query: Mapping[str, object] | None, content_type: str, read_s: float
    ) -> urllib3.BaseHTTPResponse:
        wanted = {key: value for key, value in (query or {}).items() if value not in ("", None)}
        url = self.host.rstrip("/") + path + (f"?{urlencode(wanted)}" if wanted else "")
        pool: urllib3.PoolManager = self._api.rest_client.pool_manager
        return pool.request(
            method,
            url,
            body=None if body is None else json.dumps(body),
            headers=self._headers(content_type),
            timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, read_s), read=read_s),
            retries=False,
            redirect=False,
            preload_content=False,
        )

    def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": JSON, "Content-Type": content_type, "User-Agent": "hotspare"}
        for setting in self._api.configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        return headers

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except SSLError as error:
            raise AccessRefused(f"the Kubernetes API at {self.host} is not who it should be: {error}") from error
        except (HTTPError, OSError) as error:
            raise NodeUnreachable(f"the Kubernetes API at {self.host} does not answer: {_words(error)}") from error
        except ConfigException as error:
            raise AccessRefused(f"no credentials for the Kubernetes API at {self.host}: {error}") from error


def explained(what: str, refused: Refused, kind: Kind | None = None) -> HotspareError:
    """Return our error for an answer that refuses. A 404 that names no object means a kind that is not served."""
    message = f"Kubernetes: {what}: {refused.message}"
    if refused.code in (401, 403):
        hint = (
            "the token is not known there"
            if refused.code == 401
            else "infra/kubernetes has the roles that each worker role needs"
        )
        return AccessRefused(f"{message}; {hint} (docs/kubernetes.md)")
    if refused.code == 404 and not refused.names_object:
        served = f"{kind.name} ({kind.api_version})" if kind else "this"
        return CapabilityMissing(f"{message}; the API server does not know {served}: its CRD is not installed")
    if refused.code == 405:
        return CapabilityMissing(message)
    if refused.code in (404, 409):
        return PreconditionFailed(message)
    if refused.code == 429:
        return Throttled(message)
    return ProviderBusy(message) if refused.code >= 500 else BadInput(message)


def _within(chunks: Iterator[bytes], until: float) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        if time.monotonic() > until:
            raise NodeUnreachable("the Kubernetes API's answer did not end in time; raise kubernetes.timeout_s")


def _words(error: Exception) -> str:
    """Return an error's words without the object's address that urllib3 puts before them."""
    return str(error).rpartition(">: ")[2] or type(error).__name__
