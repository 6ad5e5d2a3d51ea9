"""Kubernetes under the lab: a real control plane, the real controller of the job, lab nodes as Nodes, their pods as processes."""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from infra.lab.desk import Reply
from infra.lab.kube.api import KubeApi
from infra.lab.kube.components import free_ports
from infra.lab.kube.control_plane import NODE_GRACE_S, ControlPlane
from infra.lab.kube.kube_job import KubeJob
from infra.lab.kube.kubelet import Kubelet
from infra.lab.kube.nodes import KubeNodes
from infra.lab.node_root import TREE
from infra.lab.options import LabOptions
from infra.lab.orchestrators import LabJob, Tables
from infra.lab.writing import INTAKE_TOKEN

if TYPE_CHECKING:
    from infra.lab.lab import Lab

USER = "hotspare"
"""Who Hotspare is in the lab's Kubernetes."""

GROUPS = ("hotspare:k8s",)
"""What makes that user a Hotspare: infra/kubernetes/rbac.yaml grants to this group."""

NAMESPACE = "hotspare"
INTAKE_SECRET = "hotspare-intake"
AGENT_IMAGE, TOOLS_IMAGE = "lab/agent", "lab/nccl-tests"
"""Lab nodes pull no images: what a container's command names is looked for in one folder for all images, then on the node."""

AGENT = "agent"
"""Access without SSH: a DaemonSet reports, Jobs check."""

MANY_NODES = 200
"""With more nodes than these, leases are renewed too late now and then for a grace of seconds."""

AGENT_GRACE_S = 20.0
"""Where commands are pods, a beat may be late on a busy machine; no node is to be lost for that. Kubernetes' own is 50 s."""

TOLERATION_S = 15
"""How long pods stay on a node that does not answer; 300 s is Kubernetes' default."""

MANIFESTS = Path(__file__).parents[2] / "kubernetes"
"""What Hotspare is allowed to do, as it is installed on any cluster."""


class KubernetesCluster:
    """Orchestrator `kubernetes`."""

    job: LabJob

    def __init__(self, lab: Lab, options: LabOptions) -> None:
        self._lab, self._options = lab, options
        self._folder = lab.folder / "kubernetes"
        agent = options.access == AGENT
        grace_s = AGENT_GRACE_S if agent or options.kwok_nodes > MANY_NODES else NODE_GRACE_S
        self.plane = ControlPlane(self._folder, kwok=options.kwok_nodes > 0, toleration_s=TOLERATION_S, node_grace_s=grace_s)
        self._intake_port = free_ports(1)[0] if agent else 0
        self.plane.add_user(USER, GROUPS)
        self._api: KubeApi | None = None
        self._nodes: KubeNodes | None = None
        self._kubelet: Kubelet | None = None

    async def start(self) -> None:
        """Bring up control plane, controllers, nodes and kubelets."""
        plane, options = self.plane, self._options
        await plane.__aenter__()
        self._api = api = KubeApi(plane)
        version = str((await api.request("GET", "/version"))["gitVersion"])
        _make_image(self._folder / "image")
        shared = self._lab.folder / "shared"
        shared.mkdir(parents=True, exist_ok=True)
        self._nodes = KubeNodes(api, self._lab.nodes, version, {"/fsx": shared})
        await self._nodes.start()
        address = urlsplit(plane.url)
        self._kubelet = Kubelet(
            api, self._nodes, (str(address.hostname), int(address.port or 443)), plane.ca_file, self._folder / "image"
        )
        self._kubelet.start()
        self._lab.offer("mpirun-in-pods", self._mpirun_in_pods)
        await self._start_controllers()
        await self._admit_hotspare()
        if options.kwok_nodes:
            await plane.kwok.add_nodes(options.kwok_nodes)
        self.job = KubeJob(plane, api, self._kubelet, self._lab.nodes, shared / "train", options)

    async def _start_controllers(self) -> None:
        kind, controllers = self._options.job_kind, self.plane.controllers
        if kind in ("JobSet", "TrainJob"):
            await controllers.start_jobset()
        if kind == "TrainJob":
            await controllers.start_trainer()
        if kind == "PyTorchJob":
            await controllers.start_training_operator()

    async def _admit_hotspare(self) -> None:
        """Install what Hotspare needs on any cluster: its namespace, its accounts, its permissions."""
        for name in ("namespace.yaml", "rbac.yaml"):
            await self.plane.apply(MANIFESTS / name)
        if self._options.access == AGENT:
            await self._install_agent()

    async def _install_agent(self) -> None:
        """Install the DaemonSet of agents as an operator would: the intake's token as a Secret, its address, the image."""
        token_file = self._lab.folder / INTAKE_TOKEN
        token_file.touch(0o600)
        token = secrets.token_urlsafe(24)
        token_file.write_text(token + "\n")
        metadata = {"name": INTAKE_SECRET, "namespace": NAMESPACE}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": token}}
        await self.plane.apply(json.dumps(secret))
        await self.plane.apply(MANIFESTS / "agent.yaml")
        address = f"HOTSPARE_INTAKE=http://127.0.0.1:{self._intake_port}"
        await self.plane.kubectl("--namespace", NAMESPACE, "set", "env", "daemonset", "--all", address)

    async def close(self) -> None:
        """Take down what was started, in the opposite order."""
        if hasattr(self, "job"):
            await self.job.close()
        for part in (self._kubelet, self._nodes, self._api):
            if part is not None:
                await part.close()
        await self.plane.stop()

    async def _mpirun_in_pods(self, asker: str, fields: dict[str, Any], reply: Reply) -> int:
        """Carry out a call of mpirun whose hosts are pods: it reaches those that run."""
        assert self._kubelet is not None
        nodes = {run.name: run.node.name for run in self._kubelet.runs.values() if run.running}
        for pod, _ in fields["hosts"]:
            if pod not in nodes:
                await reply.err(
                    f'Error from server (NotFound): pods "{pod}" not found\nORTE was unable to reliably start daemons\n'
                )
                return 1
        hosts = [(nodes[pod], slots) for pod, slots in fields["hosts"]]
        return await self._lab.group_test.run(asker, {**fields, "hosts": hosts, "door": {}}, reply)

    def settings(self) -> Tables:
        """Tables of `hotspare.toml` that differ from those of the command launcher; the times are the lab's.

        By agent nobody logs in anywhere, so there is no head node either.
        """
        own_commands = dict.fromkeys(("find", "status", "hold", "resume"))
        return {
            "job": {
                "adapter": "kubernetes",
                **own_commands,
                **({"head": None} if self._options.access == AGENT else {"progress": ["trainctl", "progress", "{job}"]}),
                "poll_s": 0.5,
                "controller_deadline_s": 120.0,
            },
            "kubernetes": {
                "source": "kubeconfig",
                "kubeconfig": str(self.plane.kubeconfig(USER)),
                "namespace": NAMESPACE,
                "drain_deadline_s": 60.0,
                "drain_poll_s": 0.5,
            },
            **(self._agent_tables() if self._options.access == AGENT else {}),
        }

    def _agent_tables(self) -> Tables:
        images = {"agent_image": AGENT_IMAGE, "agent_tools_image": TOOLS_IMAGE, "agent_start_s": 20.0}
        return {
            "access": {"kind": AGENT, **images, "ssh_config": None, "connect_timeout_s": None},
            "burn_in": {"launcher": "kubernetes", "launch_host": None},
            "intake": {"port": self._intake_port},
            "sweep": {"interval_s": 120.0},  # a look at a node is a pod of two processes
        }

    def environment(self) -> dict[str, str]:
        """KUBECONFIG of the administrator, for kubectl."""
        return {"KUBECONFIG": str(self.plane.kubeconfig())}

    def describe(self) -> dict[str, Any]:
        """What `hotspare lab status` shows."""
        return {"url": self.plane.url, "kubeconfig": str(self.plane.kubeconfig()), "job_kind": self._options.job_kind}


def _make_image(folder: Path) -> None:
    """Make what the images of the lab's pods have on their PATH before the node's own commands: Hotspare, mpirun, sshd."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = {"hotspare": "workers.launch", "mpirun": "infra.lab.commands.mpirun", "sshd": "infra.lab.commands.sshd"}
    for name, module in modules.items():
        command = folder / name
        command.write_text(f'#!/bin/sh\nPYTHONPATH="{TREE}" exec "{sys.executable}" -m {module} "$@"\n')
        command.chmod(0o755)
