"""What a run on a node looks like to Kubernetes: the Job that is pinned there, and the ConfigMaps of files and results."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from activities.clients import pod_run
from activities.errors import BadInput
from activities.kubernetes import Object
from activities.names import KUBE_MANAGED_BY
from activities.settings_access import AccessSettings

HOST_ROOT = "/host"
"""Where the node's root file system is mounted in every pod of ours: `checks/host.py` looks there."""

HOME = f"{HOST_ROOT}/var/lib/hotspare"
"""Folder on the node that outlives pods: files that were put there, unpacked checks. /var can be written on Bottlerocket too."""

API_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
SERVICE_ACCOUNT = "hotspare-run"
"""What a run may do in Kubernetes: write results (infra/kubernetes/agent.yaml)."""

PACE = ("term_grace_s", "shown_every_s", "shown_bytes", "ready_after_s", "write_for_s")
"""Settings of pods that the run itself must know."""


def job_name(run_id: str) -> str:
    """Name of the Job of a run and of its result: readable, safe, and different for different ids."""
    readable = re.sub(r"[^a-z0-9]+", "-", run_id.lower()).strip("-")[:36].strip("-")
    return f"hotspare-run-{readable}-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def file_config_map(digest: str, content: bytes, namespace: str) -> Object:
    """The ConfigMap that carries a file to the nodes."""
    name = f"hotspare-file-{hashlib.sha256(digest.encode()).hexdigest()[:20]}"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {KUBE_MANAGED_BY: "file"}},
        "immutable": True,
        "binaryData": {"content": base64.b64encode(content).decode()},
    }


def spec_of(
    run_id: str, command: list[str], deadline_s: float, limit: int, namespace: str, *, joined: bool, **more: Any
) -> dict[str, Any]:
    """What `pod_run` is told. `joined`: both streams are one, and shown while the command runs."""
    return {
        "result": job_name(run_id),
        "namespace": namespace,
        "command": command,
        "deadline_s": deadline_s,
        "limit": limit,
        "joined": joined,
        **more,
    }


def run_job(
    run_id: str,
    spec: dict[str, Any],
    node_name: str,
    access: AccessSettings,
    *,
    keep: bool,
    start_s: float,
    image: str = "",
    pod: dict[str, Any] | None = None,
    volume_mounts: list[dict[str, Any]] | None = None,
) -> Object:
    """The Job that carries out one run on one node, cordoned or not. `pod` is merged into the pod's specification."""
    image = image or access.agent_image
    if not image:
        raise BadInput("access.agent_image is not set; with access.kind = agent it names the image of the checks")
    labels = {KUBE_MANAGED_BY: "run"}
    pods = access.pods
    limit_s = int(spec["deadline_s"] + spec.get("waits_s", 0.0) + start_s) + pods.backstop_s
    told = {**spec, "pace": pods.model_dump(include=set(PACE))}
    text = Path(pod_run.__file__).read_text(encoding="utf-8")
    container = {
        "name": "run",
        "image": image,
        "command": [access.python, "-I", "-c", text, json.dumps(told)],
        "env": _environment(),
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [{"name": "host", "mountPath": HOST_ROOT, "mountPropagation": "HostToContainer"}, *(volume_mounts or [])],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }
    more = pod or {}
    pod_spec = {
        **more,
        "nodeName": node_name,
        "restartPolicy": "Never",
        "serviceAccountName": SERVICE_ACCOUNT,
        "hostPID": True,
        "hostNetwork": True,
        "hostIPC": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": 20,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}, *more.get("volumes", [])],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(run_id), "labels": labels, "annotations": {f"{KUBE_MANAGED_BY}-run": run_id[:500]}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": limit_s,
            "ttlSecondsAfterFinished": pods.keep_s if keep else pods.keep_once_s,
            "template": {"metadata": {"labels": labels}, "spec": pod_spec},
        },
    }


def _environment() -> list[dict[str, str]]:
    """`NVIDIA_*` let NVIDIA's container runtime mount the driver's library and tools, without taking a GPU from anybody."""
    values = {
        "HOTSPARE_HOST_ROOT": HOST_ROOT,
        "HOME": HOME,
        "HOTSPARE_API_DIR": API_DIR,
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    return [{"name": name, "value": value} for name, value in values.items()]
