"""What a pod's containers become on a lab node without containers: command, environment, and folders in place of mounts."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.lab.kube.api import KubeApi, Object
from infra.lab.kube.nodes import GPU, kube_name
from infra.lab.node import LabNode

POD_UID = "LAB_POD_UID"
"""Every process of a pod has it in its environment, so that those are found too that left their process group."""

_OF_IMAGES = {"kubectl-delivery": ["true"]}
"""What images start by themselves. This one brings kubectl to the launcher of an MPIJob; here its mpirun asks the lab instead."""

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_TOKEN_S = 3600


class CannotStart(Exception):
    """Something that the container needs is not there (yet); the text says what."""


@dataclass(frozen=True)
class Reach:
    """How pods reach the API server, and the folder of commands that every image has."""

    address: tuple[str, int]
    ca_file: Path
    image: Path


@dataclass
class Mounts:
    """Folders of the node under the paths at which the container expects them."""

    folders: dict[str, str] = field(default_factory=dict)

    def put_into(self, text: str) -> str:
        """Return a text with every path below a mount replaced by the path on the node.

        A container sees its mounts; a process without a mount namespace must be told where they are.
        """
        if not self.folders:
            return text
        paths = "|".join(re.escape(path) for path in sorted(self.folders, key=len, reverse=True))
        return re.sub(rf"(?<![\w./-])(?:{paths})(?![\w.-])", lambda match: self.folders[match[0]].rstrip("/") or "/", text)


def gpus_of(container: Object) -> int:
    """Return how many GPUs a container asks for."""
    resources = container.get("resources") or {}
    asked = (resources.get("limits") or {}).get(GPU) or (resources.get("requests") or {}).get(GPU) or 0
    return int(asked)


def expand(text: str, known: Mapping[str, str]) -> str:
    """Expand $(NAME) as the kubelet does: unknown names stay, $$ is one dollar."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else known.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def command_of(container: Object, environment: Mapping[str, str], mounts: Mounts) -> list[str]:
    """Return the argument list. The image is not there, so a container without a command has nothing to run: CannotStart."""
    own = next((words for image, words in _OF_IMAGES.items() if image in str(container.get("image") or "")), [])
    words = [*(container.get("command") or own), *(container.get("args") or [])]
    if not container.get("command") and not own:
        raise CannotStart(f"container {container['name']} has no command, and lab nodes pull no images")
    return [mounts.put_into(expand(str(word), environment)) for word in words]


class PodFiles:
    """Environment and volumes of one pod on one node, made from what the API has."""

    def __init__(self, api: KubeApi, node: LabNode, pod: Object, reach: Reach) -> None:
        self._api, self._node, self._pod = api, node, pod
        self._reach = reach
        self.namespace = str(pod["metadata"]["namespace"])
        self.folder: Path = node.root / "var/lib/kubelet/pods" / str(pod["metadata"]["uid"])

    async def mounts(self, container: Object) -> Mounts:
        """Fill the volumes that a container mounts. CannotStart where a Secret or ConfigMap is missing."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes") or []}
        found = Mounts()
        for mount in container.get("volumeMounts") or []:
            folder = await self._folder_of(volumes[mount["name"]])
            folder = folder / str(mount["subPath"]) if mount.get("subPath") else folder
            found.folders[mount["mountPath"].rstrip("/") or "/"] = str(folder)
        return found

    async def _folder_of(self, volume: Object) -> Path:
        if "hostPath" in volume:
            return self._node.root / str(volume["hostPath"]["path"]).strip("/")
        folder = self.folder / "volumes" / str(volume["name"])
        folder.mkdir(parents=True, exist_ok=True)
        sources = (volume.get("projected") or {}).get("sources") or []
        for kind in ("configMap", "secret", "downwardAPI"):
            if kind in volume:
                sources = [{kind: {"name": volume[kind].get("secretName"), **volume[kind]}}]
        for source in sources:
            for name, content in (await self._content(source)).items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch(0o600)
                path.write_bytes(content)
        return folder

    async def _content(self, source: Object) -> dict[str, bytes]:
        if token := source.get("serviceAccountToken"):
            return {token["path"]: (await self._token(token)).encode()}
        if downward := source.get("downwardAPI"):
            return {item["path"]: self._field(item["fieldRef"]["fieldPath"]).encode() for item in downward.get("items") or []}
        for kind in ("configMap", "secret"):
            if told := source.get(kind):
                data = await self._data(kind, told["name"], optional=bool(told.get("optional")))
                items = told.get("items")
                return {item["path"]: data[item["key"]] for item in items if item["key"] in data} if items else data
        return {}

    async def _data(self, kind: str, name: str, *, optional: bool = False) -> dict[str, bytes]:
        plural = {"configMap": "configmaps", "secret": "secrets"}[kind]
        found = await self._api.get(f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")
        if found is None:
            if optional:
                return {}
            if name == "kube-root-ca.crt":
                return {"ca.crt": self._reach.ca_file.read_bytes()}
            raise CannotStart(f'{kind.lower()} "{name}" not found')
        if kind == "secret":
            return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
        return {**{key: value.encode() for key, value in (found.get("data") or {}).items()}, **binary}

    async def _token(self, wanted: Object) -> str:
        account = self._pod["spec"].get("serviceAccountName") or "default"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": self._pod["metadata"]["name"], "uid": self._pod["metadata"]["uid"]}
        spec: Object = {"expirationSeconds": wanted.get("expirationSeconds") or _TOKEN_S, "boundObjectRef": bound}
        if wanted.get("audience"):
            spec["audiences"] = [wanted["audience"]]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        answer = await self._api.insist("POST", path, body)
        if answer is None:
            raise CannotStart(f'serviceaccount "{account}" not found')
        return str(answer["status"]["token"])

    async def environment(self, container: Object, mounts: Mounts) -> dict[str, str]:
        """Return the container's variables; those of the node lie under them."""
        host, port = self._reach.address
        path = f"{self._reach.image}:{self._node.files.environment()['PATH']}"
        known = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port), "PATH": path}
        known[POD_UID] = self._pod["metadata"]["uid"]
        for source in container.get("envFrom") or []:
            for kind in ("configMap", "secret"):
                if told := source.get(f"{kind}Ref"):
                    data = await self._data(kind, told["name"], optional=bool(told.get("optional")))
                    known |= {source.get("prefix", "") + key: value.decode() for key, value in data.items()}
        for variable in container.get("env") or []:
            value = await self._value(variable, known)
            if value is not None:
                known[variable["name"]] = mounts.put_into(value)
        return known

    async def _value(self, variable: Object, known: Mapping[str, str]) -> str | None:
        told = variable.get("valueFrom")
        if told is None:
            return expand(str(variable.get("value") or ""), known)
        if "fieldRef" in told:
            return self._field(told["fieldRef"]["fieldPath"])
        for kind in ("configMap", "secret"):
            if reference := told.get(f"{kind}KeyRef"):
                data = await self._data(kind, reference["name"], optional=bool(reference.get("optional")))
                if reference["key"] not in data and not reference.get("optional"):
                    raise CannotStart(f'key "{reference["key"]}" not found in {kind.lower()} "{reference["name"]}"')
                return data[reference["key"]].decode() if reference["key"] in data else None
        return ""

    def _field(self, path: str) -> str:
        """Return a field of the pod as the downward API does."""
        table = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if table:
            return str((self._pod["metadata"].get(table[1]) or {}).get(table[2], ""))
        fields: dict[str, Any] = {
            "metadata.name": self._pod["metadata"]["name"],
            "metadata.namespace": self.namespace,
            "metadata.uid": self._pod["metadata"]["uid"],
            "spec.nodeName": kube_name(self._node),
            "spec.serviceAccountName": self._pod["spec"].get("serviceAccountName") or "default",
            "status.hostIP": self._node.ip,
            "status.podIP": self._node.ip,
        }
        return str(fields.get(path, ""))
