"""Stories that no fault begins: a spare's test, a launch, a burn-in asked for by hand; and what must be true at their end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from temporalio.client import WorkflowFailureError

from activities import names
from activities.message import Message
from activities.quarantine import QUARANTINE_DIR
from checks.model import Verdict
from tests.chaos.arena import Arena
from tests.chaos.checker import Ending, waiting_for_people, world
from tests.chaos.points import Kind, is_lost_letter
from tests.chaos.stories import ChaosStory
from workflows.messages import StartBurnIn, StartProvision, StartQualification

NODES = ["node-1", "node-2", "node-3", "node-4"]
BY_HAND = "by-hand"


async def begin(arena: Arena, story: ChaosStory) -> None:
    """Start the story's workflow."""
    fleet, cluster = arena.fleet, arena.fleet.cluster
    start: Message
    if story.begins == names.WORKFLOW_QUALIFY_SPARE:
        workflow_id = names.qualify_id(cluster, fleet.node(story.node).instance_id)
        start = StartQualification(node=story.node, cluster=cluster)
    elif story.begins == names.WORKFLOW_PROVISION_SPARE:
        workflow_id = names.provision_id(cluster, BY_HAND)
        start = StartProvision(cluster=cluster, instance_type=fleet.instance_type)
        if story.node:
            start = start.model_copy(update={"in_place_of": story.node, "incident": _retire(arena, story.node)})
    else:
        fleet.job.hold("train", "burn-in by hand")
        workflow_id = names.burn_in_id(cluster, BY_HAND)
        start = StartBurnIn(cluster=cluster, nodes=NODES)
    await arena.begin(story.begins, workflow_id, start)
    if story.begins == names.WORKFLOW_QUALIFY_SPARE:
        arena.watch(names.incident_id(cluster, fleet.node(story.node).instance_id))


def _retire(arena: Arena, name: str) -> str:
    """Leave a node as an incident leaves one that it has given up; returns the incident."""
    fleet = arena.fleet
    node = fleet.node(name)
    incident = names.incident_id(fleet.cluster, node.instance_id)
    fleet.ec2.set_tags(node.instance_id, {names.TAG_QUARANTINE: incident, names.TAG_FATE: names.FATE_RETIRED})
    fleet.machine("head").files[f"{QUARANTINE_DIR}/{name}"] = incident
    fleet.job.nodes.remove(name)
    fleet.machine(name).gpu_processes = 0
    fleet.memory.save(fleet.memory.recall(node.instance_id).model_copy(update={"fate": names.FATE_RETIRED}))
    return incident


async def check_begun(arena: Arena, story: ChaosStory) -> Ending:
    """Judge the world, and what became of the workflow that the story began with."""
    if is_lost_letter(arena.points.disturbance):
        await arena.audited()
    reports, views = await arena.reports(), await arena.views()
    waiting = waiting_for_people(views, reports)
    broken = await world(arena, views, waiting)
    result = await _result(arena)
    if story.begins == names.WORKFLOW_QUALIFY_SPARE:
        words, more = _spare_tested(arena, story, views, result)
    elif story.begins == names.WORKFLOW_PROVISION_SPARE:
        words, more = _launched(arena, story, result)
    else:
        words, more = _burned_in(arena, story, result)
    return Ending(words, [*broken, *more])


async def _result(arena: Arena) -> dict[str, Any] | None:
    """The result of the story's workflow, None where it has none."""
    with suppress(WorkflowFailureError):
        result: dict[str, Any] = await arena.client.get_workflow_handle(arena.begun).result()
        return result
    return None


def _cancelled(arena: Arena) -> bool:
    return arena.points.disturbance is not None and arena.points.disturbance.kind is Kind.CANCELLED


def _pages_with(arena: Arena, words: str) -> bool:
    """Whether people were told so. A pager that is the disturbed step itself may have none."""
    disturbance = arena.points.disturbance
    if disturbance is not None and disturbance.key.point == "page":
        return True
    return any(words in line for page in arena.fleet.pages for line in (page.node, page.title, *page.why))


def _spare_tested(arena: Arena, story: ChaosStory, views: Any, result: dict[str, Any] | None) -> tuple[str, list[str]]:
    """A spare that failed is not taken for one that passed, and is not left to be handed out without a word."""
    fleet = arena.fleet
    node = fleet.node(story.node)
    record = fleet.memory.recall(node.instance_id)
    incident = names.incident_id(fleet.cluster, node.instance_id) in views
    found = []
    if record.qualified_at is not None:
        found.append(f"{story.node} fails and is remembered as qualified")
    failed = result is not None and result["verdict"] == Verdict.CRITICAL.value
    remembered = record.spare_test is not None and not record.spare_test.passed
    if failed and not (incident or remembered or _pages_with(arena, story.node)):
        found.append(f"{story.node} failed its test, and nobody knows")
    if incident:
        return "its own incident", found
    return "failed, remembered" if remembered else "tested again with the next sweep", found


def _launched(arena: Arena, story: ChaosStory, result: dict[str, Any] | None) -> tuple[str, list[str]]:
    """One launch at most, which ends in the pool and proven, or with a person; a retired node goes only for a proven one."""
    fleet = arena.fleet
    launched = [instance for _, instance in fleet.provision.launches.values()]
    found = [f"{len(launched)} instances were launched"] if len(launched) > 1 else []
    in_pool = False
    for instance in launched:
        role = fleet.ec2.tags[instance].get(names.TAG_ROLE)
        proven = fleet.memory.recall(instance).qualified_at is not None
        if role == names.ROLE_SPARE and not proven:
            found.append(f"{instance} is in the pool and was never proven")
        in_pool = role == names.ROLE_SPARE
        if not in_pool and not (_pages_with(arena, instance) or _pages_with(arena, "may have been made all the same")):
            found.append(f"{instance} runs in no pool, and nobody was told")
    gone = bool(story.node) and fleet.machines[story.node].state == "terminated"
    if gone and not in_pool:
        found.append(f"{story.node} was ended, and nothing is in its place")
    disturbance = arena.points.disturbance
    if gone and _cancelled(arena) and disturbance is not None and disturbance.key.activity != "terminate_node":
        found.append(f"{story.node} was ended after a person had cancelled")
    if fleet.count("terminate") > 1:
        found.append(f"{fleet.count('terminate')} terminations")
    done = result["outcome"] if result is not None else "cancelled" if _cancelled(arena) else "without a result"
    if result is None and not _cancelled(arena):
        found.append("the workflow has no result")
    return str(done) + (f"; {story.node} {'ended' if gone else 'held'}" if story.node else ""), found


def _burned_in(arena: Arena, story: ChaosStory, result: dict[str, Any] | None) -> tuple[str, list[str]]:
    """The slow node is found, or nobody is accused; every run is ended."""
    found = []
    for key, run in arena.fleet.group_runs.items():
        if run.looks_left:
            found.append(f"run {key} still runs")
    if result is None:
        return "cancelled" if _cancelled(arena) else "without a result", found if _cancelled(arena) else [*found, "no result"]
    bad = [one["node_name"] for one in result["nodes"] if one["verdict"] == Verdict.CRITICAL.value]
    if bad not in ([story.node], []):
        found.append(f"{', '.join(bad)} accused")
    if result["verdict"] == Verdict.OK.value:
        found.append("the group passed with a slow node")
    return f"{', '.join(bad)} found" if bad else f"nobody accused: {result['cause']}", found
