"""What `doctor` looks at on the nodes: access, the probe and its verdict, the clock; and the head node that drives the job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from temporalio.exceptions import ApplicationError

from activities.errors import AccessRefused, HotspareError
from activities.inventory import Node
from activities.names import ROLE_HEAD
from activities.node import Examination, Examine
from checks.model import Verdict
from workers.cli.health import Line
from workers.cli.health_aws import CLOCK_WARNS_S
from workers.settings import Settings
from workers.wiring import Wiring

T = TypeVar("T")

AT_ONCE = 32
"""Nodes looked at side by side. Hotspare default, as the worker's `ssh_threads`: a thousand nodes take a minute or two."""

REASONS_SHOWN = 4
"""Reasons that are told of a node, each whole: what to type may stand at its end. Hotspare default: a screen has more lines."""

CLOCK_S = 10.0
"""For the node to say its time. Hotspare default: the connection is open."""


async def check_nodes(settings: Settings, wiring: Wiring, nodes: Sequence[Node]) -> list[Line]:
    """Probe every node."""
    wanted = [node for node in nodes if node.role != ROLE_HEAD]
    found = await side_by_side(wanted, lambda node: check_node(settings, wiring, node))
    return [line for lines in found for line in lines]


async def side_by_side(nodes: Sequence[Node], look: Callable[[Node], T]) -> list[T]:
    """Look at nodes in threads of our own, a bounded number at once: the loop's are few on a small machine."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="look") as threads:
        return list(await asyncio.gather(*(loop.run_in_executor(threads, look, node) for node in nodes)))


def check_node(settings: Settings, wiring: Wiring, node: Node) -> list[Line]:
    """Reach a node and run the quick probe; nothing on it is changed."""
    part = f"node {node.name}"
    if node.state != "running":
        return [Line(part, Verdict.WARN, f"the instance is {node.state}", f"start {node.instance_id}, or take its tag away")]
    try:
        seen = wiring.node_activities.examine(Examine(node=node))
    except (HotspareError, ApplicationError) as error:
        return [Line(part, Verdict.UNKNOWN, str(error), _way_in(settings, node, str(error)))]
    if not seen.reachable:
        return [Line(part, Verdict.UNKNOWN, seen.why_unreachable, _way_in(settings, node, seen.why_unreachable))]
    line = Line(part, seen.verdict, _what(seen), _do(settings, node, seen))
    return [line, *_clock(settings, wiring, node)] if seen.verdict is not Verdict.UNKNOWN else [line]


def _what(seen: Examination) -> str:
    if seen.verdict is Verdict.OK:
        return f"reached and probed, {len(seen.gpu_serials)} GPUs"
    if seen.why_unreachable:
        return seen.why_unreachable
    reasons = [finding.summary for finding in seen.findings] or seen.opinion.because
    more = f"; and {len(reasons) - REASONS_SHOWN} more" if len(reasons) > REASONS_SHOWN else ""
    return f"{seen.opinion.fault_class}: {'; '.join(reasons[:REASONS_SHOWN])}{more}"


def _do(settings: Settings, node: Node, seen: Examination) -> str:
    if seen.verdict is Verdict.OK:
        return ""
    if seen.verdict is not Verdict.UNKNOWN:
        return f"let the healer look: hotspare report {node.name} --what 'doctor found it {seen.verdict.value}'"
    if seen.why_unreachable:
        return _way_in(settings, node, seen.why_unreachable)
    return "mend what the probe could not read, then run doctor again"


def _way_in(settings: Settings, node: Node, why: str) -> str:
    """What to do about a way to a node that is broken, by what the access says of it."""
    if "host key" in why and "hotspare trust" not in why:
        return f"learn its key over AWS: hotspare trust {node.name}"
    return _by_hand(settings, node)


def _by_hand(settings: Settings, node: Node) -> str:
    if settings.access.kind == "ssh":
        return f"try it by hand: ssh -F {settings.access.ssh_config} {node.host or node.name} true"
    if settings.access.kind == "agent":
        return f"look at its pods: kubectl --namespace {settings.kubernetes.namespace} get pods -o wide | grep {node.name}"
    return f"look for its agent: aws ssm describe-instance-information --filters Key=InstanceIds,Values={node.instance_id}"


def _clock(settings: Settings, wiring: Wiring, node: Node) -> list[Line]:
    """Compare the node's clock with ours where asking is cheap: over SSH. The probe itself tells whether it is synchronised."""
    if settings.access.kind != "ssh":
        return []
    began = time.time()
    try:
        answer = wiring.access_to(node).run(["date", "+%s"], CLOCK_S)
        skew_s = int(answer.stdout) - (began + time.time()) / 2
    except (HotspareError, ValueError):
        return []  # the node answered the probe a moment ago; its next line tells more than a second failure would
    if abs(skew_s) < CLOCK_WARNS_S:
        return []
    text = f"{node.name} is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine: its log cannot be ordered"
    return [Line("clock", Verdict.WARN, text, f"on {node.name}: systemctl restart chronyd")]


async def check_head(settings: Settings, wiring: Wiring) -> list[Line]:
    """Reach the head node, where there is one."""
    if settings.job.adapter == "none" or not settings.job.head:
        return []
    try:
        node = await asyncio.to_thread(wiring.inventory.resolve, settings.name, settings.job.head)
    except HotspareError as error:
        return [Line("head node", Verdict.CRITICAL, str(error), "mend AWS access, or set job.head to a name in the inventory")]
    try:
        await asyncio.to_thread(wiring.access_to(node).boot_id, settings.access.command_deadline_s)
    except AccessRefused as error:
        return [Line("head node", Verdict.CRITICAL, str(error), _way_in(settings, node, str(error)))]
    except HotspareError as error:
        return [Line("head node", Verdict.CRITICAL, str(error), "set job.head and the SSH configuration right")]
    return [Line("head node", Verdict.OK, f"{node.name} reached")]
