"""The Helm chart with the real helm on a real control plane: linted, taken by the API server, installed, changed, taken away."""

from __future__ import annotations

import asyncio
import json
import os
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml  # type: ignore[import-untyped]

from infra.lab.kube.assets import binary
from infra.lab.kube.components import wait_for
from infra.lab.kube.control_plane import ControlPlane
from workers.cli.app import exit_status
from workers.cli.manifests import write_manifests
from workers.settings import parse_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACE = "gpu-repair"
KUBERNETES = "1.36.0"
"""What `helm template`, which asks no cluster, takes for the cluster's version."""
GIVEN = ("--set", "image.repository=registry.internal/hotspare", "--set", "temporal.address=temporal.internal:7233")
SPLIT = (*GIVEN, "--set", "split=true,observe=false,agent.enabled=true")
PARTS = {"watcher", "intake", "control", "aws", "k8s", "ssh", "notify"}
DECLARED = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount", "DaemonSet")


class HelmFailed(AssertionError):
    """helm ended with an error. The message is what it printed."""


class Helm:
    """helm, the chart as `hotspare manifests` writes it, and a cluster where there is one."""

    def __init__(self, folder: Path, plane: ControlPlane | None = None) -> None:
        write_manifests(folder / "release", False)
        self.plain, self.chart = folder / "release", folder / "release" / "helm" / "hotspare"
        self._plane, self._home = plane, folder

    async def __call__(self, *arguments: str | Path) -> str:
        """Run helm and return what it printed. HelmFailed when it ends with an error."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._home)}
        if self._plane is not None:
            environment["KUBECONFIG"] = str(self._plane.kubeconfig())
        process = await asyncio.create_subprocess_exec(
            binary("helm"), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
        )
        printed, complaint = await process.communicate()
        if process.returncode != 0:
            raise HelmFailed(f"helm {' '.join(map(str, arguments))}: {complaint.decode()}{printed.decode()}")
        return printed.decode()

    async def render(self, *options: str) -> list[dict[str, Any]]:
        """The objects that the chart makes of the options."""
        text = await self("template", "repair", self.chart, "--namespace", NAMESPACE, "--kube-version", KUBERNETES, *options)
        return [one for one in yaml.safe_load_all(text) if one]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """A cluster with two nodes without machines, one with GPUs, volumes, the namespace and the intake's token."""
    gpu, other = await control_plane.add_kwok_nodes(2, taint=False)
    await control_plane.kubectl("label", "node", gpu, "nvidia.com/gpu.present=true")
    await control_plane.kubectl("label", "node", other, "nvidia.com/gpu.present-")
    await control_plane.kubectl("create", "namespace", NAMESPACE)
    await control_plane.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
    await control_plane.kubectl(
        "--namespace", NAMESPACE, "create", "secret", "generic", "hotspare-intake", "--from-literal=token=x"
    )
    for number in range(2):
        await control_plane.apply(json.dumps(volume(f"disk-{number}")))
    yield control_plane


def volume(name: str) -> dict[str, Any]:
    spec = {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOncePod"], "hostPath": {"path": f"/srv/{name}"}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def pods_of(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Pod specifications of the parts by their name."""
    sets = [one for one in objects if one["kind"] == "StatefulSet"]
    return {one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["template"]["spec"] for one in sets}


@pytest.mark.parametrize("options", [GIVEN, SPLIT], ids=["together", "split"])
async def test_helm_finds_nothing_to_say_against_the_chart(helm: Helm, options: tuple[str, ...]) -> None:
    assert "0 chart(s) failed" in await helm("lint", "--strict", helm.chart, *options)


async def test_what_has_no_default_is_asked_for_and_a_word_that_means_nothing_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match=r"image\.repository"):
        await helm.render("--set", "temporal.address=t:7233")
    with pytest.raises(HelmFailed, match=r"temporal\.address"):
        await helm.render("--set", "image.repository=r")
    with pytest.raises(HelmFailed, match="obsreve"):
        await helm.render(*GIVEN, "--set", "obsreve=false")


async def test_the_chart_makes_of_the_manifests_what_they_say(helm: Helm) -> None:
    """In the release's namespace, with its labels, image and address of the intake; all else is the same."""
    made = {(one["kind"], one["metadata"]["name"]): one for one in await helm.render(*SPLIT)}
    said = [
        one for file in helm.plain.glob("*.yaml") for one in yaml.safe_load_all(file.read_text()) if one["kind"] != "Namespace"
    ]
    assert {one["kind"] for one in said} == set(DECLARED)
    for one in said:
        found = made[one["kind"], one["metadata"]["name"]]
        assert set(one["metadata"].get("labels", {}).items()) <= set(found["metadata"]["labels"].items())
        found["metadata"]["labels"] = one["metadata"].get("labels")
        if one["metadata"].get("labels") is None:
            del found["metadata"]["labels"]
        if one["kind"] == "DaemonSet":
            agent = found["spec"]["template"]["spec"]["containers"][0]
            assert agent.pop("image").startswith("registry.internal/hotspare:")
            assert agent.pop("imagePullPolicy") == "IfNotPresent"
            del one["spec"]["template"]["spec"]["containers"][0]["image"]
            (address,) = (entry for entry in agent["env"] if entry["name"] == "HOTSPARE_INTAKE")
            assert address["value"] == f"http://hotspare-intake.{NAMESPACE}:9099"
            address["value"] = "https://hotspare-intake.hotspare:9099"
        assert json.loads(json.dumps(found).replace(f'"{NAMESPACE}"', '"hotspare"')) == one


@pytest.mark.parametrize("options", [GIVEN, SPLIT], ids=["together", "split"])
async def test_every_pod_starts_a_command_of_hotspare(helm: Helm, options: tuple[str, ...]) -> None:
    pods = pods_of(await helm.render(*options))
    assert set(pods) == (PARTS if options == SPLIT else {"all"})
    for name, pod in pods.items():
        (container,) = pod["containers"]
        program, *arguments = container["command"]
        assert (program, exit_status([*arguments, "--help"])) == ("hotspare", 0), name
        assert pod["serviceAccountName"] == ("hotspare" if options == SPLIT else "hotspare-observe")
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        (config,) = (entry["value"] for entry in container["env"] if entry["name"] == "HOTSPARE_CONFIG")
        assert str(Path(config).parent) in writable, "what the settings name relatively lies beside their file"
        assert container["securityContext"]["readOnlyRootFilesystem"]


async def test_the_settings_of_the_chart_are_settings_of_hotspare(helm: Helm) -> None:
    objects = await helm.render(*GIVEN)
    (settings,) = (one["data"]["hotspare.toml"] for one in objects if one["kind"] == "ConfigMap")
    found = parse_settings(tomllib.loads(settings), Path("/var/lib/hotspare/hotspare.toml"))
    (pod,) = pods_of(objects).values()
    mounts = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert str(found.intake.token_file) in mounts
    (port,) = pod["containers"][0]["ports"]
    assert (found.intake.host, found.intake.port) == ("0.0.0.0", port["containerPort"])


async def test_with_a_certificate_the_intake_is_asked_over_https(helm: Helm) -> None:
    objects = await helm.render(*SPLIT, "--set", "intake.tlsSecretName=tls,agent.caSecretName=ca")
    intake = pods_of(objects)["intake"]["containers"][0]
    assert intake["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    (agent,) = (one["spec"]["template"]["spec"]["containers"][0] for one in objects if one["kind"] == "DaemonSet")
    told = {entry["name"]: entry.get("value") for entry in agent["env"]}
    assert told["HOTSPARE_INTAKE"] == f"https://hotspare-intake.{NAMESPACE}:9099"
    assert told["HOTSPARE_INTAKE_CA"].rsplit("/", 1)[0] in {mount["mountPath"] for mount in agent["volumeMounts"]}


@pytest.mark.parametrize("options", [GIVEN, SPLIT], ids=["together", "split"])
async def test_the_api_server_takes_every_object(helm: Helm, plane: ControlPlane, options: tuple[str, ...]) -> None:
    objects = await helm.render(*options)
    text = "\n---\n".join(json.dumps(one) for one in objects)
    taken = await plane.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
    assert taken.count("(server dry run)") == len(objects)


async def test_it_is_installed_changed_and_taken_away(helm: Helm, plane: ControlPlane, tmp_path: Path) -> None:
    release = Helm(tmp_path, plane)
    await release("install", "repair", release.chart, "--namespace", NAMESPACE, *GIVEN, "--set", "agent.enabled=true")
    first = await running(plane, "repair-all-0")
    assert first["spec"]["nodeName"] == "kwok-1", "never on a node that it may restart"
    assert await may(plane, "hotspare-observe", "list", "nodes")
    assert not await may(plane, "hotspare-observe", "patch", "nodes")
    agents = await plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=hotspare.dev%2Fmanaged%3Dagent")
    assert [one["spec"]["nodeName"] for one in agents["items"]] == ["kwok-0"]

    changed = tmp_path / "values.yaml"
    changed.write_text(yaml.safe_dump({"observe": False, "settings": '[cluster]\nname = "blue"\n'}))
    await release("upgrade", "repair", release.chart, "--namespace", NAMESPACE, *GIVEN, "--values", changed)

    async def renewed() -> bool:
        pod = await running(plane, "repair-all-0")
        return bool(pod["metadata"]["uid"] != first["metadata"]["uid"])

    await wait_for("a new pod for new settings", renewed, 120)
    assert (await running(plane, "repair-all-0"))["spec"]["serviceAccountName"] == "hotspare"
    assert await may(plane, "hotspare", "patch", "nodes")

    await release("uninstall", "repair", "--namespace", NAMESPACE, "--wait")
    left = await plane.kubectl("get", "all,configmaps,pvc,clusterroles", "--namespace", NAMESPACE, "--output", "name")
    ours = [name for name in left.split() if "hotspare" in name or "repair" in name]
    assert ours == ["persistentvolumeclaim/state-repair-all-0"], "host memory outlives the release"


async def running(plane: ControlPlane, name: str) -> dict[str, Any]:
    """The pod, once it runs."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    found: list[dict[str, Any]] = []

    async def runs() -> bool:
        pods = (await plane.request("GET", path))["items"]
        found[:] = [
            pod
            for pod in pods
            if pod["metadata"]["name"] == name
            and pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return bool(found)

    await wait_for(f"pod {name}", runs, 120)
    return found[0]


async def may(plane: ControlPlane, account: str, verb: str, resource: str) -> bool:
    """Whether a service account of the release may do something."""
    who = f"system:serviceaccount:{NAMESPACE}:{account}"
    spec = {"user": who, "resourceAttributes": {"verb": verb, "resource": resource}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
