"""An EC2 endpoint on loopback that misbehaves on request: moto's answers refused, lost, garbled or late, by name of the call."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from moto.server import ThreadedMotoServer


@dataclass
class Fault:
    """What happens to the next calls of a name.

    refused: answered with an error, not carried out. lost: carried out, the connection ends without an answer. failed: carried
    out, answered with an error. silent: carried out, no answer until the endpoint ends. garbled: answered with what is no XML.
    stale: answered as before the last change.
    """

    call: str
    kind: str
    times: int = 1
    status: int = 503
    code: str = "RequestLimitExceeded"


class FaultyEndpoint(ThreadingHTTPServer):
    """Stands before moto and counts the calls that reached it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        self._moto.start()
        self.asked: Counter[str] = Counter()
        self.carried_out: Counter[str] = Counter()
        self.ended = threading.Event()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._before: dict[str, tuple[int, bytes]] = {}
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def moto_url(self) -> str:
        """The way past every fault."""
        host, port = self._moto.get_host_and_port()
        return f"http://{host}:{port}"

    def next(self, fault: Fault) -> None:
        """Let a fault happen to the next calls of its name."""
        with self._lock:
            self._faults.append(fault)

    def close(self) -> None:
        self.ended.set()
        self.shutdown()
        self._thread.join()
        self.server_close()
        self._moto.stop()

    def fault_for(self, call: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.call == call and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def answer(self, call: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Carry a call out, and keep the answer for who is to see it too late."""
        host, port = self._moto.get_host_and_port()
        there = http.client.HTTPConnection(host, port)
        there.request("POST", path, body, headers)
        reply = there.getresponse()
        seen = reply.status, reply.read()
        there.close()
        self.carried_out[call] += 1
        self._before.setdefault(call, seen)
        return seen

    def before(self, call: str) -> tuple[int, bytes]:
        """The first answer to this call."""
        return self._before[call]


class _Handler(BaseHTTPRequestHandler):
    server: FaultyEndpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        call = parse_qs(body.decode())["Action"][0]
        self.server.asked[call] += 1
        fault = self.server.fault_for(call)
        kind = fault.kind if fault else ""
        refusal = b"<Response><Errors><Error><Code>%s</Code><Message>no</Message></Error></Errors></Response>"
        error = refusal % (fault.code if fault else "").encode()
        if fault and kind == "refused":
            self._reply(fault.status, error)
            return
        if kind == "stale":
            self._reply(*self.server.before(call))
            return
        status, answer = self.server.answer(call, self.path, dict(self.headers.items()), body)
        if kind == "silent":
            self.server.ended.wait(60)
        if kind in ("silent", "lost"):
            self.close_connection = True
            return
        if fault and kind == "failed":
            status, answer = fault.status, error
        self._reply(status, b"<html>proxy" if kind == "garbled" else answer)

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
