"""A real Kubernetes control plane on loopback: etcd, API server, controller manager and scheduler, up in seconds."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from infra.lab.kube.assets import binary
from infra.lab.kube.certificates import Certificates
from infra.lab.kube.components import Component, Components, wait_for, with_free_ports
from infra.lab.kube.controllers import Controllers
from infra.lab.kube.kwok import Kwok

ADMIN = "admin"

NODE_GRACE_S = 5.0
"""How long a node's lease may go without renewal until the node is NotReady; Kubernetes waits 50 s. Renew every second."""

_MASTERS = ("system:masters",)
_MANAGER, _SCHEDULER = "system:kube-controller-manager", "system:kube-scheduler"
_SERVICES = "10.96.0.0/16"


class KubectlFailed(RuntimeError):
    """kubectl ended with an error. The message is what it printed."""


class ControlPlane:
    """An async context manager around the processes. Its folder holds logs, keys, tokens and etcd's data.

    Users are known by bearer tokens: `admin`, and those that `add_user` made before the start. What they may do is RBAC's
    affair. Nothing listens anywhere but on 127.0.0.1, and etcd only for holders of this folder's key.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scheduler: bool = True,
        controller_manager: bool = True,
        kwok: bool = False,
        node_grace_s: float = NODE_GRACE_S,
        toleration_s: int = 300,
        feature_gates: str = "",
    ) -> None:
        """`toleration_s`: how long pods stay on a node that is NotReady or unreachable; 300 is Kubernetes' own default.

        `feature_gates` go to API server and controller manager, so that they do as another release: "Name=false,Other=true".
        """
        self.folder = folder.resolve()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.node_grace_s = node_grace_s
        self._toleration_s = toleration_s
        self._feature_gates = [f"--feature-gates={feature_gates}"] if feature_gates else []
        self._parts = {"scheduler": scheduler, "controller_manager": controller_manager, "kwok": kwok}
        self._certificates = Certificates(self.folder / "pki")
        self._users: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._etcd_url = ""
        self._port = 0
        self._api_server: Component | None = None
        self._http: httpx.AsyncClient | None = None
        self.components = Components(self.folder)
        self.controllers = Controllers(self)
        self.kwok = Kwok(self)
        for user, groups in ((ADMIN, _MASTERS), (_MANAGER, ()), (_SCHEDULER, ())):
            self.add_user(user, groups)

    def add_user(self, name: str, groups: Sequence[str] = ()) -> str:
        """Make a user known to the API server, with a token that is returned. Only before the start, as it reads them once."""
        if self._api_server is not None:
            raise RuntimeError(f"user {name} came too late: the API server reads its users at its start")
        self._users[name] = (secrets.token_urlsafe(24), tuple(groups))
        return self.token(name)

    def token(self, user: str = ADMIN) -> str:
        """Return the bearer token of a user."""
        return self._users[user][0]

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        """Certificate of the authority that the API server's certificate comes from."""
        return self._certificates.ca

    def copy_certificate(self, certificate: Path, key: Path) -> None:
        """Give a server on loopback a certificate that the API server trusts: copies of ours, at these paths."""
        certificate.write_bytes(self._certificates.certificate.read_bytes())
        key.touch(mode=0o600)
        key.write_bytes(self._certificates.key.read_bytes())

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Write the kubeconfig of a user, readable by its owner alone, and return its path."""
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(self._kubeconfig(user), indent=1))
        return path

    def _kubeconfig(self, user: str) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        }

    async def __aenter__(self) -> ControlPlane:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def _start(self) -> None:
        self._certificates.make()
        self._write_tokens()
        await with_free_ports(2, self._start_etcd)
        await with_free_ports(1, self._start_api_server_at)
        if self._parts["controller_manager"]:
            await self._start_controller_manager()
        if self._parts["scheduler"]:
            await self._start_scheduler()
        if self._parts["kwok"]:
            await self.kwok.start()

    async def stop(self) -> None:
        """End everything."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None
        await self.components.stop_all()
        self._api_server = None

    def _write_tokens(self) -> None:
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        rows = (f'{token},{name},{name},"{",".join(groups)}"\n' for name, (token, groups) in self._users.items())
        tokens.write_text("".join(rows))

    async def _start_etcd(self, ports: list[int]) -> Component:
        client, peer = (f"https://127.0.0.1:{port}" for port in ports)
        files = self._certificates
        command: list[str | Path] = [
            binary("etcd"),
            "--name=lab",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=lab={peer}"]
        for prefix in ("", "peer-"):
            command += [f"--{prefix}cert-file={files.certificate}", f"--{prefix}key-file={files.key}"]
            command += [f"--{prefix}trusted-ca-file={files.ca}", f"--{prefix}client-cert-auth"]
        etcd = await self.components.start("etcd", command)
        context = ssl.create_default_context(cafile=str(files.ca))
        context.load_cert_chain(files.certificate, files.key)
        async with httpx.AsyncClient(verify=context, trust_env=False) as http:
            await etcd.wait_until(lambda: _answers(http, f"{client}/health"))
        self._etcd_url = client
        return etcd

    async def _start_api_server_at(self, ports: list[int]) -> Component:
        self._port = ports[0]
        files = self._certificates
        command: list[str | Path] = [binary("kube-apiserver"), "--bind-address=127.0.0.1", f"--secure-port={self._port}"]
        command += [f"--etcd-servers={self._etcd_url}", f"--etcd-cafile={files.ca}"]
        command += [f"--etcd-certfile={files.certificate}", f"--etcd-keyfile={files.key}"]
        command += [f"--tls-cert-file={files.certificate}", f"--tls-private-key-file={files.key}"]
        command += [f"--token-auth-file={self.folder / 'tokens.csv'}", "--authorization-mode=Node,RBAC", "--anonymous-auth=false"]
        command += [
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files.service_accounts}",
        ]
        command += [f"--service-account-signing-key-file={files.service_accounts}", f"--service-cluster-ip-range={_SERVICES}"]
        # Nobody reaches this server through the Service `kubernetes`, and loopback is refused as its endpoint.
        command += ["--endpoint-reconciler-type=none", "--allow-privileged", "--profiling=false", "--shutdown-delay-duration=0s"]
        for kind in ("not-ready", "unreachable"):
            command.append(f"--default-{kind}-toleration-seconds={self._toleration_s}")
        if not self._parts["controller_manager"]:
            command.append("--disable-admission-plugins=ServiceAccount")  # no one would make the accounts that it asks for
        command += self._feature_gates
        self._api_server = await self.components.start("kube-apiserver", command)
        await self._api_server.wait_until(self._api_answers)
        return self._api_server

    async def _api_answers(self) -> bool:
        return await _answers(self._client(), f"{self.url}/readyz", {"Authorization": f"Bearer {self.token()}"})

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            self._http = httpx.AsyncClient(verify=context, trust_env=False, timeout=30.0)
        return self._http

    async def stop_api_server(self) -> None:
        """End the API server; everything else goes on and finds it again."""
        if self._api_server is not None:
            await self.components.stop(self._api_server)
            self._api_server = None

    async def start_api_server(self) -> None:
        """Start the API server again, at the same address. It has forgotten its watch cache: a watch from before is expired."""
        if self._api_server is None:
            await self._start_api_server_at([self._port])

    async def restart_api_server(self) -> None:
        """Stop and start the API server, at the same address."""
        await self.stop_api_server()
        await self.start_api_server()

    async def _start_controller_manager(self) -> None:
        command: list[str | Path] = [
            binary("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig(_MANAGER)}",
            "--secure-port=0",
        ]
        command += ["--leader-elect=false", "--use-service-account-credentials", "--kube-api-qps=200", "--kube-api-burst=400"]
        command += [f"--service-account-private-key-file={self._certificates.service_accounts}", f"--root-ca-file={self.ca_file}"]
        command += ["--node-monitor-period=1s", f"--node-monitor-grace-period={self.node_grace_s}s"]
        command += [f"--node-startup-grace-period={2 * self.node_grace_s}s"]
        # Half of a small cluster may be down in a story; without these evictions would stop then, or take ten seconds a node.
        command += ["--node-eviction-rate=50", "--secondary-node-eviction-rate=50", "--large-cluster-size-threshold=1"]
        command += self._feature_gates
        manager = await self.components.start("kube-controller-manager", command)
        await manager.wait_until(self._has_default_account)

    async def _has_default_account(self) -> bool:
        """The account `default` is there as soon as the controllers work; before that no pod is admitted."""
        path = f"{self.url}/api/v1/namespaces/default/serviceaccounts/default"
        return await _answers(self._client(), path, {"Authorization": f"Bearer {self.token()}"})

    async def _start_scheduler(self) -> None:
        command: list[str | Path] = [binary("kube-scheduler"), f"--kubeconfig={self.kubeconfig(_SCHEDULER)}", "--secure-port=0"]
        command += ["--leader-elect=false", "--kube-api-qps=200", "--kube-api-burst=400"]
        await self.components.start("kube-scheduler", command)

    async def add_kwok_nodes(self, count: int, *, prefix: str = "kwok", taint: bool = True) -> list[str]:
        """Add nodes without machines, wait until all are Ready, and return their names. See `Kwok.add_nodes`."""
        return await self.kwok.add_nodes(count, prefix=prefix, taint=taint)

    async def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json", user: str = ADMIN
    ) -> Any:
        """Call the API, e.g. `request("GET", "/api/v1/nodes")`, and return the JSON answer. HTTPStatusError when refused."""
        headers = {"Authorization": f"Bearer {self.token(user)}", "Content-Type": content_type}
        content = None if body is None else json.dumps(body)
        answer = await self._client().request(method, f"{self.url}{path}", content=content, headers=headers)
        if answer.is_error:
            raise httpx.HTTPStatusError(f"{method} {path}: {answer.text}", request=answer.request, response=answer)
        return answer.json()

    async def kubectl(self, *arguments: str, input: str | None = None, user: str = ADMIN) -> str:
        """Run kubectl as a user and return what it printed. KubectlFailed when it ends with an error."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder)}
        environment |= {"KUBECONFIG": str(self.kubeconfig(user)), "KUBERC": "off"}
        process = await asyncio.create_subprocess_exec(
            binary("kubectl"),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        printed, complaint = await process.communicate(None if input is None else input.encode())
        if process.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {complaint.decode(errors='replace').strip()}")
        return printed.decode()

    async def apply(self, manifest: str | Path, *, user: str = ADMIN) -> None:
        """Apply a manifest: its text (YAML or JSON), or the path of a file or a folder of them."""
        if isinstance(manifest, Path):
            await self.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(manifest), user=user)
        else:
            await self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=manifest, user=user)

    async def apply_once_admitted(self, manifest: str) -> None:
        """Apply a manifest that a webhook refuses until it has seen what that refers to, made just before."""

        async def applied() -> bool:
            try:
                await self.apply(manifest)
            except KubectlFailed as error:
                if "admission webhook" in str(error) and "not found" in str(error):
                    return False
                raise
            return True

        await wait_for("a webhook to admit it", applied)


async def _answers(http: httpx.AsyncClient, url: str, headers: dict[str, str] | None = None) -> bool:
    try:
        return (await http.get(url, headers=headers)).status_code == 200
    except httpx.HTTPError:
        return False
