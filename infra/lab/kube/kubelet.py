"""The kubelets of all lab nodes in one: runs the pods bound to them as processes on those nodes. No more kubelet than that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from infra.lab.kube.api import KubeApi, Object
from infra.lab.kube.containers import Reach
from infra.lab.kube.nodes import KubeNodes
from infra.lab.kube.pods import PodRun

log = logging.getLogger("hotspare.lab.kube")


class Kubelet:
    """Watches pods. Each that is bound to a lab node has a `PodRun` until it is gone from the API."""

    def __init__(self, api: KubeApi, nodes: KubeNodes, address: tuple[str, int], ca_file: Path, image: Path) -> None:
        """`address` and `ca_file` are how pods reach the API server; `image` is a folder of commands that every image has."""
        self._api, self._nodes = api, nodes
        self._reach = Reach(address, ca_file, image)
        self._runs: dict[str, PodRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def runs(self) -> Mapping[str, PodRun]:
        """The pods that the nodes have, by uid."""
        return self._runs

    def start(self) -> None:
        """Begin."""
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """Leave everything; processes of pods end."""
        tasks = [task for task in (self._watching, *self._tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        async for kind, found in self._api.watch("/api/v1/pods"):
            if kind == "LIST":
                there = {pod["metadata"]["uid"] for pod in found}
                for uid in set(self._runs) - there:
                    self._runs[uid].vanish()
                for pod in found:
                    self._see(pod)
            elif kind == "DELETED":
                if run := self._runs.get(found["metadata"]["uid"]):
                    run.vanish()
            else:
                self._see(found)

    def _see(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if run := self._runs.get(uid):
            run.see(pod)
            return
        node = self._nodes.by_kube_name(pod["spec"].get("nodeName") or "")
        if node is None:
            return
        self._runs[uid] = run = PodRun(self._api, node, pod, self._reach)
        self._tasks[uid] = task = asyncio.ensure_future(run.live())
        task.add_done_callback(lambda done: self._done(uid, done))

    def _done(self, uid: str, task: asyncio.Task[None]) -> None:
        self._runs.pop(uid, None)
        self._tasks.pop(uid, None)
        if not task.cancelled() and (error := task.exception()):
            log.error("a pod was lost", exc_info=error)
