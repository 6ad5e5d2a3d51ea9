"""The one checker: however a story was disturbed, what must be true of the world once nothing moves any more.

It looks at the fleet, at Cluster's books and at the pages, never at how the workflows came there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus

from activities import names
from activities.jobs.protocol import JobState
from activities.notify import Page
from tests.chaos.arena import Arena
from tests.chaos.points import Kind, is_lost_letter
from tests.chaos.stories import ChaosStory
from workflows.cluster_messages import AskKind
from workflows.messages import IncidentReport

Views = Mapping[str, WorkflowExecutionDescription]

FINE = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.CONTINUED_AS_NEW)

NEED_NOBODY = frozenset({"resolved", "nothing found", "part of a storm"})
"""Outcomes after which nobody has to do anything; after every other one a person must have been told."""


@dataclass
class Ending:
    """How a disturbed story ended: words for the table, and every promise that was broken."""

    words: str
    broken: list[str] = field(default_factory=list)


async def world(arena: Arena, views: Views, waiting: list[str]) -> list[str]:
    """What is broken in a world in which no job had to be healed."""
    return [
        *_no_dead_workflow(arena, views),
        *_cancelled(arena, views),
        *_once(arena),
        *_no_orphans(arena, waiting),
        *await _books(arena, waiting),
    ]


def waiting_for_people(views: Views, reports: Mapping[str, IncidentReport]) -> list[str]:
    """The incidents that wait for a word."""
    return [key for key in views if names.is_incident(key) and key not in reports and _runs(views, key)]


async def check(arena: Arena, story: ChaosStory) -> Ending:
    """Judge the world."""
    if is_lost_letter(arena.points.disturbance):
        await arena.audited()
    reports = await arena.reports()
    views = await arena.views()
    waiting = waiting_for_people(views, reports)
    broken = [
        *_no_dead_workflow(arena, views),
        *_ends(arena, story, reports, waiting),
        *_cancelled(arena, views),
        *_once(arena),
        *_resume(arena),
        *_supplied(arena),
        *_no_orphans(arena, waiting),
        *await _books(arena, waiting),
    ]
    return Ending(_words(arena, story, reports, waiting), broken)


def _runs(views: Views, key: str) -> bool:
    return views[key].status is WorkflowExecutionStatus.RUNNING


def _words(arena: Arena, story: ChaosStory, reports: dict[str, IncidentReport], waiting: list[str]) -> str:
    """What became of the job, and who has the nodes that are not settled."""
    job = arena.fleet.job
    trains = "trains" if job.state is JobState.RUNNING else "job with a person"
    spare = f" with {', '.join(node for node in job.nodes if node.startswith('spare'))}" if _uses_spare(arena) else ""
    people = sorted({name for name in _with_people(arena, reports, waiting) if name not in story.bad})
    return f"{trains}{spare}" + (f"; {', '.join(people)} with a person" if people else "")


def _uses_spare(arena: Arena) -> bool:
    job = arena.fleet.job
    return job.state is JobState.RUNNING and any(node.startswith("spare") for node in job.nodes)


def _with_people(arena: Arena, reports: dict[str, IncidentReport], waiting: list[str]) -> list[str]:
    escalated = [report.node for report in reports.values() if report.outcome not in NEED_NOBODY]
    return [*escalated, *(_node_of(arena, key) for key in waiting)]


def _node_of(arena: Arena, incident: str) -> str:
    return arena.fleet.node(incident.rpartition("/")[2]).name


def _no_dead_workflow(arena: Arena, views: Views) -> list[str]:
    """No workflow dies but a replacement that told its incident so, and none that was cancelled by nobody."""
    found = []
    fine = (*FINE, WorkflowExecutionStatus.CANCELED) if _is_cancel(arena) else FINE
    for key, view in views.items():
        if view.status not in fine and not key.startswith(("replace/", "burn-in/")):
            found.append(f"{key} ended as {view.status.name if view.status else 'unknown'}")
    return found


def _ends(arena: Arena, story: ChaosStory, reports: dict[str, IncidentReport], waiting: list[str]) -> list[str]:
    """Each incident is resolved or with a person who was told; the job trains or a person was told of it."""
    found = []
    if not reports and not waiting and not _is_cancel(arena):
        found.append("no incident is left to show for the fault")
    for key, report in reports.items():
        if report.outcome not in NEED_NOBODY and not (_told(arena, key) or _told(arena, _recovery(arena))):
            found.append(f"{key} ended as {report.outcome!r} and nobody was told")
    found += [f"{key} waits for a person whom nobody told" for key in waiting if not _told(arena, key)]
    job = arena.fleet.job
    if job.state is not JobState.RUNNING and not _told(arena):
        found.append(f"the job is {job.state.value} and nobody was told")
    for name in story.bad if job.state is JobState.RUNNING else ():
        if name in job.nodes:
            found.append(f"the job runs on {name}, which is ill")
    return found


def _is_cancel(arena: Arena) -> bool:
    return arena.points.disturbance is not None and arena.points.disturbance.kind is Kind.CANCELLED


def _cancelled(arena: Arena, views: Views) -> list[str]:
    """An incident that was cancelled is remembered as such."""
    ended = [key for key, view in views.items() if names.is_incident(key) and view.status is WorkflowExecutionStatus.CANCELED]
    known = {one.incident for one in arena.fleet.memory.incidents() if one.outcome == "cancelled"}
    return [f"{key} was cancelled, and host memory does not know it" for key in ended if key not in known]


def _recovery(arena: Arena) -> str:
    return names.job_id(arena.fleet.cluster, arena.fleet.job.name)


def _told(arena: Arena, incident: str = "") -> list[Page]:
    """Pages about an incident (or any) that name the next command. A pager that is the disturbed step itself may have none."""
    disturbance = arena.points.disturbance
    pages = [page for page in arena.fleet.pages if incident in ("", page.incident) and page.next_commands]
    if not pages and disturbance is not None and disturbance.key.point == "page":
        return [Page(key="", incident=incident, node="", title="the pager is what failed")]
    return pages


def _once(arena: Arena) -> list[str]:
    """Each effect happened once."""
    fleet, found = arena.fleet, []
    instances = {entry.name: entry.instance_id for entry in fleet.entries}
    for name, machine in fleet.machines.items():
        for point in ("reboot", "stop", "start_instance"):
            if (times := fleet.count(point, name)) > 1:
                found.append(f"{point} of {name}: {times} times")
        if fleet.count("stop", name) != fleet.count("start_instance", name):
            found.append(f"{name} was stopped and not started")
        known = fleet.memory.recall(instances[name]).attempts
        if fleet.count("reboot", name) + fleet.count("stop", name) > len(known):
            found.append(f"{name} was restarted more often than host memory knows: {len(known)}")
        if machine.boot > 1 + fleet.count("reboot", name) + fleet.count("start_instance", name) + fleet.count("run.reboot", name):
            found.append(f"{name} has booted {machine.boot - 1} times")
    tagged = [made for made in arena.points.made if (made.point, made.activity) == ("set_tags", "tag_node")]
    attached = Counter(made.node for made in tagged if made.node.startswith("spare"))
    found += [f"{name} was attached or tagged {times} times" for name, times in attached.items() if times > 2]
    pages = {(page.incident, page.title): set[str]() for page in fleet.pages}
    for page in fleet.pages:
        pages[page.incident, page.title].add(page.key)
    found += [f"page {title!r} went out under {len(keys)} keys" for (_, title), keys in pages.items() if len(keys) > 1]
    return found


def _resume(arena: Arena) -> list[str]:
    """The job was resumed at most once, on a node set that had passed its burn-in and of which no node is quarantined."""
    fleet, found = arena.fleet, []
    if len(fleet.job.resumes) > 1:
        found.append(f"the job was resumed {len(fleet.job.resumes)} times")
    for _, nodes in fleet.job.resumes:
        if sorted(nodes) not in [sorted(group) for group in fleet.group_run_nodes]:
            found.append(f"the job was resumed on {', '.join(nodes)}, which were never burned in together")
        ill = [name for name in nodes if any(fault.slow < 1 or fault.wrong for fault in fleet.machines[name].faults)]
        if ill:
            found.append(f"the job was resumed on {', '.join(ill)}, which fail their burn-in")
    if fleet.job.state is JobState.RUNNING and (fleet.job.resumes or fleet.job.controller_restarts):
        for name in fleet.job.nodes:
            if fleet.quarantined_at_head(name) or _tags(arena, name).get(names.TAG_QUARANTINE):
                found.append(f"the job runs on {name}, which is quarantined")
    return found


def _supplied(arena: Arena) -> list[str]:
    """A job's controller gets only what has passed a burn-in, and keeps nothing that is back in the pool."""
    fleet, found = arena.fleet, []
    for name in fleet.job.supplied:
        if not any(name in group for group in fleet.group_run_nodes):
            found.append(f"{name} was supplied to the job and never proven")
        if _tags(arena, name)[names.TAG_ROLE] == names.ROLE_SPARE:
            found.append(f"{name} is in the pool and still the job's")
    if fleet.job.controller_restarts > 1:
        found.append(f"the controller started the job {fleet.job.controller_restarts} times")
    return found


def _tags(arena: Arena, name: str) -> dict[str, str]:
    return arena.fleet.ec2.tags[next(entry.instance_id for entry in arena.fleet.entries if entry.name == name)]


def _no_orphans(arena: Arena, waiting: list[str]) -> list[str]:
    """Every mark has an owner: marks agree, are ours, and a node that is out is with a person or has an open incident."""
    fleet, found = arena.fleet, []
    for entry in fleet.entries:
        tags, at_head = _tags(arena, entry.name), fleet.quarantined_at_head(entry.name)
        owner, incident = tags.get(names.TAG_QUARANTINE, ""), names.incident_id(fleet.cluster, entry.instance_id)
        is_open = incident in waiting
        if owner not in ("", incident):
            found.append(f"{entry.name} is quarantined by {owner}")
        if bool(owner) != at_head and not is_open:
            found.append(f"the marks of {entry.name} disagree: tag {owner!r}, file at head {at_head}")
        fate = fleet.memory.recall(entry.instance_id).fate
        known = {fate, tags.get(names.TAG_FATE, "")} & {names.FATE_RETIRED, names.FATE_WITH_PERSON}
        if (owner or at_head) and not is_open and not known:
            found.append(f"{entry.name} is quarantined, and nobody has it")
        if (lease := tags.get(names.TAG_LEASE)) and not _cannot_be_removed(arena, entry.name):
            found.append(f"{entry.name} is still leased to {lease}")
        role = tags.get(names.TAG_ROLE, entry.role)
        if role == names.ROLE_SPARE and entry.name in fleet.job.nodes and fleet.job.state is JobState.RUNNING:
            found.append(f"{entry.name} is in the pool, and the job runs on it")
        if entry.role == names.ROLE_SPARE and role == names.ROLE_WORKER and not _has_place(arena, entry.name):
            found.append(f"{entry.name} is no spare any more and no job has it")
    return found


def _cannot_be_removed(arena: Arena, name: str) -> bool:
    """Whether EC2 removes no tag of this node for good: the reconcile finds the lease when it does again."""
    disturbed = arena.points.disturbance
    if disturbed is None or disturbed.kind is not Kind.FAILS_FOR_GOOD:
        return False
    return (disturbed.key.point, disturbed.key.node) in (("remove_tags", name), ("describe", name))


def _has_place(arena: Arena, spare: str) -> bool:
    """A spare that became a worker stands in for a node: in the job, or in the node set that a person has."""
    return spare in arena.fleet.job.nodes or arena.fleet.job.state is not JobState.RUNNING


async def _books(arena: Arena, waiting: list[str]) -> list[str]:
    """Cluster books nothing but what waiting incidents hold."""
    state = (await arena.overview()).state
    found = [f"{grant.kind.value} is still booked on {grant.asker}" for grant in state.grants if grant.asker not in waiting]
    # Who waits for a person tries to give back again when that wait ends.
    untold = is_lost_letter(arena.points.disturbance)
    slots = [grant for grant in state.grants if grant.kind is AskKind.REPAIR_SLOT and not untold]
    found += [f"a repair slot is held by {grant.asker}, which waits" for grant in slots]
    found += [f"{grant.asker} has partners and proves nothing" for grant in state.grants if grant.partners and not untold]
    found += [f"{ask.asker} is still queued for {ask.kind.value}" for ask in state.queue]
    return found + [f"an answer to {asker} was never sent" for asker, _ in state.outbox]
