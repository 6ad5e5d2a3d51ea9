"""A control plane on an event loop of its own, for tests of the product's clients, which are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from kubernetes.config import new_client_from_config

import infra.kubernetes
from activities.clients.kubernetes_api import KubernetesClient
from infra.lab.kube.control_plane import ControlPlane

T = TypeVar("T")
WORKER, OBSERVER = "worker", "observer"

PATIENCE_S = 400


class Plane:
    """The control plane, with a user for each of the product's two roles."""

    def __init__(self, folder: Path, *, scheduler: bool = False, **options: Any) -> None:
        """`options` are those of `ControlPlane`."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.real = ControlPlane(folder, scheduler=scheduler, **options)
        self.real.add_user(WORKER, ["hotspare:k8s"])
        self.real.add_user(OBSERVER, ["hotspare:observe"])
        self.do(self.real.__aenter__())
        for file in ("namespace.yaml", "rbac.yaml"):
            self.do(self.real.apply(Path(infra.kubernetes.__path__[0]) / file))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def close(self) -> None:
        self.do(self.real.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def client(self, user: str) -> KubernetesClient:
        api = new_client_from_config(str(self.real.kubeconfig(user)), persist_config=False)
        return KubernetesClient(api, timeout_s=20.0)
