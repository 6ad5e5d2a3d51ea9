"""What `doctor` looks at in Slurm: whether its flavour is right, how long it knows a job, and what the login may do there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from activities.errors import HotspareError
from activities.inventory import Node
from activities.names import ROLE_HEAD
from activities.owners import Owner
from activities.slurm import Slurm
from checks.model import Verdict
from workers.cli.health import Line
from workers.settings import Settings
from workers.wiring import Wiring

FLAVOURS = {Owner.PARALLEL_CLUSTER.value: "parallelcluster", Owner.PCS.value: "pcs", Owner.HYPERPOD.value: "hyperpod"}
"""Owner by a node's tags -> flavour that it asks for."""

JOB_AGE_S = 3600
"""How long an ended job should be remembered. Hotspare default: a failed one can be requeued only as long (docs/slurm.md)."""


async def check_slurm(settings: Settings, wiring: Wiring, nodes: Sequence[Node]) -> list[Line]:
    """Ask Slurm, where it starts the jobs. Nothing is changed."""
    if settings.job.adapter != "slurm":
        return []
    try:
        return await asyncio.to_thread(lines_of, settings, wiring.slurm, nodes)
    except HotspareError as error:
        return [
            Line("Slurm", Verdict.CRITICAL, str(error), "mend Slurm on the head node, or set job.head and slurm.bin_dir right")
        ]


def lines_of(settings: Settings, slurm: Slurm, nodes: Sequence[Node]) -> list[Line]:
    """What Slurm answers, judged."""
    config = slurm.config()
    return [
        _nodes(slurm, config, [node for node in nodes if node.role != ROLE_HEAD]),
        *_flavour(settings, nodes),
        *_memory(config),
        _rights(settings, slurm, config),
    ]


def _nodes(slurm: Slurm, config: dict[str, str], nodes: Sequence[Node]) -> Line:
    names = slurm.names()
    missing = [node.name for node in nodes if names.slurm(node) is None]
    text = f"{config.get('ClusterName', '')} {config.get('SLURM_VERSION', '')}: {len(nodes) - len(missing)} of {len(nodes)} nodes"
    if not missing:
        return Line("Slurm", Verdict.OK, text)
    how = "set NodeAddr or NodeHostName in slurm.conf, or take the tag off them: such a node cannot be quarantined"
    return Line("Slurm", Verdict.WARN, f"{text}; it has no node for {', '.join(missing[:10])}", how)


def _flavour(settings: Settings, nodes: Sequence[Node]) -> list[Line]:
    """A quarantine that drains is a replacement where ParallelCluster's daemon is at work."""
    flavour = settings.slurm.flavour
    wanted = {FLAVOURS[node.owner]: node.owner for node in nodes if node.owner in FLAVOURS and FLAVOURS[node.owner] != flavour}
    lines = []
    for other, owner in sorted(wanted.items()):
        deadly = other == "parallelcluster"
        why = ": a quarantined node would be terminated" if deadly else ""
        text = f"nodes belong to {owner} by their tags, and slurm.flavour is {flavour}{why}"
        lines.append(Line("Slurm flavour", Verdict.CRITICAL if deadly else Verdict.WARN, text, f'set slurm.flavour = "{other}"'))
    return lines


def _memory(config: dict[str, str]) -> list[Line]:
    lines = []
    age = re.match(r"\d+", config.get("MinJobAge", ""))
    if age and 0 < int(age[0]) < JOB_AGE_S:
        text = f"an ended job is forgotten after {age[0]} s: one that failed cannot be requeued then"
        lines.append(Line("Slurm", Verdict.WARN, text, f"set MinJobAge={JOB_AGE_S} in slurm.conf"))
    if config.get("JobRequeue") == "0":
        text = "jobs are not requeued unless they say so (JobRequeue=0): such a job is not stopped, and does not come back"
        lines.append(Line("Slurm", Verdict.WARN, text, "set JobRequeue=1 in slurm.conf, or submit with --requeue"))
    return lines


def _rights(settings: Settings, slurm: Slurm, config: dict[str, str]) -> Line:
    """Nodes and other people's jobs are changed by root, SlurmUser or an operator of the accounting."""
    user = slurm.user()
    if settings.slurm.sudo:
        missing = [program for program in ("scontrol", "scancel") if not slurm.runs_as_root(program)]
        if not missing:
            return Line("Slurm rights", Verdict.OK, f"{user} runs scontrol and scancel by sudo")
        how = f"{user} ALL=(root) NOPASSWD: /usr/bin/scontrol, /usr/bin/scancel (in sudoers; docs/slurm.md)"
        return Line("Slurm rights", Verdict.CRITICAL, f"{user} may not run {' and '.join(missing)} by sudo -n", how)
    if user in ("root", config.get("SlurmUser", "").partition("(")[0]):
        return Line("Slurm rights", Verdict.OK, f"{user} may change nodes and jobs")
    text = f"{user} is neither root nor SlurmUser: it may change nodes and jobs only as an operator of the accounting"
    return Line("Slurm rights", Verdict.WARN, text, "set slurm.sudo = true and allow scontrol and scancel (docs/slurm.md)")
