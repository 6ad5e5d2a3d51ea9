"""Posts the agent's reports to the intake, signed with its token, so that the token itself never travels."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from activities.errors import BadInput, ProviderBusy
from workers.spool import Held

logger = logging.getLogger(__name__)

PATH = "/v1/reports"
TIMEOUT_S = 15.0
"""Seconds for one post. Hotspare default: over the intake's own wait for Temporal, 5 s."""

SIGNATURE = "X-Hotspare-Signature"


class IntakeSender:
    """Hands reports over. It returns when the intake has one for good: with Temporal, or on its disk."""

    def __init__(self, intake_url: str, token_file: Path, ca_file: Path | None = None) -> None:
        """Raises BadInput for an address that is none, or a certificate file that cannot be read."""
        if not intake_url.startswith(("http://", "https://")):
            raise BadInput(f"the intake's address {intake_url!r} begins with neither http:// nor https://")
        self._url = intake_url.rstrip("/") + PATH
        self._token_file = token_file
        try:
            self._trust = ssl.create_default_context(cafile=ca_file) if intake_url.startswith("https://") else None
        except OSError as error:
            raise BadInput(f"{ca_file}: no certificates can be read there ({error})") from error

    def __call__(self, held: Held) -> None:
        """Send one report. Raises ProviderBusy for every answer but 200 and 202: the log keeps it, and it is sent again."""
        body = {
            "version": 1,
            "node": held.node.name,
            "boot_id": held.boot_id,
            "sent_at": time.time(),
            "reports": [held.report.model_dump(mode="json", exclude_defaults=True)],
        }
        answer = self._post(json.dumps(body).encode())
        for unknown in answer.get("unknown_nodes", []):
            logger.error("the intake knows no node called %s: %s", held.node.name, unknown.get("why", ""))
        for bad in answer.get("unreadable", []):
            logger.error("the intake cannot read a report: %s; are agent and intake of one release?", bad.get("why", ""))

    def _post(self, body: bytes) -> dict[str, list[dict[str, str]]]:
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json", SIGNATURE: self._signed(body)})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._trust) as answer:
                return dict(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(500).decode("utf-8", "replace")
            raise ProviderBusy(f"the intake answers {error.code}: {said}") from error
        except (OSError, ValueError) as error:
            raise ProviderBusy(f"the intake at {self._url} does not take it: {error}") from error

    def _signed(self, body: bytes) -> str:
        """Sign with the token as it is in the file now: it may be rotated while we run."""
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ProviderBusy(f"{self._token_file}: the intake's token cannot be read ({error})") from error
        if not token:
            raise ProviderBusy(f"{self._token_file}: is empty; it must hold the intake's token")
        now = int(time.time())
        return f"t={now},v1={hmac.new(token.encode(), f'{now}.'.encode() + body, hashlib.sha256).hexdigest()}"
