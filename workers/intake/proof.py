"""How a sender of alerts proves itself: it shows the token, or signs the message with it so that the token never travels.

A signature is `X-Hotspare-Signature: t=UNIX-SECONDS,v1=HEX`, HMAC-SHA256 over the digits of t, a dot and the body. It is good
once and for a few minutes, so that a message that was listened to cannot be sent again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from workers.intake.token import TokenFile, TokenUnreadable
from workers.sections import IntakeSettings

SIGNATURE = "x-hotspare-signature"
TOKEN = "x-hotspare-token"
"""Headers, beside `Authorization: Bearer`. An EventBridge API destination sends its API key in a header of any name."""

_SIGNATURE = re.compile(r"t=(\d{1,12}),v1=([0-9a-fA-F]{64})")
REMEMBERED = 100_000
"""Signatures that are remembered at most. Hotspare default: 300 s of 300 messages a second; more than that is refused."""


class Refused(Exception):
    """A request that is answered with an error; `why` is for the log of the sender."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Proof:
    """Judges what a sender shows. `clock` is wall time: the sender's is compared with it."""

    def __init__(self, token: TokenFile, settings: IntakeSettings, clock: Callable[[], float] = time.time) -> None:
        self._token = token
        self._settings = settings
        self._clock = clock
        self._seen: dict[str, float] = {}

    def before_body(self, headers: Mapping[str, str]) -> None:
        """Raise Refused unless the token is shown, or a signature that the body may prove."""
        if SIGNATURE in headers:
            self._read(headers[SIGNATURE])
            return
        shown = _shown(headers)
        if not shown:
            raise Refused(401, "no bearer token and no signature; set http_config.authorization.credentials_file in the receiver")
        if not self._asks(lambda: self._token.matches(shown)):
            raise Refused(403, "the bearer token is not the one in the intake's token file")
        if self._settings.require_signature:
            raise Refused(403, f"only signed messages are taken here (intake.require_signature): {SIGNATURE} is missing")

    def of_body(self, headers: Mapping[str, str], body: bytes) -> Callable[[], None]:
        """Raise Refused unless the body is what was signed. The answer undoes it: to be called when the message was not taken."""
        if SIGNATURE not in headers:
            return lambda: None
        stamp, signature = self._read(headers[SIGNATURE])
        if not self._asks(lambda: self._token.signs(f"{stamp}.".encode() + body, signature)):
            raise Refused(403, "the signature is not that of this message under the token in the intake's token file")
        now, window = self._clock(), self._settings.signature_window_s
        self._seen = {key: at for key, at in self._seen.items() if now - at <= 2 * window}
        if signature in self._seen:
            raise Refused(409, "this signed message was taken before; sign every message anew")
        if len(self._seen) >= REMEMBERED:
            raise Refused(503, "too many signed messages; send again later")
        self._seen[signature] = now
        return lambda: self._forget(signature)

    def _forget(self, signature: str) -> None:
        self._seen.pop(signature, None)

    def _read(self, header: str) -> tuple[str, str]:
        """Return the time stamp as it was signed, and the signature; refuse what is too old, or from the future."""
        found = _SIGNATURE.fullmatch(header.strip())
        if found is None:
            raise Refused(401, f"{SIGNATURE} is not t=UNIX-SECONDS,v1=HEX of HMAC-SHA256")
        stamp, signature = found.groups()
        if abs(self._clock() - int(stamp)) > self._settings.signature_window_s:
            raise Refused(
                403, f"the signature is not of the last {self._settings.signature_window_s:g} s; is the sender's clock right?"
            )
        return stamp, signature.lower()

    def _asks(self, question: Callable[[], bool]) -> bool:
        try:
            return question()
        except TokenUnreadable as error:
            raise Refused(503, "the intake cannot read its token file; see its log") from error


def _shown(headers: Mapping[str, str]) -> str:
    scheme, _, shown = headers.get("authorization", "").partition(" ")
    return (shown if scheme.lower() == "bearer" else headers.get(TOKEN, "")).strip()
