"""`NodeAccess` without a login: every command is a Job of Kubernetes pinned to the node, its result a ConfigMap owned by the Job.

The kernel log is not followed here: the DaemonSet's agent reads it on the node and reports to the intake.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from activities.clients.pod_spec import file_config_map, job_name, run_job, spec_of
from activities.clock import Clock, SystemClock, beat
from activities.errors import CapabilityMissing, CommandFailed, DeadlinePassed, HotspareError, NodeUnreachable, PreconditionFailed
from activities.inventory import Node
from activities.kubernetes import CONFIG_MAP, JOB, LEASE, NODE, POD, KubernetesApi, Object, instance_id_of
from activities.names import ROLE_HEAD
from activities.node_access import LOST, AccessTo, CommandResult, DetachedRun, NodeAccess
from activities.settings_access import AccessSettings
from activities.settings_jobs import KubernetesSettings

FILE_LIMIT_BYTES = 700_000
"""Largest file that is put on a node. Source: a ConfigMap holds 1 MiB."""

ENDS_NODE = ("reboot", "shutdown", "poweroff")

_PUT = re.compile(r"^files/([^/]+)/[^/]+$")
"""A file that was put: a path in the folder in which commands run."""


@dataclass(frozen=True)
class Result:
    """What the ConfigMap of a run says: nothing yet (`exit_status` None), or how it ended."""

    began: bool = False
    exit_status: int | None = None
    timed_out: bool = False
    stdout: str = ""
    stderr: str = ""


class AgentAccess:
    """Access to one node. `name_of` gives the name of its Node object."""

    def __init__(
        self,
        api: KubernetesApi,
        node: Node,
        name_of: Callable[[Node], str],
        access: AccessSettings,
        kubernetes: KubernetesSettings,
        clock: Clock | None = None,
    ) -> None:
        self._api, self._node, self._name_of = api, node, name_of
        self._access, self._namespace = access, kubernetes.namespace
        self._runs = PodRuns(api, kubernetes.namespace)
        self._clock = clock or SystemClock()

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        run_id = f"once/{uuid.uuid4()}"
        limit = output_limit or self._access.output_limit
        self._start(run_id, command, deadline_s, limit, joined=False)
        try:
            result = self._await(run_id, command, deadline_s)
        finally:
            self._runs.forget(run_id)
        out, err = result.stdout[-limit:], result.stderr[-limit:]
        return CommandResult(exit_status=result.exit_status or 0, stdout=out, stderr=err)

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        self._start(run_id, command, deadline_s, self._access.output_limit, joined=True)

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        self._ready_node()
        return self._runs.poll(run_id)

    def kill(self, run_id: str) -> None:
        self._ready_node()
        self._runs.kill(run_id)

    def put(self, file: Path, digest: str) -> str:
        self._ready_node()
        content = file.read_bytes()
        if len(content) > FILE_LIMIT_BYTES:
            raise CapabilityMissing(
                f"{file.name} has {len(content)} bytes; at most {FILE_LIMIT_BYTES} travel to a node that is reached by agent"
            )
        body = file_config_map(digest, content, self._namespace)
        if self._api.get(CONFIG_MAP, body["metadata"]["name"], self._namespace) is None:
            _made(lambda: self._api.create(CONFIG_MAP, body, self._namespace))
        return f"files/{digest}/{file.name}"

    def follow_kernel_log(self) -> Iterator[str]:
        self._ready_node()  # one that is down says so first
        raise CapabilityMissing(f"{self._node.name} is reached by agent: the agent on it follows its kernel log and reports it")

    def boot_id(self, deadline_s: float) -> str:
        found = self._ready_node()
        boot_id = str(found.get("status", {}).get("nodeInfo", {}).get("bootID") or "")
        if not boot_id:
            raise CommandFailed(f"{self._node.name}: its kubelet has not told the boot id yet")
        return boot_id

    def capabilities(self) -> frozenset[str]:
        return frozenset({"run", "start", "put"})

    def close(self) -> None:
        """Nothing is open."""

    def _start(self, run_id: str, command: list[str], deadline_s: float, limit: int, *, joined: bool) -> None:
        found = self._ready_node()
        words = command[2:] if command[:2] == ["sudo", "-n"] else command
        if Path(words[0]).name in ENDS_NODE:
            raise CapabilityMissing(f"{self._node.name} is reached by agent: it is restarted through EC2, not by a command")
        files = [
            {"name": file_config_map(place.group(1), b"", "")["metadata"]["name"], "path": place.string}
            for place in map(_PUT.match, words)
            if place
        ]
        spec = spec_of(run_id, words, deadline_s, limit, self._namespace, files=files, joined=joined)
        job = run_job(run_id, spec, found["metadata"]["name"], self._access, keep=joined, start_s=self._access.agent_start_s)
        self._runs.start(run_id, job)

    def _await(self, run_id: str, command: list[str], deadline_s: float) -> Result:
        asked, began = self._clock.now(), None
        while True:
            result = self._runs.result(run_id)
            now = self._clock.now()
            began = now if began is None and result.began else began
            if result.exit_status is not None:
                if result.timed_out:
                    break
                return result
            if began is not None and now - began >= deadline_s + self._access.pods.result_grace_s:
                break
            if began is None and now - asked >= self._access.agent_start_s:
                raise NodeUnreachable(f"{self._node.name}: no pod could be started there: {self._runs.hindrance(run_id)}")
            if (ended := self._runs.ended_badly(run_id)) and self._runs.result(run_id).exit_status is None:
                raise NodeUnreachable(f"{self._node.name}: the pod that ran {Path(command[0]).name} is gone: {ended}")
            self._ready_node()
            self._clock.wait(self._access.pods.look_s)
            beat()
        what = " ".join(Path(word).name for word in command[:2])
        raise DeadlinePassed(f"{self._node.name}: no end of {what} within {deadline_s:.0f} s")

    def _ready_node(self) -> Object:
        """Return the Node; raises NodeUnreachable where its kubelet does not answer Kubernetes."""
        name = self._name_of(self._node)
        found = self._api.get(NODE, name)
        if found is None:
            raise NodeUnreachable(f"{self._node.name}: Kubernetes has no node {name}")
        ready: Object = next((one for one in found.get("status", {}).get("conditions", []) if one.get("type") == "Ready"), {})
        if ready.get("status") != "True":
            why = ready.get("message") or ready.get("reason") or "it has no condition Ready"
            raise NodeUnreachable(f"{self._node.name}: Kubernetes says it is not Ready: {why}")
        if (age_s := self._lease_age_s(name)) > self._access.pods.lease_max_age_s:
            raise NodeUnreachable(f"{self._node.name}: its kubelet was last heard of {age_s:.0f} s ago")
        return found

    def _lease_age_s(self, name: str) -> float:
        """Seconds since the kubelet renewed its lease; 0 where the lease cannot be seen, and Ready alone counts."""
        try:
            lease = self._api.get(LEASE, name, "kube-node-lease")
            renewed = datetime.fromisoformat(str((lease or {})["spec"]["renewTime"]))
        except (HotspareError, KeyError, ValueError):
            return 0.0
        return (datetime.now(UTC) - renewed).total_seconds()


class PodRuns:
    """Runs as Jobs, by run id: what node access and burn-in launcher have in common."""

    def __init__(self, api: KubernetesApi, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def start(self, run_id: str, job: Object) -> None:
        """Make the Job and the ConfigMap of its result; what is there already stays as it is."""
        made = _made(lambda: self._api.create(JOB, job, self._namespace))
        made = made or self._api.get(JOB, job_name(run_id), self._namespace)
        if made is None:
            raise NodeUnreachable(f"the Job of run {run_id} vanished while it was started")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
        labels = made["metadata"].get("labels", {})
        metadata = {"name": job_name(run_id), "namespace": self._namespace, "labels": labels, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        _made(lambda: self._api.create(CONFIG_MAP, body, self._namespace))

    def poll(self, run_id: str) -> DetachedRun:
        """Look at a run; `LOST` when its pod is gone without a result."""
        job = self._api.get(JOB, job_name(run_id), self._namespace)
        if job is None:
            return DetachedRun(run_id=run_id, known=False)
        ended = _failed(job)  # looked at before the result: the other way round, one written in between would be lost
        result = self.result(run_id)
        status = LOST if result.exit_status is None and ended else result.exit_status
        return DetachedRun(run_id=run_id, known=True, exit_status=status, output=result.stdout + result.stderr)

    def kill(self, run_id: str) -> None:
        """Let the Job's deadline pass now: its pod gets a signal and goes; the Job stays known until it is cleaned up."""
        if self._api.get(JOB, job_name(run_id), self._namespace) is not None:
            self._api.patch(JOB, job_name(run_id), {"spec": {"activeDeadlineSeconds": 1}}, self._namespace)

    def forget(self, run_id: str) -> None:
        """Delete the Job, with its pod and results."""
        self._api.delete(JOB, job_name(run_id), self._namespace)

    def result(self, run_id: str) -> Result:
        """Read what the run has written so far."""
        name = job_name(run_id)
        found = self._api.get(CONFIG_MAP, name, self._namespace)
        state: dict[str, Any] = json.loads((found or {}).get("data", {}).get("state") or "{}")
        first = str((found or {}).get("binaryData", {}).get("output-0") or "")
        rest = "".join(self._chunk(f"{name}-{number}") for number in range(1, int(state.get("chunks", 1))))
        text = gzip.decompress(base64.b64decode(first + rest)) if first else b"{}"
        streams = json.loads(text)
        timed_out = bool(state.get("timed_out"))
        return Result(bool(state), state.get("exit_status"), timed_out, streams.get("stdout", ""), streams.get("stderr", ""))

    def _chunk(self, name: str) -> str:
        found = self._api.get(CONFIG_MAP, name, self._namespace)
        if found is None:
            raise CommandFailed(f"a part of a result is gone: ConfigMap {self._namespace}/{name}")
        return str(found["binaryData"]["output"])

    def ended_badly(self, run_id: str) -> str:
        """Say why the Job ended without success, empty while it has not."""
        job = self._api.get(JOB, job_name(run_id), self._namespace)
        return "somebody deleted its Job" if job is None else _failed(job)

    def hindrance(self, run_id: str) -> str:
        """Say in Kubernetes' words why the pod of a run does not run."""
        for pod in self._api.list(POD, self._namespace, labels=f"job-name={job_name(run_id)}"):
            status = pod.get("status", {})
            for container in status.get("containerStatuses", []):
                if waits := container.get("state", {}).get("waiting"):
                    return f"{waits.get('reason', 'waiting')}: {waits.get('message', '')}"[:300]
            told = [one.get("message", "") for one in status.get("conditions", []) if one.get("status") == "False"]
            phase = f"its pod is {status.get('phase', 'Pending')}"
            return str(status.get("message") or "; ".join(filter(None, told)) or phase)[:300]
        return self.ended_badly(run_id) or "its Job has made no pod"


class AgentAccessTo:
    """`AccessTo` by agent. Head nodes are no nodes of Kubernetes, people log in there: they are reached by `heads`."""

    def __init__(
        self, api: KubernetesApi, access: AccessSettings, kubernetes: KubernetesSettings, heads: Callable[[], AccessTo]
    ) -> None:
        self._api, self._access, self._kubernetes, self._heads = api, access, kubernetes, heads
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}

    def __call__(self, node: Node) -> NodeAccess:
        if node.role == ROLE_HEAD:
            return self._heads()(node)
        return AgentAccess(self._api, node, self.name_of, self._access, self._kubernetes)

    def name_of(self, node: Node) -> str:
        """Return the name of the node's object in Kubernetes. Raises NodeUnreachable where it has none (yet)."""
        with self._lock:
            if node.instance_id in self._names:
                return self._names[node.instance_id]
            found = {instance_id_of(one): str(one["metadata"]["name"]) for one in self._api.list(NODE)}
            self._names = {key: name for key, name in found.items() if key}
        if node.instance_id not in found:
            raise NodeUnreachable(f"{node.name}: no node of Kubernetes has the instance id {node.instance_id}")
        return found[node.instance_id]


def _failed(job: Object) -> str:
    """Why a Job has failed or is failing; of one that is complete, that it is. Empty while it runs."""
    for one in job.get("status", {}).get("conditions", []):
        if one.get("status") == "True" and one.get("type") in ("Failed", "FailureTarget", "Complete"):
            return f"{one.get('reason', one['type'])}: {one.get('message', '')}".rstrip(": ")
    return ""


def _made(create: Callable[[], Object]) -> Object | None:
    """Create an object; None where there is one of its name."""
    try:
        return create()
    except PreconditionFailed:
        return None
