"""The codec server: POST /decode and /encode as Temporal's UI and command line ask for it, for whoever shows the token.

The `temporal` command shows it as a bearer token. A browser, which has no place for one, types it once at /login and gets a
cookie, good for requests from pages of the UI alone.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import deque
from urllib.parse import parse_qs

from google.protobuf.json_format import MessageToDict, Parse, ParseError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from temporalio.api.common.v1 import Payloads

from workers.codec.codec import EncryptionCodec, PayloadUnreadable
from workers.intake.token import TokenFile, TokenUnreadable
from workers.sections import CodecSettings

logger = logging.getLogger(__name__)

BODY_LIMIT = 16_000_000
"""Bytes of a request. Hotspare default: Temporal takes 2 MB in a payload and 4 MB in a message; base64 adds a third."""

COOKIE = "hotspare_codec"
LOG_INS = 1000
"""Browsers that are remembered. Hotspare default: the oldest has to type the token again."""

FORM = """<!doctype html><title>Hotspare codec server</title><form method="post">
<label>Token <input name="token" type="password" autofocus autocomplete="off"></label> <button>Let this browser read</button>
</form><p>{said}</p>"""


class CodecServer:
    """The handlers."""

    def __init__(self, codec: EncryptionCodec, token: TokenFile, settings: CodecSettings) -> None:
        self._codec = codec
        self._token = token
        self._origins = [origin.rstrip("/") for origin in settings.ui_origins]
        self._cookies: deque[str] = deque(maxlen=LOG_INS)

    def app(self) -> Starlette:
        """Return the ASGI application."""
        cors = Middleware(
            CORSMiddleware,
            allow_origins=self._origins,
            allow_methods=["POST"],
            allow_headers=["authorization", "content-type", "x-namespace"],
            allow_credentials=True,
        )
        return Starlette(
            routes=[
                Route("/decode", self.decode, methods=["POST"]),
                Route("/encode", self.encode, methods=["POST"]),
                Route("/login", self.login, methods=["GET", "POST"]),
                Route("/healthz", self.healthz),
            ],
            middleware=[cors],
        )

    async def decode(self, request: Request) -> Response:
        """Decrypt payloads; those that are not encrypted come back as they are."""
        return await self._answer(request, decode=True)

    async def encode(self, request: Request) -> Response:
        """Encrypt payloads."""
        return await self._answer(request, decode=False)

    async def login(self, request: Request) -> Response:
        """Give a browser a cookie for the token."""
        if request.method == "GET":
            return HTMLResponse(FORM.format(said=""))
        shown = parse_qs((await _body(request, 10_000)).decode("utf-8", "replace")).get("token", [""])[0]
        if (refused := self._refusal(shown)) is not None:
            return refused if refused.status_code == 503 else HTMLResponse(FORM.format(said="That is not the token."), 403)
        self._cookies.append(cookie := secrets.token_urlsafe(32))
        answer = HTMLResponse(FORM.format(said="This browser may read now: go back to the Temporal UI."))
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    async def healthz(self, _request: Request) -> Response:
        """Say that the process answers."""
        return JSONResponse({"status": "ok"})

    async def _answer(self, request: Request, *, decode: bool) -> Response:
        if (refused := self._refused(request)) is not None:
            logger.warning("%s is refused with %d", request.url.path, refused.status_code)
            return refused
        body = await _body(request, BODY_LIMIT)
        if len(body) > BODY_LIMIT:
            return JSONResponse({"error": f"the body is over {BODY_LIMIT} bytes"}, 413)
        try:
            asked = Parse(body, Payloads(), ignore_unknown_fields=True)
            found = self._codec.decrypt(asked.payloads) if decode else self._codec.encrypt(asked.payloads)
        except (ParseError, UnicodeDecodeError):
            return JSONResponse({"error": "the body is not the JSON of temporal.api.common.v1.Payloads"}, 400)
        except PayloadUnreadable as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse({"payloads": MessageToDict(Payloads(payloads=found)).get("payloads", [])})

    def _refused(self, request: Request) -> Response | None:
        """Whether the token was shown, or a cookie by a page of the UI: another page's request carries the cookie too."""
        cookie, origin = request.cookies.get(COOKIE, "").encode(), request.headers.get("origin", "").rstrip("/")
        if origin in self._origins and any(hmac.compare_digest(cookie, known.encode()) for known in self._cookies):
            return None
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not shown.strip():
            why = "no bearer token; in a browser open /login here first and let the UI include credentials"
            return JSONResponse({"error": why}, 401, {"WWW-Authenticate": "Bearer"})
        return self._refusal(shown.strip())

    def _refusal(self, shown: str) -> Response | None:
        try:
            return None if self._token.matches(shown) else JSONResponse({"error": "that is not the token"}, 403)
        except TokenUnreadable:
            logger.exception("the token cannot be read")
            return JSONResponse({"error": "the server cannot read its token file; see its log"}, 503)


async def _body(request: Request, limit: int) -> bytes:
    """Read at most one byte more than the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk[: limit + 1 - len(body)]
        if len(body) > limit:
            break
    return bytes(body)
