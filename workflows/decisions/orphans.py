"""What dead incidents and replacements left behind, what becomes of each piece, and why. What is not ours is never touched."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from activities import names
from activities.message import Message
from activities.reconcile import StrayMark, Trace, Traces
from workflows.decisions.settings import Mode, PolicySettings

LAUNCH_PATIENCE = timedelta(minutes=30)
"""How long an instance may be pending. Source: ParallelCluster gives a launch up after 30 min."""

WITH_A_PERSON = frozenset({names.FATE_RETIRED, names.FATE_WITH_PERSON})
"""Fates of nodes that stay quarantined on purpose."""


class Remedy(StrEnum):
    """What is done about a piece. ADOPT: its node's incident looks, tests and settles it. TELL: a person decides."""

    MARK_AGAIN = "complete the quarantine"
    RETURN_SPARE = "return the spare"
    HAND_OVER = "end the lease"
    FORGET = "remove the record"
    ADOPT = "adopt"
    TELL = "tell"


class Orphan(Message):
    """One piece that nobody looks after: where, whose it was, why it is one, and what is done about it, in order."""

    kind: str
    instance_id: str = ""
    node_name: str
    owner: str = ""
    because: str
    remedies: list[Remedy]
    next_command: str = ""

    @property
    def key(self) -> str:
        """What tells this piece from others, and is the same at the next look."""
        return f"{self.kind}/{self.instance_id or self.node_name}/{self.owner}"


class LeftBehind(Message):
    """The facts: the traces, which incidents and replacements are open, and what people were told of before."""

    cluster: str
    traces: Traces
    open_ids: list[str] = []
    now: datetime
    told_before: list[str] = []


class OrphanPlan(Message):
    """The pieces, and those among them that people have not been told of. `page_key` is the same for the same pieces."""

    orphans: list[Orphan] = []
    news: list[Orphan] = []
    page_key: str = ""


def plan_orphans(left: LeftBehind, policy: PolicySettings) -> OrphanPlan:
    """Return every piece that was left behind. Where nothing may be done to nodes, each is told to a person instead."""
    orphans = [orphan for trace in left.traces.nodes for rule in RULES for orphan in rule(trace, left)]
    orphans += [_stray(stray, left) for stray in left.traces.strays if names.is_incident(stray.owner)]
    opted_out = {trace.node.instance_id for trace in left.traces.nodes if trace.node.opt_out}
    if not _acts(policy):
        orphans = [_told(orphan, "observe mode") for orphan in orphans]
    orphans = [_told(orphan, "it has opted out") if orphan.instance_id in opted_out else orphan for orphan in orphans]
    news = [orphan for orphan in orphans if Remedy.TELL in orphan.remedies and orphan.key not in left.told_before]
    key = hashlib.sha256("\n".join(sorted(orphan.key for orphan in orphans)).encode()).hexdigest()[:12]
    return OrphanPlan(orphans=orphans, news=news, page_key=key)


def _quarantine(trace: Trace, left: LeftBehind) -> Iterator[Orphan]:
    """A quarantine of this node's own incident, by either mark, while that incident is closed."""
    node, ours = trace.node, names.incident_id(left.cluster, trace.node.instance_id)
    if ours in left.open_ids or ours not in (node.quarantine, trace.mark):
        return
    if {node.quarantine, trace.mark} - {"", ours} or trace.foreign_mark:
        return  # two owners: told of by `_strange_owner`, or somebody else's to lift
    files = left.traces.has_marks and not left.traces.marks_unread
    half = not node.quarantine or (files and not trace.mark)
    with_person = bool({node.fate, trace.remembered} & WITH_A_PERSON)
    if with_person and not half:
        return
    what = "its file on the head node is gone" if node.quarantine else "its tag is gone"
    why = [f"{node.name} is quarantined by {ours}, which has ended"]
    why += [f"{what}: a job could start on it"] if half else []
    why += ["a person has it"] if with_person else ["nobody settled what becomes of the node"]
    remedies = [*([Remedy.MARK_AGAIN] if half else []), *([] if with_person else [Remedy.ADOPT])]
    yield _of(trace, "quarantine", ours, "; ".join(why), remedies)


def _strange_owner(trace: Trace, left: LeftBehind) -> Iterator[Orphan]:
    """A mark that names the incident of another node, or of another cluster: copied with an image or a template, or left by an
    instance that had this name before."""
    node, ours = trace.node, names.incident_id(left.cluster, trace.node.instance_id)
    remove = f"aws ec2 delete-tags --resources {node.instance_id} --tags Key="
    if names.is_incident(node.quarantine) and node.quarantine != ours:
        why = f"{node.name} bears the quarantine of {node.quarantine}, which is not its own incident"
        yield _of(trace, "quarantine of another node", node.quarantine, why, [Remedy.TELL], remove + names.TAG_QUARANTINE)
    if names.is_incident(trace.mark) and trace.mark != ours:
        why = f"the file that keeps jobs off {node.name} is of {trace.mark}, which is not its own incident"
        yield _of(trace, "file of another node", trace.mark, why, [Remedy.TELL], _remove_file(node.name))
    owner = names.owner_in(node.stood_back)
    if owner and owner != ours:
        why = f"other healers of {node.name} stand back for {owner}, which is not its own incident"
        yield _of(trace, "standby of another node", owner, why, [Remedy.TELL], remove + names.TAG_STOOD_BACK)


def _lease(trace: Trace, left: LeftBehind) -> Iterator[Orphan]:
    """A spare whose replacement is gone: in use by a job it is a node like any other, else it goes back through a look at it."""
    node, owner = trace.node, trace.node.lease
    if not names.is_replacement(owner) or owner in left.open_ids or trace.job is None:
        return
    if not owner.startswith(names.replace_id(left.cluster, "")):
        yield _of(
            trace, "lease of another cluster", owner, f"{node.name} is leased by {owner}, of another cluster", [Remedy.TELL]
        )
    elif trace.job:
        why = f"{owner} has ended and {trace.job} has {node.name} in its node set: the lease is over"
        yield _of(trace, "lease", owner, why, [Remedy.HAND_OVER])
    else:
        why = f"{owner} has ended and no job uses {node.name}: back into the pool, after a look at it"
        yield _of(trace, "lease", owner, why, [Remedy.RETURN_SPARE, Remedy.ADOPT])


def _record_of_a_spare(trace: Trace, left: LeftBehind) -> Iterator[Orphan]:
    node = trace.node
    if node.replaces and not node.lease and node.role == names.ROLE_SPARE:
        why = f"{node.name} is a spare and bears the record that it stands in for {node.replaces}"
        yield _of(trace, "replaces", node.replaces, why, [Remedy.FORGET])


def _healers(trace: Trace, left: LeftBehind) -> Iterator[Orphan]:
    """Healers that stand back for an incident that has ended. In quarantine the node is another rule's, or a person's."""
    node, ours = trace.node, names.incident_id(left.cluster, trace.node.instance_id)
    if names.owner_in(node.stood_back) != ours or ours in left.open_ids or node.quarantine or trace.mark:
        return
    why = f"other healers of {node.name} stand back for {ours}, which has ended; the node serves"
    yield _of(trace, "standby", ours, why, [Remedy.ADOPT])


def _half_launched(trace: Trace, left: LeftBehind) -> Iterator[Orphan]:
    node = trace.node
    if node.state != "pending" or node.launched_at is None or left.now - node.launched_at <= LAUNCH_PATIENCE:
        return
    minutes = (left.now - node.launched_at).total_seconds() / 60
    why = f"{node.name} ({node.instance_id}) was launched {minutes:.0f} minutes ago and is still pending"
    command = f"aws ec2 describe-instances --instance-ids {node.instance_id}"
    yield _of(trace, "launch", "", why, [Remedy.TELL], command)


RULES: tuple[Callable[[Trace, LeftBehind], Iterator[Orphan]], ...] = (
    _quarantine,
    _strange_owner,
    _lease,
    _record_of_a_spare,
    _healers,
    _half_launched,
)


def _stray(stray: StrayMark, left: LeftBehind) -> Orphan:
    name = stray.node_name
    why = f"a file of {stray.owner} keeps jobs off any node called {name}, and no node of {left.cluster} is called so"
    return Orphan(
        kind="file without a node",
        node_name=name,
        owner=stray.owner,
        because=why,
        remedies=[Remedy.TELL],
        next_command=_remove_file(name),
    )


def _of(trace: Trace, kind: str, owner: str, because: str, remedies: list[Remedy], command: str = "") -> Orphan:
    node = trace.node
    return Orphan(
        kind=kind,
        instance_id=node.instance_id,
        node_name=node.name,
        owner=owner,
        because=because,
        remedies=remedies,
        next_command=command or f"hotspare why {node.name}",
    )


def _told(orphan: Orphan, why: str) -> Orphan:
    if orphan.remedies == [Remedy.TELL]:
        return orphan
    would = ", then ".join(remedy.value for remedy in orphan.remedies)
    return orphan.model_copy(update={"because": f"{orphan.because}; {why}: would {would}", "remedies": [Remedy.TELL]})


def _remove_file(name: str) -> str:
    return f"on the head node: sudo rm /etc/hotspare/quarantined.d/{name}"


def _acts(policy: PolicySettings) -> bool:
    modes = [policy.mode, *policy.mode_by_rung.values()]
    modes += [mode for by_rung in policy.mode_by_class.values() for mode in by_rung.values()]
    return any(mode is not Mode.OBSERVE for mode in modes)
