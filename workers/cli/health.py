"""What `doctor` looks at on this machine and in the inventory: settings, held reports, store; and how a look is told."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass

from activities.errors import HotspareError
from activities.host_memory import HostMemory
from activities.inventory import Node
from activities.names import ROLE_HEAD, ROLE_SPARE, TAG_CLUSTER, TAG_ROLE
from checks.model import Verdict
from workers.cli.common import many
from workers.settings import Settings
from workers.wiring import Wiring
from workflows.decisions.settings import Mode


@dataclass(frozen=True)
class Line:
    """One thing that was looked at. `do` is what a person should do about it, empty when all is well.

    `can_tell` is False where there is nobody to ask: such a line stays UNKNOWN, with the reason, and spoils no verdict.
    """

    part: str
    verdict: Verdict
    text: str
    do: str = ""
    can_tell: bool = True


def overall(lines: list[Line]) -> Verdict:
    """The verdict on all: a certain fault outweighs what could not be told, and that outweighs a warning."""
    seen = {line.verdict for line in lines if line.can_tell}
    for verdict in (Verdict.CRITICAL, Verdict.UNKNOWN, Verdict.WARN):
        if verdict in seen:
            return verdict
    return Verdict.OK


def check_settings(settings: Settings) -> list[Line]:
    """What the settings file asks for."""
    lines = [Line("settings", Verdict.OK, f"{settings.file}: cluster {settings.name}, mode {settings.policy.mode.value}")]
    if settings.policy.mode is Mode.OBSERVE:
        lines.append(
            Line("mode", Verdict.OK, "observe: nothing is done to nodes; set policy.mode to approve or act when you trust it")
        )
    if not settings.notify.urls:
        lines.append(
            Line("pages", Verdict.WARN, f"pages go only to {settings.notify.log}", "set notify.urls to your pager's webhook")
        )
    if settings.job.adapter == "none":
        lines.append(
            Line(
                "job",
                Verdict.WARN,
                "no job adapter: nodes are healed, no job is resumed",
                'set job.adapter to "command", "kubernetes" or "slurm" (docs/settings.md)',
            )
        )
    return lines


async def check_inventory(settings: Settings, wiring: Wiring) -> tuple[list[Line], list[Node]]:
    """The nodes and spares that are found."""
    try:
        nodes = await asyncio.to_thread(wiring.inventory.list, settings.name)
    except HotspareError as error:
        return [Line("inventory", Verdict.CRITICAL, str(error), "mend AWS access, or list the nodes in [inventory]")], []
    working = [node for node in nodes if node.role != ROLE_HEAD]
    spares = [node for node in nodes if node.role == ROLE_SPARE]
    if not working:
        how = f"tag the instances {TAG_CLUSTER}={settings.name} and {TAG_ROLE}=worker|spare|head"
        return [Line("inventory", Verdict.CRITICAL, f"no nodes found for cluster {settings.name}", how)], nodes
    text = f"{many(len(working), 'node')}, of which {many(len(spares), 'spare')}"
    if not spares:
        how = f"tag a healthy idle instance {TAG_ROLE}=spare; without one, repairs are made in place while the job waits"
        return [Line("inventory", Verdict.WARN, text, how)], nodes
    return [Line("inventory", Verdict.OK, text)], nodes


def check_spool(settings: Settings) -> Line:
    """What waits on disk for Temporal, by every process of this machine."""
    folder = settings.spool.folder
    waiting = sum(1 for file in folder.glob("*/*.json"))
    if not waiting:
        return Line("held reports", Verdict.OK, f"none waits in {folder}")
    text = f"{waiting} reports wait in {folder} for Temporal"
    full = waiting >= settings.spool.max_reports
    return Line("held reports", Verdict.CRITICAL if full else Verdict.WARN, text, "they are delivered once it answers")


async def check_store(wiring: Wiring) -> list[Line]:
    """Whether host memory can be read and written: without it nothing is decided, and nothing disruptive is done."""
    try:
        hosts, banned = await asyncio.to_thread(_try_store, wiring.memory)
    except HotspareError as error:
        return [Line("host memory", Verdict.CRITICAL, str(error), "mend [store] in the settings; see docs/ledger.md")]
    bans = f", {many(banned, 'GPU')} banned" if banned else ""
    return [Line("host memory", Verdict.OK, f"{many(hosts, 'host')} remembered{bans}; it can be written")]


def _try_store(memory: HostMemory) -> tuple[int, int]:
    """Count hosts and banned GPUs, and write something that goes at once."""
    hosts = len(memory.records())
    banned = sum(1 for gpu in memory.gpus() if gpu.known_bad is not None)
    token = f"doctor/{uuid.uuid4()}"
    memory.note_intent(token, "doctor looks whether host memory can be written")
    memory.withdraw_intent(token)
    return hosts, banned
