"""Launches group runs of all_reduce_perf as an MPIJob of Kubeflow's training operator (kubeflow.org/v1), on the group's nodes.

The operator makes a worker on each node and a launcher on the first; its kubectl is how mpirun reaches the workers, so no keys
are made and nobody logs in. Needs `access.agent_tools_image`, an image with mpirun and all_reduce_perf, and the objects of
infra/kubernetes/agent.yaml.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from activities.clients.agent_access import AgentAccessTo, PodRuns
from activities.clients.launching import around, filled, over_rail, slots, words_of
from activities.clients.pod_spec import job_name, run_job, spec_of
from activities.errors import BadInput, NodeUnreachable, PreconditionFailed
from activities.inventory import Node
from activities.kubernetes import CONFIG_MAP, MPI_JOB, KubernetesApi, Object
from activities.names import KUBE_MANAGED_BY, PREFIX
from activities.node_access import LOST, DetachedRun
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from activities.settings_jobs import KubernetesSettings

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Lets mpirun run as the pod's user. Source: mpirun(1) of Open MPI 4.1."""

HOST_NAME = "kubernetes.io/hostname"


class MpiJobLauncher:
    """`BurnInLauncher` by MPIJobs; the result is where a run's result always is."""

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
        self._start(run_id, nodes, deadline_s, {})

    def start_over(self, rail: int, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        single, only = over_rail(nodes, rail)
        self._start(run_id, single, deadline_s, only)

    def _start(self, run_id: str, nodes: list[Node], deadline_s: float, more: dict[str, str]) -> None:
        if not self._access.agent_tools_image:
            raise BadInput('access.agent_tools_image is not set; burn_in.launcher = "mpijob" runs mpirun from it')
        name = mpi_job_name(run_id)
        workers = [f"{name}-worker-{place}" for place in range(len(nodes))]
        command = filled(self._burn_in.command, words_of(self._burn_in, nodes, workers))
        line = around(self._burn_in, command, run_id, nodes, more | AS_ROOT)
        job = self._job(run_id, name, line, nodes, deadline_s)
        try:
            made = self._api.create(MPI_JOB, job, self._namespace)
        except PreconditionFailed:
            found = self._api.get(MPI_JOB, name, self._namespace)
            if found is None:
                raise NodeUnreachable(f"the MPIJob of run {run_id} vanished while it was started") from None
            made = found
        self._make_result(run_id, made)

    def poll(self, run_id: str, nodes: Sequence[Node] = ()) -> DetachedRun:
        job = self._api.get(MPI_JOB, mpi_job_name(run_id), self._namespace)
        if job is None:
            return DetachedRun(run_id=run_id, known=False)
        ended = _ended(job)  # looked at before the result: the other way round, one written in between would be lost
        result = self._runs.result(run_id)
        status = LOST if result.exit_status is None and ended else result.exit_status
        return DetachedRun(run_id=run_id, known=True, exit_status=status, output=result.stdout + result.stderr)

    def kill(self, run_id: str, nodes: Sequence[Node] = ()) -> None:
        """Let the job's deadline pass now: the operator takes its pods away, and the job stays known until it is cleaned up."""
        name = mpi_job_name(run_id)
        if self._api.get(MPI_JOB, name, self._namespace) is not None:
            self._api.patch(MPI_JOB, name, {"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}}, self._namespace)

    def _job(self, run_id: str, name: str, command: list[str], nodes: list[Node], deadline_s: float) -> Object:
        names = [self._access_to.name_of(node) for node in nodes]
        wait_s = self._access.agent_start_s
        limit_s = int(deadline_s + wait_s) + self._access.pods.backstop_s
        launch = spec_of(run_id, command, deadline_s, self._burn_in.output_limit, self._namespace, joined=True)
        launcher = self._template(run_id, launch, names[0])
        worker = self._template(run_id, launch, names[0])
        worker.pop("nodeName")
        worker["containers"][0]["command"] = ["sleep", str(limit_s)]
        worker["affinity"] = _one_on_each(names, name)
        worker.pop("serviceAccountName")
        roles = {"Launcher": (1, launcher), "Worker": (len(nodes), worker)}
        return {
            "apiVersion": MPI_JOB.api_version,
            "kind": MPI_JOB.name,
            "metadata": {
                "name": name,
                "labels": {KUBE_MANAGED_BY: "burn-in"},
                "annotations": {f"{KUBE_MANAGED_BY}-run": run_id[:500]},
            },
            "spec": {
                "slotsPerWorker": slots(self._burn_in, nodes)[0],
                "runPolicy": {
                    "cleanPodPolicy": "All",
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": limit_s,
                    "ttlSecondsAfterFinished": self._access.pods.keep_s,
                },
                "mpiReplicaSpecs": {
                    role: {
                        "replicas": count,
                        "restartPolicy": "Never",
                        "template": {"metadata": {"labels": {_RUN: name, KUBE_MANAGED_BY: "run"}}, "spec": pod},
                    }
                    for role, (count, pod) in roles.items()
                },
            },
        }

    def _template(self, run_id: str, spec: dict[str, Any], node_name: str) -> dict[str, Any]:
        """The pod of a run on a node, whose restart policy is the operator's to set."""
        access = self._access
        job = run_job(run_id, spec, node_name, access, keep=True, start_s=access.agent_start_s, image=access.agent_tools_image)
        pod: dict[str, Any] = job["spec"]["template"]["spec"]
        pod.pop("restartPolicy")
        pod["containers"][0]["name"] = "mpi"  # the operator's name for the container of the run
        return pod

    def _make_result(self, run_id: str, job: Object) -> None:
        meta = job["metadata"]
        owner = {"apiVersion": MPI_JOB.api_version, "kind": MPI_JOB.name, "name": meta["name"], "uid": meta["uid"]}
        metadata = {"name": job_name(run_id), "labels": {KUBE_MANAGED_BY: "run"}, "ownerReferences": [owner]}
        try:
            self._api.create(CONFIG_MAP, {"metadata": metadata}, self._namespace)
        except PreconditionFailed:
            return


_RUN = f"{KUBE_MANAGED_BY}-group"


def mpi_job_name(run_id: str) -> str:
    """Name of the MPIJob of a run; short, because the operator makes longer ones of it."""
    return f"{PREFIX}-mpi-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def _one_on_each(names: Sequence[str], run: str) -> dict[str, Any]:
    """Put one worker on each of these nodes."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names]
    apart = {"labelSelector": {"matchLabels": {_RUN: run, _ROLE: "worker"}}, "topologyKey": HOST_NAME}
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
    }


_ROLE = "training.kubeflow.org/replica-type"
"""Label by which the operator tells its workers from its launcher."""


def _ended(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return any(one.get("type") in ("Succeeded", "Failed") and one.get("status") == "True" for one in conditions)
