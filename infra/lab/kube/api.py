"""The Kubernetes API as the lab's kubelets use it: requests that outlast a restart of the server, lists that go on as watches."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx

from infra.lab.kube.control_plane import ControlPlane

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

_AGAIN_S = 0.2
_WATCH_S = 300

log = logging.getLogger("hotspare.lab.kube")


class Refused(Exception):
    """The server's answer was an error; `status` is its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class KubeApi:
    """A user of the API. `close` ends its connections."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        context = ssl.create_default_context(cafile=str(control_plane.ca_file))
        self._http = httpx.AsyncClient(
            verify=context,
            trust_env=False,
            timeout=httpx.Timeout(10.0, read=30.0),
            headers={"Authorization": f"Bearer {control_plane.token()}"},
            limits=httpx.Limits(max_connections=None),
        )

    async def close(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def request(self, method: str, path: str, body: object = None, *, content_type: str = "application/json") -> Object:
        """Call the API once. Raises Refused, or httpx.HTTPError where the server does not answer."""
        answer = await self._http.request(
            method,
            self._control_plane.url + path,
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
        )
        if answer.is_error:
            raise Refused(answer.status_code, answer.text)
        found: Object = answer.json()
        return found

    async def insist(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> Object | None:
        """Call the API until it answers; None where there is no such object (any more). Raises Refused for what stays wrong."""
        while True:
            try:
                return await self.request(method, path, body, content_type=content_type)
            except Refused as refused:
                if refused.status == 404:
                    return None
                if refused.status < 500 and refused.status not in (401, 429):
                    raise
            except httpx.HTTPError:
                pass
            await asyncio.sleep(_AGAIN_S)

    async def get(self, path: str) -> Object | None:
        """Return the object, None where there is none."""
        return await self.insist("GET", path)

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        """Yield ("LIST", all objects), then ("ADDED" | "MODIFIED" | "DELETED", object) one by one; LIST anew after a break."""
        while True:
            listed = await self.insist("GET", path)
            if listed is None:
                await asyncio.sleep(_AGAIN_S)
                continue
            yield "LIST", listed.get("items") or []
            version = listed["metadata"]["resourceVersion"]
            try:
                async for kind, found in self._watch_from(path, version):
                    yield kind, found
            except (httpx.HTTPError, json.JSONDecodeError):
                await asyncio.sleep(_AGAIN_S)

    async def _watch_from(self, path: str, version: str) -> AsyncIterator[tuple[str, Any]]:
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_S)}
        timeout = httpx.Timeout(10.0, read=_WATCH_S + 30.0)
        async with self._http.stream("GET", self._control_plane.url + path, params=query, timeout=timeout) as answer:
            if answer.is_error:
                return
            async for line in answer.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return  # most often 410: what was watched from is forgotten
                if event["type"] != "BOOKMARK":
                    yield event["type"], event["object"]
