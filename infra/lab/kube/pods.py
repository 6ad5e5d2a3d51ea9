"""One pod on one lab node: its processes, its status, its restarts, and its end with a grace period."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.lab.changes import Changes
from infra.lab.kube.api import STRATEGIC_MERGE, KubeApi, Object, Refused
from infra.lab.kube.containers import POD_UID, CannotStart, PodFiles, Reach, command_of, gpus_of
from infra.lab.kube.nodes import answers, gpu_counts
from infra.lab.node import LabNode
from infra.lab.processes import kill, kill_group, processes_with

_LOOK_S = 0.2
"""Between looks at the node's state while something is waited for."""
_BACK_OFF_S, _BACK_OFF_MOST_S = 1.0, 30.0
"""Before a container is started again in its pod; the kubelet's are 10 s and five minutes."""
_NO_COMMAND = 128
"""Exit code that container runtimes give for a command that could not be started."""
_KILLED = 137


class Container:
    """A container of the pod: its specification, its present and last state as the API shows them, its process."""

    def __init__(self, spec: Object) -> None:
        self.spec = spec
        self.name = str(spec["name"])
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.last_state: Object = {}
        self.restarts = 0
        self.process: asyncio.subprocess.Process | None = None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last run, None while there is none."""
        code = (self.state.get("terminated") or {}).get("exitCode")
        return None if code is None else int(code)

    def status(self) -> Object:
        """Return its entry in the pod's status."""
        running = "running" in self.state
        return {
            "name": self.name,
            "image": self.spec.get("image") or "",
            "imageID": "",
            "ready": running,
            "started": running,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        }


class PodRun:
    """Lives as long as the pod is in the API. `see` and `vanish` tell it what the API says."""

    def __init__(self, api: KubeApi, node: LabNode, pod: Object, reach: Reach) -> None:
        self.node, self.pod = node, pod
        self._api = api
        self._files = PodFiles(api, node, pod, reach)
        self._vanished = False
        self._phase = "Pending"
        self._why: dict[str, str] = {}
        self._boots = node.boots
        self._changes = Changes()
        self._telling = asyncio.Lock()
        spec = pod["spec"]
        self._policy = spec.get("restartPolicy") or "Always"
        self._first = [Container(one) for one in spec.get("initContainers") or []]
        self._containers = [Container(one) for one in spec["containers"]]

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"]["uid"])

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])

    @property
    def running(self) -> bool:
        """Whether each container has a process now."""
        return all(one.process is not None and one.process.returncode is None for one in self._containers)

    def see(self, pod: Object) -> None:
        """Take in a change."""
        self.pod = pod
        self._changes.notify()

    def vanish(self) -> None:
        """Take in that the pod is gone from the API: deleted by force, or with its node."""
        self._vanished = True
        self._changes.notify()

    def _leaving(self) -> bool:
        return self._vanished or bool(self.pod["metadata"].get("deletionTimestamp"))

    async def _until(self, holds: Callable[[], bool], limit_s: float | None = None) -> None:
        end = None if limit_s is None else asyncio.get_running_loop().time() + limit_s
        while not holds() and (end is None or asyncio.get_running_loop().time() < end):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changes.wait_for(lambda: self._vanished or holds()), _LOOK_S)

    async def _answering(self) -> None:
        """Wait until the node's kubelet would be at work: nothing is told, started or ended by one that is not."""
        await self._until(lambda: self._vanished or answers(self.node))

    async def live(self) -> None:
        """Run the pod to its end, and wait until it is gone from the API."""
        life = asyncio.ensure_future(self._run())
        try:
            await self._until(self._leaving)
            await self._answering()
            if not self._vanished:
                await self._end_with_grace()
            self._kill()
            await life
            await self._delete()
        finally:
            life.cancel()
            self._kill()
            await asyncio.gather(life, return_exceptions=True)

    async def _run(self) -> None:
        await self._answering()
        if (self.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or self._leaving():
            return
        if refusal := self._refusal():
            self._phase, self._why = "Failed", refusal
            await self._tell()
            return
        for container in self._first:
            await self._run_container(container)
            if self._leaving() or container.exit_code:
                break
        if not self._leaving() and not any(one.exit_code for one in self._first):
            await asyncio.gather(*(self._run_container(one) for one in self._containers))
        if not self._leaving():
            codes = [one.exit_code for one in (*self._first, *self._containers)]
            self._phase = "Succeeded" if all(code == 0 for code in codes) else "Failed"
            await self._tell()

    def _refusal(self) -> dict[str, str]:
        """Say why the node does not take the pod: the device plugin has fewer GPUs than it asks for."""
        asked = sum(gpus_of(one.spec) for one in self._containers)
        offered = gpu_counts(self.node)[1]
        if asked <= offered:
            return {}
        message = f"Allocate failed due to requested number of devices unavailable. Requested: {asked}, available: {offered}"
        return {"reason": "UnexpectedAdmissionError", "message": message}

    async def _run_container(self, container: Container) -> None:
        """Run a container as often as the pod's restart policy wants it."""
        again = "OnFailure" if container in self._first and self._policy == "Always" else self._policy
        wait_s = _BACK_OFF_S
        while not self._leaving():
            await self._run_once(container)
            if self._vanished:
                return
            await self._tell()
            if again == "Never" or self._leaving() or (again == "OnFailure" and container.exit_code == 0):
                return
            container.last_state = container.state
            container.state = {
                "waiting": {"reason": "CrashLoopBackOff", "message": f"back-off {wait_s:.0f}s restarting {container.name}"}
            }
            await self._tell()
            await self._until(self._leaving, wait_s)
            wait_s = min(2 * wait_s, _BACK_OFF_MOST_S)
            await self._answering()
            container.restarts += 1

    async def _run_once(self, container: Container) -> None:
        began = _now()
        code, reason, message = _NO_COMMAND, "StartError", ""
        try:
            await self._start(container)
        except CannotStart as error:
            message = str(error)
        except OSError as error:
            message = f"exec failed: {error}"
        else:
            began = _now()
            container.state = {"running": {"startedAt": began}}
            if container in self._containers:
                self._phase = "Running"
            boots = self.node.boots
            await self._tell()
            assert container.process is not None
            code = await container.process.wait()
            self.node.end_work(container.process)
            code = code if code >= 0 else 128 - code
            reason = "Completed" if code == 0 else "Error"
            await self._answering()
            if self.node.boots != boots:
                code, reason = _KILLED, "ContainerStatusUnknown"
                message = "The container could not be located when the pod was terminated"
        container.state = {
            "terminated": {"exitCode": code, "reason": reason, "message": message, "startedAt": began, "finishedAt": _now()}
        }

    async def _start(self, container: Container) -> None:
        mounts = await self._files.mounts(container.spec)
        environment = await self._files.environment(container.spec, mounts)
        command = command_of(container.spec, environment, mounts)
        await self._answering()
        if self._leaving():
            raise CannotStart("the pod was deleted before it was started")
        with self._log(container).open("ab") as log:
            streams = {"stdout": log.fileno(), "stderr": log.fileno()}
            if gpus_of(container.spec):
                name = Path(command[0]).name
                container.process = await self.node.start_work(name, command, more=environment, **streams)
            else:
                cwd = container.spec.get("workingDir")
                cwd = mounts.put_into(cwd) if cwd else None
                container.process = await self.node.processes.start(command, more=environment, cwd=cwd, **streams)

    def _log(self, container: Container) -> Path:
        meta = self.pod["metadata"]
        folder = self.node.root / "var/log/pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}" / container.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{container.restarts}.log"

    async def _end_with_grace(self) -> None:
        """SIGTERM, then as long as the deletion allows."""
        for one in (*self._first, *self._containers):
            if one.process is not None and one.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.process.pid, signal.SIGTERM)
        await self._until(lambda: self._vanished or not self._has_process(), self._grace_s())

    def _grace_s(self) -> float:
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds")
        return float(30 if grace is None else grace)

    def _has_process(self) -> bool:
        every = (*self._first, *self._containers)
        return any(one.process is not None and one.process.returncode is None for one in every)

    def _kill(self) -> None:
        """Kill what is left of the pod, wherever its processes have gone."""
        for one in (*self._first, *self._containers):
            if one.process is not None:
                kill_group(one.process)
        if any(one.process is not None for one in (*self._first, *self._containers)):
            for pid in processes_with(f"{POD_UID}={self.uid}".encode()):
                kill(pid)

    async def _delete(self) -> None:
        """Tell how it ended, then take the pod out of the API, as the last word of a kubelet."""
        if self._vanished:
            return
        for one in self._containers:
            if "running" in one.state:
                one.state = {"terminated": {"exitCode": _KILLED, "reason": "Error", "startedAt": _now(), "finishedAt": _now()}}
        if self._phase not in ("Succeeded", "Failed"):
            codes = [one.exit_code for one in self._containers]
            self._phase = "Succeeded" if codes and all(code == 0 for code in codes) else "Failed"
        await self._tell()
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        with contextlib.suppress(Refused):  # another pod has the name by now
            await self._api.insist("DELETE", self._path, body)
        await self._until(lambda: self._vanished)  # finalizers of others may keep it

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.pod['metadata']['namespace']}/pods/{self.name}"

    async def _tell(self) -> None:
        """Write the status as it is now."""
        async with self._telling:
            if self._vanished:
                return
            body = {"metadata": {"uid": self.uid}, "status": self._status()}
            with contextlib.suppress(Refused):  # 409: another pod has the name by now; the watch tells of it
                await self._api.insist("PATCH", f"{self._path}/status", body, content_type=STRATEGIC_MERGE)

    def _status(self) -> Object:
        ready = "True" if self._phase == "Running" and self.running else "False"
        first = "True" if all(one.exit_code == 0 for one in self._first) else "False"
        conditions: list[dict[str, Any]] = [
            {"type": "PodReadyToStartContainers", "status": "True"},
            {"type": "Initialized", "status": first},
            {"type": "ContainersReady", "status": ready},
            {"type": "Ready", "status": ready},
        ]
        status: Object = {
            "phase": self._phase,
            "conditions": conditions,
            "hostIP": self.node.ip,
            "hostIPs": [{"ip": self.node.ip}],
            "podIP": self.node.ip,
            "podIPs": [{"ip": self.node.ip}],
            "startTime": (self.pod.get("status") or {}).get("startTime") or _now(),
            "containerStatuses": [one.status() for one in self._containers],
            **self._why,
        }
        if self._first:
            status["initContainerStatuses"] = [one.status() for one in self._first]
        return status


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
