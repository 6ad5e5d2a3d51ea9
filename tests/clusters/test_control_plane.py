"""The control plane itself: users, restarts, dead nodes, a thousand nodes without machines, and no leftovers."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from pathlib import Path

import httpx
import pytest

from infra.lab.kube.components import wait_for
from infra.lab.kube.control_plane import ControlPlane, KubectlFailed

pytestmark = pytest.mark.asyncio(loop_scope="module")

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def test_a_user_may_do_what_rbac_says_and_no_more(control_plane: ControlPlane) -> None:
    with pytest.raises(KubectlFailed, match='User "hotspare" cannot list resource "nodes"'):
        await control_plane.kubectl("get", "nodes", user="hotspare")
    await control_plane.kubectl("create", "clusterrole", "looks", "--verb=get,list", "--resource=nodes")
    await control_plane.kubectl("create", "clusterrolebinding", "looks", "--clusterrole=looks", "--user=hotspare")
    assert await control_plane.kubectl("get", "nodes", "--output=name", user="hotspare") == ""
    with pytest.raises(KubectlFailed, match="cannot delete resource"):
        await control_plane.kubectl("delete", "node", "any", user="hotspare")


async def test_nobody_without_a_token_gets_in(control_plane: ControlPlane) -> None:
    async with httpx.AsyncClient(
        verify=ssl.create_default_context(cafile=str(control_plane.ca_file)), trust_env=False
    ) as stranger:
        assert (await stranger.get(f"{control_plane.url}/api/v1/nodes")).status_code == 401


async def test_kubectl_and_the_server_are_of_the_pinned_version(control_plane: ControlPlane) -> None:
    assert "Server Version: v1.36.3" in await control_plane.kubectl("version")


async def test_a_node_whose_lease_is_not_renewed_turns_unreachable(control_plane: ControlPlane) -> None:
    await control_plane.add_kwok_nodes(1)  # when no node is Ready, Kubernetes blames itself and evicts nothing
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "silent"}}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    await control_plane.request("POST", "/api/v1/nodes", node | {"status": {"conditions": [ready]}})
    lease = {"metadata": {"name": "silent"}, "spec": {"holderIdentity": "silent", "leaseDurationSeconds": 5}}
    await control_plane.request("POST", _LEASES, lease)

    async def unreachable() -> bool:
        found = await control_plane.request("GET", "/api/v1/nodes/silent")
        taints = {(taint["key"], taint["effect"]) for taint in found["spec"].get("taints", [])}
        return ("node.kubernetes.io/unreachable", "NoExecute") in taints

    await wait_for("the taint of a silent node", unreachable)
    await control_plane.kubectl("delete", "node", "silent")


async def test_the_api_server_comes_back_at_its_address_and_has_forgotten_its_watches(control_plane: ControlPlane) -> None:
    before = await control_plane.request("GET", "/api/v1/configmaps")
    old = before["metadata"]["resourceVersion"]
    for number in range(3):
        await control_plane.kubectl("create", "configmap", f"later-{number}")
    url = control_plane.url
    await control_plane.restart_api_server()
    assert control_plane.url == url
    listed = await control_plane.request("GET", "/api/v1/namespaces/default/configmaps")
    assert {item["metadata"]["name"] for item in listed["items"]} >= {"later-0", "later-1", "later-2"}
    watch = f"/api/v1/configmaps?watch=1&resourceVersion={old}&timeoutSeconds=1"
    async with httpx.AsyncClient(verify=ssl.create_default_context(cafile=str(control_plane.ca_file)), trust_env=False) as client:
        answer = await client.get(f"{url}{watch}", headers={"Authorization": f"Bearer {control_plane.token()}"})
    assert '"code":410' in answer.text or answer.text.count('"ADDED"') >= 3  # expired, or replayed from etcd: never a gap


async def test_a_thousand_nodes_without_machines_are_ready(tmp_path: Path) -> None:
    async with ControlPlane(tmp_path / "many", node_grace_s=40.0) as plane:
        names = await plane.add_kwok_nodes(1000)
        assert len(set(names)) == 1000
        lines = (await plane.kubectl("get", "nodes", "--no-headers")).splitlines()
        assert sum(" Ready " in line for line in lines) == 1000


async def test_a_control_plane_whose_owner_is_killed_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "orphan"
    code = (
        "import asyncio, pathlib, sys\n"
        "from infra.lab.kube.control_plane import ControlPlane\n"
        "async def main():\n"
        f"    async with ControlPlane(pathlib.Path({str(folder)!r}), scheduler=False, controller_manager=False):\n"
        "        print('up', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, env=environment)
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"up\n"
    assert len(_processes_in(folder)) == 2  # etcd and the API server
    owner.send_signal(signal.SIGKILL)
    await owner.wait()

    async def gone() -> bool:
        return not _processes_in(folder)

    await wait_for("the end of the orphans", gone)


def _processes_in(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder.resolve():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
