"""Whether workers, Temporal or its database run on nodes that Hotspare may restart: it would cut the branch it sits on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetClusterInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from activities.errors import HotspareError
from activities.inventory import Node
from activities.kubernetes import POD, KubernetesApi
from activities.names import QUEUE_WORKFLOWS, ROLE_HEAD
from checks.model import Verdict
from workers.cli.health import Line
from workers.cli.health_open import is_loopback, own_addresses
from workers.connection import RPC_TIMEOUT
from workers.settings import Settings
from workers.wiring import Wiring
from workers.worker import QUEUES

PART = "places"

IN_CLOUD = (".tmprl.cloud", ".api.temporal.io")
"""Ends of the host names of Temporal Cloud. Source: docs.temporal.io/cloud/namespaces, "Access Namespaces"."""

WITH_SERVER = ("sqlite", "")
"""Stores that lie in the server's own process, as the server names them."""

POD_NAMES = ("temporal", "postgresql", "mysql", "cassandra", "hotspare")
"""Values of the label app.kubernetes.io/name. Source: the charts of Temporal and of its databases; ours."""


async def check_places(settings: Settings, wiring: Wiring, client: Client | None, nodes: Sequence[Node]) -> list[Line]:
    """Compare where our own parts run with the nodes that may be restarted: all but the head."""
    ours = [node for node in nodes if node.role != ROLE_HEAD]
    lines: list[Line] = []
    hosts: list[tuple[str, str, Verdict]] = [(socket.gethostname(), "this process", Verdict.WARN)]
    hosts += [(address, "this process", Verdict.WARN) for address in own_addresses()]
    if client is not None:
        hosts += [(host, "a worker", Verdict.WARN) for host in await workers_at(client)]
        server, database = await _server(settings, client)
        lines += database
        hosts += [(host, what, Verdict.CRITICAL) for host, what in server]
    found = await asyncio.to_thread(lambda: dict(_there(ours, hosts)))
    with suppress(HotspareError):  # the line on Kubernetes tells what is wrong there
        if (api := wiring.kubernetes) is not None:
            found |= await asyncio.to_thread(lambda: dict(pods_on(api, ours)))
    move = "run it elsewhere: a machine without GPUs, or a node tagged hotspare:role=head, which is never restarted"
    lines += [
        Line(PART, verdict, f"{what} runs on {name}, which Hotspare may restart", move) for (what, name), verdict in found.items()
    ]
    return lines if found else [Line(PART, Verdict.OK, "no part that was found runs on a node that may be restarted"), *lines]


def _there(nodes: Sequence[Node], hosts: Iterable[tuple[str, str, Verdict]]) -> Iterator[tuple[tuple[str, str], Verdict]]:
    """Every part that runs on one of these nodes."""
    known: dict[str, Node] = {}
    for node in nodes:
        for alias in (node.name, node.host, node.ip, node.instance_id, node.name.partition(".")[0]):
            known.setdefault(alias, node)
    known.pop("", None)
    for host, what, verdict in hosts:
        short = host if _is_address(host) else host.partition(".")[0]
        for alias in (host, short, *addresses_of(host)):
            if alias in known:
                yield (what, known[alias].name), verdict
                break


def pods_on(api: KubernetesApi, nodes: Sequence[Node]) -> Iterator[tuple[tuple[str, str], Verdict]]:
    """Pods of Temporal, a database or Hotspare on these nodes. The agents belong there: they are restarted with the node."""
    names = {node.name for node in nodes} | {node.host for node in nodes}
    for label in POD_NAMES:
        for pod in api.list(POD, labels=f"app.kubernetes.io/name={label}", cached=True):
            place = str(pod.get("spec", {}).get("nodeName", ""))
            part = pod.get("metadata", {}).get("labels", {}).get("app.kubernetes.io/component", "")
            if place in names and part != "agent":
                verdict = Verdict.WARN if label == "hotspare" else Verdict.CRITICAL
                yield (f"pod {pod['metadata']['name']} ({label})", place), verdict


async def workers_at(client: Client) -> list[str]:
    """The machines whose workers poll our queues, from the identities that they give: hotspare-ROLE@HOST:PID."""
    found: dict[str, None] = {}
    for queue in (queue for queues in QUEUES.values() for queue in queues):
        kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if queue == QUEUE_WORKFLOWS else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        request = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind)
        with suppress(RPCError):
            answer = await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
            found |= {poller.identity.partition("@")[2].rpartition(":")[0]: None for poller in answer.pollers}
    return [host for host in found if host]


async def _server(settings: Settings, client: Client) -> tuple[list[tuple[str, str]], list[Line]]:
    """Where Temporal and its database are, and what to say of a database of which nobody tells."""
    host = client.service_client.config.target_host.rpartition(":")[0].strip("[]")
    if host.endswith(IN_CLOUD):
        return [], []
    places = [(host, "Temporal")] if not is_loopback(host) else []
    if settings.temporal.database_host:
        return [*places, (settings.temporal.database_host, "Temporal's database")], []
    store = ""
    with suppress(RPCError):
        store = (await client.workflow_service.get_cluster_info(GetClusterInfoRequest(), timeout=RPC_TIMEOUT)).persistence_store
    if store in WITH_SERVER:
        return places, []
    text = f"where Temporal's database ({store}) runs is not told by the server"
    return places, [
        Line(PART, Verdict.UNKNOWN, text, "set temporal.database_host; it is compared with the nodes", can_tell=False)
    ]


def addresses_of(host: str) -> list[str]:
    """The addresses behind a name; none where nobody knows it."""
    if _is_address(host):
        return []
    try:
        return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, None)))
    except OSError:
        return []


def _is_address(host: str) -> bool:
    with suppress(OSError):
        return bool(socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host))
    return False
