"""The real job controllers, started against a control plane: JobSet, Kubeflow's training operator, Trainer and Kueue."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from infra.lab.kube.assets import binary, manifests
from infra.lab.kube.components import Component, wait_for, with_free_ports

if TYPE_CHECKING:
    from infra.lab.kube.control_plane import ControlPlane

_KUEUE_CERTIFICATE = {"webhookServiceName": "kueue-webhook-service", "webhookSecretName": "kueue-webhook-server-cert"}

_KUEUE_CONVERTED = ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")

# Those that manage certificates themselves wait for this file, as a sign that the kubelet has mounted them. The path is theirs,
# a constant, and they look only whether it is there: what they serve is read from $TMPDIR.
_MOUNTED = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")


@dataclass(frozen=True)
class _Place:
    """Where one controller is to listen, and where its files are."""

    probe: str
    webhook_port: int
    certificates: Path
    folder: Path


class Controllers:
    """Starts controllers beside the control plane, with their admission webhooks, so that jobs get their defaults.

    Each installs its resource definitions first and returns when jobs can be created. The API server reaches the webhooks by
    address, as there is no network of pods here.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane

    async def start_jobset(self) -> None:
        """Start JobSet (sigs.k8s.io/jobset): jobs of jobs that restart as a whole."""
        await self._start("jobset", _jobset)

    async def start_training_operator(self) -> None:
        """Start Kubeflow's training operator v1: PyTorchJob and its siblings."""
        await self._prepare_rotation("kubeflow", "training-operator-webhook-cert")
        await self._start("training-operator", _kubeflow)

    async def start_trainer(self) -> None:
        """Start Kubeflow's Trainer v2: TrainJob, carried out by JobSets. Start JobSet first."""
        await self._prepare_rotation("kubeflow-system", "kubeflow-trainer-webhook-cert")
        await self._start("trainer", _kubeflow)

    async def start_kueue(self) -> None:
        """Start Kueue: queues before jobs. It looks for kinds of jobs at its start, so start the other controllers first."""
        await self._prepare_rotation("kueue-system", _KUEUE_CERTIFICATE["webhookSecretName"])
        await self._start("kueue", _kueue)

    async def _prepare_conversion(self) -> None:
        """Give Kueue's kinds the conversion that it puts its authority into. All speak the stored version."""
        for kind in _KUEUE_CONVERTED:
            client = {"url": "https://127.0.0.1:1/convert"}
            conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
            patch = json.dumps({"spec": {"conversion": conversion}})
            await self._control_plane.kubectl("patch", "crd", f"{kind}.kueue.x-k8s.io", "--type=merge", "--patch", patch)

    async def _start(self, name: str, command: Callable[[_Place], list[str]]) -> None:
        plane = self._control_plane
        await plane.apply(manifests(name) / "crds")
        if name == "kueue":
            await self._prepare_conversion()
        await wait_for(f"the resource definitions of {name}", self._served)
        folder = plane.folder / name
        certificates = folder / "k8s-webhook-server" / "serving-certs"
        certificates.mkdir(parents=True, exist_ok=True)
        plane.copy_certificate(certificates / "tls.crt", certificates / "tls.key")
        webhook_port = 0

        async def start_at(ports: list[int]) -> Component:
            nonlocal webhook_port
            webhook_port = ports[1]
            place = _Place(f"127.0.0.1:{ports[0]}", webhook_port, certificates, folder)
            component = await plane.components.start(
                name, [binary(name), f"--kubeconfig={plane.kubeconfig()}", *command(place)], {"TMPDIR": str(folder)}
            )
            async with httpx.AsyncClient(trust_env=False) as http:
                await component.wait_until(lambda: _ready(http, f"http://{place.probe}/readyz"))
            return component

        await with_free_ports(2, start_at)
        await self._register_webhooks(name, webhook_port)

    async def _served(self) -> bool:
        """Tell whether all defined kinds can be used: the API server says so first, and shows them a moment later."""
        listed = await self._control_plane.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        if not all(_is_established(definition) for definition in listed["items"]):
            return False
        groups = {(item["spec"]["group"], version["name"]) for item in listed["items"] for version in item["spec"]["versions"]}
        for group, version in groups:
            try:
                await self._control_plane.request("GET", f"/apis/{group}/{version}")
            except httpx.HTTPStatusError:
                return False
        return True

    async def _register_webhooks(self, name: str, port: int) -> None:
        printed = await self._control_plane.kubectl(
            "create", "--dry-run=client", "--output=json", "--filename", str(manifests(name) / "webhooks.yaml")
        )
        bundle = base64.b64encode(self._control_plane.ca_file.read_bytes()).decode()
        for configuration in _documents(printed):
            # Under a name of its own: the controllers would put their own authority into the one that they know.
            configuration["metadata"] = {
                "name": f"lab-{name}-{configuration['kind'].lower().removesuffix('webhookconfiguration')}"
            }
            for webhook in configuration["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            await self._control_plane.apply(json.dumps(configuration))

    async def _prepare_rotation(self, namespace: str, secret: str) -> None:
        """Make what these controllers keep their generated certificate in, and the sign that it is mounted."""
        await self._namespace(namespace)
        manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": namespace}}
        await self._control_plane.apply(json.dumps(manifest))
        if not _MOUNTED.exists():
            _MOUNTED.parent.mkdir(parents=True, exist_ok=True)
            _MOUNTED.touch()

    async def _namespace(self, name: str) -> None:
        await self._control_plane.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))


def _jobset(place: _Place) -> list[str]:
    path = place.folder / "configuration.json"
    path.write_text(json.dumps(_configuration("config.jobset.x-k8s.io/v1alpha1", place)))
    return [f"--config={path}"]


def _kueue(place: _Place) -> list[str]:
    path = place.folder / "configuration.json"
    kinds = ("batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob", "trainer.kubeflow.org/trainjob")
    configuration = _configuration("config.kueue.x-k8s.io/v1beta2", place)
    # Without its own management it wants a certificate for metrics under /etc.
    configuration |= {"integrations": {"frameworks": kinds}, "internalCertManagement": {"enable": True} | _KUEUE_CERTIFICATE}
    path.write_text(json.dumps(configuration))
    return [f"--config={path}", "--feature-gates=VisibilityOnDemand=false"]


def _configuration(version: str, place: _Place) -> dict[str, object]:
    return {
        "apiVersion": version,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": place.probe},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": place.webhook_port, "certDir": str(place.certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def _kubeflow(place: _Place) -> list[str]:
    listening = [f"--health-probe-bind-address={place.probe}", "--metrics-bind-address=0"]
    return [*listening, f"--webhook-server-port={place.webhook_port}", "--leader-elect=false"]


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _documents(printed: str) -> list[dict[str, Any]]:
    """Return the objects in kubectl's output: JSON documents one after another."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(printed.rstrip()):
        document, at = decoder.raw_decode(printed, at)
        found.append(document)
        at += len(printed[at:]) - len(printed[at:].lstrip())
    return [item for document in found for item in document.get("items", [document])]


async def _ready(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx.HTTPError:
        return False
