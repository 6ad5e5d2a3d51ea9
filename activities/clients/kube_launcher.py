"""Launches group runs of all_reduce_perf as pods: sshd on all nodes but the first, and the configured command on the first.

Needs `access.agent_tools_image`, an image with mpirun, all_reduce_perf and sshd.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from activities.clients.agent_access import AgentAccessTo, PodRuns
from activities.clients.mpirun_launcher import group_command, rail_command
from activities.clients.pod_spec import job_name, run_job, spec_of
from activities.errors import BadInput, PreconditionFailed
from activities.inventory import Node
from activities.kubernetes import JOB, SECRET, KubernetesApi, Object
from activities.names import KUBE_MANAGED_BY
from activities.node_access import DetachedRun
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from activities.settings_jobs import KubernetesSettings

KEYS = "/etc/hotspare-burn-in"
SSHD = (
    'exec "$(command -v sshd)" -D -e -p "$1" -h "$2/key" -o "AuthorizedKeysFile=$2/authorized_keys" '
    "-o StrictModes=no -o PasswordAuthentication=no -o UsePAM=no -o PidFile=none"
)
"""Shell for the pods that are waited upon: sshd wants its own absolute path."""

LAUNCH = (
    'export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; s="-p $1 -i $2/key -o StrictHostKeyChecking=no '
    '-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"; export OMPI_MCA_plm_rsh_args="$s" PRTE_MCA_plm_ssh_args="$s"; '
    'shift 2; exec "$@"'
)
"""Shell for the launching pod: how mpirun (Open MPI 4 and 5) reaches the others. The keys are made for this one run."""


class KubeLauncher:
    """`BurnInLauncher` by Jobs, one for each node; the launching one is known by the run id, and is made last."""

    def __init__(
        self,
        api: KubernetesApi,
        access_to: AgentAccessTo,
        access: AccessSettings,
        kubernetes: KubernetesSettings,
        burn_in: BurnInSettings,
    ) -> None:
        self._api, self._access_to, self._access = api, access_to, access
        self._namespace, self._burn_in = kubernetes.namespace, burn_in
        self._runs = PodRuns(api, kubernetes.namespace)

    def start(self, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        self._start(group_command(self._burn_in, nodes, run_id), run_id, nodes, deadline_s)

    def start_over(self, rail: int, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        self._start(rail_command(self._burn_in, rail, nodes, run_id), run_id, nodes, deadline_s)

    def _start(self, command: list[str], run_id: str, nodes: list[Node], deadline_s: float) -> None:
        if not self._access.agent_tools_image:
            raise BadInput('access.agent_tools_image is not set; burn_in.launcher = "kubernetes" runs mpirun and sshd from it')
        self._make_keys(run_id)
        others = [_part_of(run_id, place) for place in range(1, len(nodes))]
        wait_s, port = self._access.agent_start_s, str(self._access.pods.ssh_port)
        for part, node in zip(others, nodes[1:], strict=True):
            serve = ["sh", "-c", SSHD, "sh", port, KEYS]
            spec = spec_of(part, serve, deadline_s + wait_s, self._access.output_limit, self._namespace, joined=True, serves=True)
            self._runs.start(part, self._job(run_id, part, spec, node, nodes))
        launch = ["sh", "-c", LAUNCH, "sh", port, KEYS, *command]
        more: dict[str, Any] = {"waits_for": [job_name(part) for part in others], "waits_s": wait_s}
        spec = spec_of(run_id, launch, deadline_s, self._burn_in.output_limit, self._namespace, joined=True, **more)
        self._runs.start(run_id, self._job(run_id, run_id, spec, nodes[0], nodes))

    def poll(self, run_id: str, nodes: Sequence[Node] = ()) -> DetachedRun:
        run = self._runs.poll(run_id)
        if run.known and run.exit_status is not None:
            self._end_others(run_id)
        return run

    def kill(self, run_id: str, nodes: Sequence[Node] = ()) -> None:
        self._runs.kill(run_id)
        self._end_others(run_id)

    def _job(self, run_id: str, part: str, spec: dict[str, Any], node: Node, nodes: list[Node]) -> Object:
        pod = {
            # The launching command calls nodes by the names that reports use, whatever the cluster's DNS knows.
            "hostAliases": [{"ip": one.ip, "hostnames": [one.name]} for one in nodes if one.ip],
            "volumes": [{"name": "keys", "secret": {"secretName": job_name(run_id), "defaultMode": 0o400}}],
        }
        mounts: list[dict[str, Any]] = [{"name": "keys", "mountPath": KEYS, "readOnly": True}]
        job = run_job(
            part,
            spec,
            self._access_to.name_of(node),
            self._access,
            keep=True,
            start_s=self._access.agent_start_s,
            image=self._access.agent_tools_image,
            pod=pod,
            volume_mounts=mounts,
        )
        job["metadata"]["labels"] = {KUBE_MANAGED_BY: "run", _GROUP: job_name(run_id)}
        return job

    def _make_keys(self, run_id: str) -> None:
        """Make the key pair of this run; one that an earlier attempt made stays."""
        key = ed25519.Ed25519PrivateKey.generate()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        data = {"key": private, "authorized_keys": public + b"\n"}
        body = {
            "metadata": {"name": job_name(run_id), "labels": {KUBE_MANAGED_BY: "burn-in"}},
            "type": "Opaque",
            "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
        }
        try:
            self._api.create(SECRET, body, self._namespace)
        except PreconditionFailed:
            return

    def _end_others(self, run_id: str) -> None:
        """Take away the servers and the keys; what the launching pod said stays."""
        for job in self._api.list(JOB, self._namespace, labels=f"{_GROUP}={job_name(run_id)}"):
            if job["metadata"]["name"] != job_name(run_id):
                self._api.delete(JOB, str(job["metadata"]["name"]), self._namespace)
        self._api.delete(SECRET, job_name(run_id), self._namespace)


_GROUP = f"{KUBE_MANAGED_BY}-group"


def _part_of(run_id: str, place: int) -> str:
    return f"{run_id}/server-{place}"
