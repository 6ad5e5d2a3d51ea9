"""Whether a test may put load on a node: no job computes there, no process holds a GPU, and the node is ours to test.

`why_not` is the rule. `ActiveTestGate` gathers its facts; the load tests ask it themselves, just before they start a run, so
that no caller can leave it out. A fact that cannot be had counts against the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from activities import names
from activities.clock import beat
from activities.ec2_messages import Ec2Client
from activities.errors import AccessRefused, CommandFailed, DeadlinePassed, FinalError, NodeUnreachable
from activities.inventory import Inventory, Node
from activities.jobs.protocol import JobAdapter, JobState, JobStatus
from activities.node_access import AccessTo
from activities.probing import Probe, ProbeCrashed, ProbeWish
from checks.probes.leftovers import Leftover

PROBES_AT_ONCE = 16
"""Nodes probed side by side before a group run. Hotspare default: 256 nodes in some seconds, from few threads."""

BEAT_S = 0.5
"""Seconds between signs of life while nodes are probed. Hotspare default: as other waits."""

_HOLD = " processes hold GPUs of "

NAMED = 4
"""Processes of a node that a reason names. Hotspare default: the first few tell whose they are."""

WHAT_TO_DO = "hold the job that has the nodes, or test spares and nodes that an incident has quarantined"


@dataclass(frozen=True)
class GpuUse:
    """How many processes hold GPUs of a node; None where it is not known, and then why. `left` names them, and what runs left."""

    processes: int | None
    why: str = ""
    left: tuple[Leftover, ...] = ()


@dataclass(frozen=True)
class NodeFacts:
    """What decides whether a node may be tested. `job` is the job that has it, if any; `job_unknown` why that is not known."""

    node: Node
    use: GpuUse
    job: JobStatus | None = None
    job_unknown: str = ""


def why_not(facts: NodeFacts) -> list[str]:
    """Return every reason not to test a node; none means that it may be tested."""
    return [reason for reason in (_allocated(facts), _in_use(facts), _not_ours(facts)) if reason]


def _allocated(facts: NodeFacts) -> str:
    name, job = facts.node.name, facts.job
    if facts.job_unknown:
        return f"which job has {name} is not known: {facts.job_unknown}"
    if job is None or job.state in (JobState.STOPPED, JobState.HELD):
        return ""
    if job.ranks_on is not None and name not in job.ranks_on:
        return ""  # it runs, or may run, elsewhere: this node is out, and its controller waits for another
    if job.state is JobState.RUNNING:
        return f"job {job.job} is running on {name}"
    return f"whether job {job.job} runs on {name} is not known"


def _in_use(facts: NodeFacts) -> str:
    name, use = facts.node.name, facts.use
    if use.processes is None:
        return f"whether a process holds a GPU of {name} is not known{f': {use.why}' if use.why else ''}"
    return f"{use.processes}{_HOLD}{name}{_who(use.left)}" if use.processes else ""


def only_in_use(reasons: Sequence[str]) -> bool:
    """Whether nothing stands in the way but processes that hold GPUs."""
    return bool(reasons) and all(_HOLD in reason for reason in reasons)


def _who(left: Sequence[Leftover]) -> str:
    holders = [f"pid {one.pid} {one.name}".strip() for one in left if one.gpus]
    more = f" and {len(holders) - NAMED} more" if len(holders) > NAMED else ""
    return f" ({', '.join(holders[:NAMED])}{more})" if holders else ""


def _not_ours(facts: NodeFacts) -> str:
    node, job = facts.node, facts.job
    if node.quarantine and not names.is_incident(node.quarantine):
        return f"{node.name} is quarantined by {node.quarantine}, which is not ours"
    if node.lease and not names.is_replacement(node.lease):
        return f"{node.name} is leased to {node.lease}, which is not ours"
    held = job is not None and job.state is JobState.HELD and job.ours
    if node.quarantine or node.lease or held or node.role in (names.ROLE_SPARE, names.ROLE_NEW):
        return ""
    return (
        f"{node.name} is not ours to test: it has no quarantine and no lease of ours, no job that we hold has it, it is no spare"
    )


class ActiveTestGate:
    """Asks the job system, the nodes and the inventory what `why_not` needs to know."""

    def __init__(self, access_to: AccessTo, probe: Probe, jobs: JobAdapter, inventory: Inventory, ec2: Ec2Client) -> None:
        self.access_to = access_to
        self._probe = probe
        self._jobs = jobs
        self._inventory = inventory
        self._ec2 = ec2

    def refusals(self, nodes: Sequence[Node], uses: Mapping[str, GpuUse] | None = None) -> dict[str, list[str]]:
        """Return the reasons not to test, by the name of each node that has any. `uses` is what was just seen of the GPUs.

        Raises TransientError where the job system or EC2 may answer when asked again.
        """
        jobs = self._find_jobs(nodes)
        seen = uses if uses is not None else self.look(nodes)
        listed = {entry.instance_id: entry for entry in self._inventory.list("")}
        found = {}
        for node in nodes:
            beat()
            job = jobs[node.name]
            facts = NodeFacts(
                node=listed.get(node.instance_id, node),
                use=seen[node.name],
                job=None if isinstance(job, str) else job,
                job_unknown=job if isinstance(job, str) else "",
            )
            found[node.name] = why_not(self._with_fresh_tags(facts))
        return {name: reasons for name, reasons in found.items() if reasons}

    def _find_jobs(self, nodes: Sequence[Node]) -> dict[str, JobStatus | str | None]:
        """Return the job of each node, or why it is not known. One answer tells for every node of a job."""
        jobs: dict[str, JobStatus | str | None] = {}
        for node in nodes:
            beat()
            if node.name in jobs:
                continue
            try:
                jobs[node.name] = status = self._jobs.find_on(node)
            except FinalError as error:
                jobs[node.name] = str(error)
                continue
            jobs |= dict.fromkeys(status.nodes, status) if status is not None else {}
        return jobs

    def look(self, nodes: Sequence[Node]) -> dict[str, GpuUse]:
        """Probe the nodes side by side, for who uses their GPUs. The waiting thread gives the signs of life."""
        pool = ThreadPoolExecutor(PROBES_AT_ONCE, thread_name_prefix="look before a group run")
        try:
            looks = {node.name: pool.submit(self._use_of, node) for node in nodes}
            while wait(looks.values(), BEAT_S).not_done:
                beat()
            return {name: look.result() for name, look in looks.items()}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _use_of(self, node: Node) -> GpuUse:
        try:
            seen = self._probe.run(self.access_to(node), node, ProbeWish(leftovers=True))
            return GpuUse(seen.gpu_processes, left=seen.leftovers)
        except (NodeUnreachable, DeadlinePassed, AccessRefused, CommandFailed, ProbeCrashed) as error:
            return GpuUse(None, str(error))

    def _with_fresh_tags(self, facts: NodeFacts) -> NodeFacts:
        """Read the tags again of a node that the inventory, which may be some seconds old, does not show as ours."""
        if _allocated(facts) or _in_use(facts) or not _not_ours(facts):
            return facts
        tags = self._ec2.describe(facts.node.instance_id).tags
        now = {
            "quarantine": tags.get(names.TAG_QUARANTINE, ""),
            "lease": tags.get(names.TAG_LEASE, ""),
            "role": tags.get(names.TAG_ROLE, facts.node.role),
        }
        return replace(facts, node=facts.node.model_copy(update=now))
