"""A kubelet of a few lines for FakeKubernetes: runs the pods of Jobs as processes in a node's root folder.

It also serves the ConfigMaps over TLS, because what runs in the pods speaks to the API by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from activities.clients.fake_kubernetes import FakeKubernetes
from activities.clients.pod_spec import API_DIR, HOST_ROOT
from activities.errors import AccessRefused, PreconditionFailed
from activities.kubernetes import CONFIG_MAP, JOB, NODE, KubernetesApi, Object

NAMESPACE = "hotspare"


class PodRunner:
    """Runs what is pinned to one node. `environment` is what a process of the node sees, `pods_as` the API as pods may use it."""

    def __init__(
        self,
        api: FakeKubernetes,
        node: str,
        environment: dict[str, str],
        root: Path,
        folder: Path,
        pods_as: KubernetesApi | None = None,
    ) -> None:
        self._api, self._node, self._environment, self._root = api, node, environment, root
        self._api_dir = folder / "service-account"
        self._server = _serve(pods_as or api, self._api_dir)
        self._serving = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._serving.start()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.refuses_pods = False
        self.started: list[Object] = []
        self._seen: set[str] = set()
        self._up = True
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def go_down(self) -> None:
        """The node loses power, and Kubernetes has noticed."""
        with self._lock:
            self._look()  # a pod that was asked for has been started by now
            self._up = False
            self._end_all(signal.SIGKILL)
        self._condition("Unknown", "Kubelet stopped posting node status.")

    def come_up(self, boot_id: str) -> None:
        """The node is back in another boot: what ran before has failed."""
        with self._lock:
            for name in list(self._processes):
                self._failed(name, "BackoffLimitExceeded")
            self._processes.clear()
            self._up = True
        self._api.patch(NODE, self._node, {"status": {"nodeInfo": {"bootID": boot_id}}}, subresource="status")
        self._condition("True", "")

    def close(self) -> None:
        """End everything."""
        self._stop.set()
        self._thread.join()
        self._end_all(signal.SIGKILL)
        self._server.shutdown()
        self._serving.join()
        self._server.server_close()

    def _condition(self, status: str, message: str) -> None:
        ready = {"type": "Ready", "status": status, "message": message}
        self._api.patch(NODE, self._node, {"status": {"conditions": [ready]}}, subresource="status")

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            with self._lock:
                if self._up:
                    self._look()

    def _look(self) -> None:
        jobs = {str(job["metadata"]["name"]): job for job in self._api.list(JOB, NAMESPACE)}
        for name, job in jobs.items():
            if name not in self._seen and not self.refuses_pods and self._spec(job)["nodeName"] == self._node:
                self._seen.add(name)
                self.started.append(job)
                self._processes[name] = self._start(job)
        for name, process in list(self._processes.items()):
            doomed = name not in jobs or jobs[name]["spec"]["activeDeadlineSeconds"] == 1
            if process.poll() is None and doomed:
                process.terminate()
                process.wait()
            if process.poll() is not None:
                del self._processes[name]
                if process.returncode or doomed:
                    self._failed(name, "DeadlineExceeded" if doomed else "BackoffLimitExceeded")
                else:
                    self._ended(name, "Complete", "CompletionsReached")

    def _start(self, job: Object) -> subprocess.Popen[bytes]:
        container = self._spec(job)["containers"][0]
        given = {entry["name"]: self._moved(entry["value"]) for entry in container["env"]}
        address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._server.server_port)}
        environment = {**self._environment, **given, **address}
        return subprocess.Popen(container["command"], env=environment, stdin=subprocess.DEVNULL, start_new_session=True)

    def _moved(self, value: str) -> str:
        for mounted, real in ((API_DIR, self._api_dir), (HOST_ROOT, self._root)):
            if value.startswith(mounted):
                return str(real) + value[len(mounted) :]
        return value

    def _spec(self, job: Object) -> Object:
        spec: Object = job["spec"]["template"]["spec"]
        return spec

    def _failed(self, name: str, reason: str) -> None:
        self._ended(name, "Failed", reason)

    def _ended(self, name: str, kind: str, reason: str) -> None:
        if self._api.get(JOB, name, NAMESPACE) is not None:
            condition = {"type": kind, "status": "True", "reason": reason}
            self._api.patch(JOB, name, {"status": {"conditions": [condition]}}, NAMESPACE, subresource="status")

    def _end_all(self, number: int) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            process.wait()
        marker = f"HOTSPARE_HOST_ROOT={self._root}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and marker in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)


def _serve(api: KubernetesApi, folder: Path) -> ThreadingHTTPServer:
    """Serve the namespace's ConfigMaps on a free loopback port, to who shows the token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(lambda name, body: api.get(CONFIG_MAP, name, NAMESPACE))

        def do_PATCH(self) -> None:
            self._answer(lambda name, body: api.patch(CONFIG_MAP, name, body, NAMESPACE))

        def do_POST(self) -> None:
            self._answer(lambda name, body: api.create(CONFIG_MAP, body, NAMESPACE))

        def _answer(self, act: Any) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else {}
            allowed, refused = self.headers["Authorization"] == "Bearer of-the-pod", False
            try:
                found = act(self.path.rpartition("/")[2], body)
            except PreconditionFailed:
                found = None
            except AccessRefused:
                found, refused = None, True
            self.send_response(401 if not allowed else 403 if refused else 404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found if allowed else {}).encode())

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    folder.mkdir()
    (folder / "token").write_text("of-the-pod")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(folder))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.crt").write_bytes(public)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(private + public)
    return folder / "server.pem"
