"""The part of a run that lives in a pod on the node: carries out one command and writes what came of it into a ConfigMap.

Sent as text and run by the image's Python (3.9, standard library alone): `python3 -I -c TEXT SPEC`. SPEC is JSON: `result` (name
of the ConfigMap, which exists or will in a moment), `namespace`, `command`, `deadline_s`, `limit` (bytes kept of each stream),
`pace` (seconds and sizes, from the settings table access.pods), `files` (ConfigMaps of files to lay out first), `waits_for`
(results of other pods that must be ready), `serves` (the command is a server: it is ready when it has lived for a moment).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import gzip
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
from typing import Any

TIMED_OUT = 124  # as the command `timeout` of GNU coreutils says it
NO_EXECUTION, NO_COMMAND = 126, 127  # POSIX, Shell Command Language, "Exit Status for Commands"
ENDED_FROM_OUTSIDE = 128 + signal.SIGTERM  # as shells say it
CHUNK_BYTES = 1_000_000  # of base64, a multiple of 4; a ConfigMap holds 1 MiB (Kubernetes, "ConfigMaps")
HOST_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")


class Refused(Exception):
    """An answer of the API other than 2xx."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said[:300]}")
        self.status = status


class EndedFromOutside(BaseException):
    """The pod is to go."""


class Api:
    """The few calls to the Kubernetes API that a run makes, with the pod's own service account."""

    def __init__(self, namespace: str, write_for_s: float) -> None:
        self._write_for_s = write_for_s
        self._folder = os.environ.get("HOTSPARE_API_DIR", "/var/run/secrets/kubernetes.io/serviceaccount")
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._host, self._port = host, int(port)
        self._base = f"/api/v1/namespaces/{namespace}/configmaps"

    def call(self, method: str, name: str = "", body: dict[str, Any] | None = None) -> dict[str, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "Accept": "application/json"}
        with contextlib.suppress(OSError), open(os.path.join(self._folder, "token")) as file:
            headers["Authorization"] = "Bearer " + file.read().strip()
        connection = self._connection()
        try:
            path = self._base + ("/" + urllib.parse.quote(name) if name else "")
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        if answer.status >= 300:
            raise Refused(answer.status, text)
        return dict(json.loads(text))

    def patiently(self, method: str, name: str = "", body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Try again for a while: the API server may restart, and the ConfigMap may come a moment after the pod."""
        until, wait = time.monotonic() + self._write_for_s, 0.1
        while True:
            try:
                return self.call(method, name, body)
            except (OSError, ValueError, http.client.HTTPException, Refused) as error:
                final = isinstance(error, Refused) and error.status in (400, 401, 403, 409, 413, 422)
                if final or time.monotonic() > until:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, 2.0)

    def _connection(self) -> http.client.HTTPConnection:
        trust = ssl.create_default_context(cafile=os.path.join(self._folder, "ca.crt"))
        return http.client.HTTPSConnection(self._host, self._port, timeout=20, context=trust)


class Run:
    """One command and the streams that it writes."""

    def __init__(self, spec: dict[str, Any], api: Api) -> None:
        self.spec, self.api, self.pace = spec, api, spec["pace"]
        self.child: subprocess.Popen[bytes] | None = None
        self.folder = tempfile.mkdtemp(prefix="hotspare-run-")
        self.began = time.time()
        self.timed_out = False
        self._shown = b""

    def carry_out(self) -> None:
        """Do all of it; whatever goes wrong is written into the result."""
        signal.signal(signal.SIGTERM, ended_from_outside)
        try:
            for file in self.spec.get("files", ()):
                self._lay_out(file)
            self._wait_for_others()
            command = on_host(self.spec["command"])
            with open(self._path("stdout"), "wb") as out, open(self._path("stderr"), "wb") as err:
                self.child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out if self.spec.get("joined") else err,
                    start_new_session=True,
                )
            status = self._wait()
        except OSError as error:
            status = NO_COMMAND if error.errno == errno.ENOENT else NO_EXECUTION
            with open(self._path("stderr"), "a") as err_text:
                err_text.write(f"{self.spec['command'][0]}: {error.strerror}\n")
        except EndedFromOutside:
            status = ENDED_FROM_OUTSIDE if self.child is None else self._end(ENDED_FROM_OUTSIDE)
        self.finish(status)

    def _wait(self) -> int:
        child, until = self.child, time.monotonic() + self.spec["deadline_s"]
        assert child is not None
        self._write({"exit_status": None})
        began, shown_at, ready = time.monotonic(), time.monotonic(), False
        while True:
            left = until - time.monotonic()
            if left <= 0:
                self.timed_out = True
                return self._end(TIMED_OUT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = child.wait(min(left, 0.2))
                end_group(child.pid, signal.SIGKILL)
                return 128 - status if status < 0 else status
            now = time.monotonic()
            if self.spec.get("serves") and not ready and now - began >= self.pace["ready_after_s"]:
                ready = True
                self._write({"exit_status": None, "ready": True})
            if self.spec.get("joined") and now - shown_at > self.pace["shown_every_s"]:
                shown_at = now
                self._show()

    def _show(self) -> None:
        """Let others see what a long run has printed so far; it is no loss if this does not arrive."""
        text = tail(self._path("stdout"), self.pace["shown_bytes"])
        if text != self._shown:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException, Refused):
                self.api.call("PATCH", self.spec["result"], {"binaryData": {"output-0": packed(text, b"")}})
                self._shown = text

    def _end(self, status: int) -> int:
        assert self.child is not None
        end_group(self.child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(self.pace["term_grace_s"])
        end_group(self.child.pid, signal.SIGKILL)
        self.child.wait()
        return status

    def finish(self, status: int) -> None:
        """Write the streams, in as many ConfigMaps as they need, then the status: who sees it finds the whole output."""
        limit = self.spec["limit"]
        data = packed(tail(self._path("stdout"), limit), tail(self._path("stderr"), limit))
        chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
        for number, chunk in enumerate(chunks[1:], 1):
            self._write_more(number, chunk)
        self._write({"exit_status": status, "timed_out": self.timed_out, "chunks": len(chunks)}, chunks[0])
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_more(self, number: int, chunk: str) -> None:
        base = self.api.patiently("GET", self.spec["result"])["metadata"]
        kept = {key: base[key] for key in ("labels", "ownerReferences") if key in base}
        name = f"{self.spec['result']}-{number}"
        body = {"metadata": {"name": name, **kept}, "binaryData": {"output": chunk}}
        self.api.patiently("POST", "", body)

    def _write(self, state: dict[str, Any], chunk: str | None = None) -> None:
        body: dict[str, Any] = {"data": {"state": json.dumps({"began": self.began, **state})}}
        if chunk is not None:
            body["binaryData"] = {"output-0": chunk}
        self.api.patiently("PATCH", self.spec["result"], body)

    def _lay_out(self, file: dict[str, str]) -> None:
        """Write a file that was put for this node, once: the folder outlives the pod."""
        if os.path.exists(file["path"]):
            return
        content = self.api.patiently("GET", file["name"])["binaryData"]["content"]
        os.makedirs(os.path.dirname(file["path"]), exist_ok=True)
        part = f"{file['path']}.{os.getpid()}"
        with open(part, "wb") as out:
            out.write(base64.b64decode(content))
        os.replace(part, file["path"])

    def _wait_for_others(self) -> None:
        """Return when all pods of the group are ready; what does not come in time is said by the command itself."""
        until = time.monotonic() + self.spec.get("waits_s", 0.0)
        waiting = list(self.spec.get("waits_for", ()))
        while waiting and time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException, Refused):
                state = json.loads(self.api.call("GET", waiting[0]).get("data", {}).get("state", "{}"))
                if state.get("ready") or state.get("exit_status") is not None:
                    waiting.pop(0)
                    continue
            time.sleep(0.3)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def ended_from_outside(number: int, frame: object) -> None:
    """Leave whatever is waited for, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise EndedFromOutside


def on_host(command: list[str]) -> list[str]:
    """Return the command as it can be run: one that only the host has is run in the host's root."""
    root = os.environ.get("HOTSPARE_HOST_ROOT", "").rstrip("/")
    if not root or "/" in command[0] or shutil.which(command[0]):
        return command
    there = any(os.access(os.path.join(root, folder, command[0]), os.X_OK) for folder in HOST_FOLDERS)
    return ["chroot", root, *command] if there else command


def tail(path: str, limit: int) -> bytes:
    """Return the last `limit` bytes of a file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read()
    except OSError:
        return b""


def packed(out: bytes, err: bytes) -> str:
    """Pack both streams as they travel: JSON, gzip, base64."""
    text = json.dumps({"stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace")})
    return base64.b64encode(gzip.compress(text.encode(), 6)).decode()


def end_group(group: int, number: int) -> None:
    """Signal a process group; one that has ended is no error."""
    with contextlib.suppress(OSError):
        os.killpg(group, number)


def main(words: list[str]) -> None:
    spec = json.loads(words[0])
    home = os.environ.get("HOME", "/")
    os.makedirs(home, exist_ok=True)
    os.chdir(home)
    Run(spec, Api(spec["namespace"], spec["pace"]["write_for_s"])).carry_out()


if __name__ == "__main__":
    main(sys.argv[1:])
