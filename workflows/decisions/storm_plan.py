"""What is done about a storm: once for the whole event, and never to a node."""

from __future__ import annotations

from activities.incidents import StormMember
from activities.message import Message
from checks.model import Action
from workflows.decisions.gates import mode_of
from workflows.decisions.settings import Mode, PolicySettings


class StormFacts(Message):
    """What a storm knows when it decides."""

    members: list[StormMember]
    reason: str


class StormPlan(Message):
    """What to do: jobs to restart, nodes to look at again when it is quiet, and the page's words."""

    title: str
    why: list[str]
    restart_jobs: list[str] = []
    look_again: bool = False
    next_commands: list[str] = []


def plan_storm(facts: StormFacts, policy: PolicySettings) -> StormPlan:
    """Restart each job that crashed, once, where the mode lets us; anything else is a person's, told with one page."""
    nodes = sorted({member.node_name for member in facts.members})
    classes = sorted({member.fault_class for member in facts.members})
    crashed = sorted({member.job for member in facts.members if member.job and member.fault_class == "application"})
    first = facts.members[0].node_name
    what = f"{', '.join(classes)} on {len(nodes)} nodes at once"
    why = [facts.reason, f"no node was disrupted for it; {first} reported first", f"nodes: {_listed(nodes)}"]
    commands = ["hotspare status", f"hotspare why {first}"]
    if not crashed:
        look = "look at what these nodes share: switch, rack, image, driver, power, file system"
        return StormPlan(title=what, why=[*why, look], next_commands=[*commands, "hotspare thaw --scope storms"])
    if mode_of(Action.RESTART_JOB, policy, "application") is not Mode.ACT:
        return StormPlan(
            title=what, why=[*why, f"restart by hand: {', '.join(crashed)}"], next_commands=commands, look_again=True
        )
    why.append(f"to be restarted once, after a burn-in, where they have stopped: {', '.join(crashed)}")
    return StormPlan(title=what, why=why, restart_jobs=crashed, look_again=True, next_commands=commands)


def _listed(nodes: list[str]) -> str:
    shown = ", ".join(nodes[:NODES_SHOWN])
    return shown if len(nodes) <= NODES_SHOWN else f"{shown} and {len(nodes) - NODES_SHOWN} more"


NODES_SHOWN = 12
"""Nodes that a page names. Hotspare default: what fits on a telephone."""
