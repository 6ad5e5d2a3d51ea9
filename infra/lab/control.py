"""How other processes look at a running lab, inject faults and take it down: HTTP on loopback with a bearer token."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, Unauthorized
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from infra.lab.faults import Fault
from infra.lab.job import Refused
from infra.lab.lab import Lab
from infra.lab.remote import TOKEN_FILE


class _Silent(WSGIRequestHandler):
    """Logs nothing: every request is somebody's command."""

    def log(self, type: str, message: str, *args: Any) -> None:
        return


class ControlPort:
    """Serves one lab. `down_asked` is set when somebody wants it taken down."""

    def __init__(self, lab: Lab) -> None:
        self.down_asked = asyncio.Event()
        self._lab = lab
        self._loop = asyncio.get_running_loop()
        self._token = secrets.token_urlsafe(24)
        self._deeds: dict[tuple[str, str], Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]] = {
            ("GET", "/status"): self._status,
            ("POST", "/inject"): self._inject,
            ("POST", "/cure"): self._cure,
            ("POST", "/down"): self._down,
        }
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Silent)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Address of the control port."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self, folder: Path) -> None:
        """Write the token, readable by its owner only, and serve."""
        path = folder / TOKEN_FILE
        path.touch(0o600)
        path.write_text(self._token)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        try:
            answer = self._answer(request)
        except HTTPException as error:
            answer = Response(json.dumps({"error": error.description}), status=error.code, mimetype="application/json")
        except (ValueError, TypeError, KeyError, Refused) as error:
            answer = Response(json.dumps({"error": str(error)}), status=400, mimetype="application/json")
        return answer(environ, start_response)

    def _answer(self, request: Request) -> Response:
        sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(sent.encode(), self._token.encode()):
            raise Unauthorized(f"the token is in {TOKEN_FILE} in the lab's folder")
        deed = self._deeds.get((request.method, request.path))
        if deed is None:
            known = any(path == request.path for _, path in self._deeds)
            raise MethodNotAllowed if known else NotFound(f"the lab has no {request.path}")
        fields = json.loads(request.get_data() or b"{}")
        result = asyncio.run_coroutine_threadsafe(deed(fields), self._loop).result()
        return Response(json.dumps(result), mimetype="application/json")

    async def _status(self, fields: dict[str, Any]) -> Any:
        return self._lab.status()

    async def _inject(self, fields: dict[str, Any]) -> Any:
        return {"lines": await self._lab.inject(fields["node"], Fault(**fields["fault"]))}

    async def _cure(self, fields: dict[str, Any]) -> Any:
        await self._lab.cure(fields["node"])
        return {}

    async def _down(self, fields: dict[str, Any]) -> Any:
        self.down_asked.set()
        return {}
