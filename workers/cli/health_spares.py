"""What `doctor` says of the spare pool: how many spares count, what keeps the others from it, and how many there should be."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from activities.errors import HotspareError
from activities.inventory import Node
from activities.names import ROLE_SPARE
from activities.spare_records import records_of
from checks.model import Verdict
from workers.cli.health import Line
from workers.cli.spares_needs import MOST_INCIDENTS, SeenHere
from workers.settings import Settings
from workers.wiring import Wiring
from workflows.decisions.spares_groups import groups_of
from workflows.decisions.spares_listed import Listed, list_pool
from workflows.decisions.spares_pool import plan_pool
from workflows.decisions.spares_standing import NEVER_TESTED
from workflows.decisions.spares_tests import acts

SHOWN = 3
"""Spares of which is said why they do not count. Hotspare default: one line; `hotspare spares list` has all."""


async def check_pool(settings: Settings, wiring: Wiring, nodes: list[Node]) -> list[Line]:
    """Look at the spares; nothing is said where there are none, which the inventory's line tells already."""
    if not any(node.role == ROLE_SPARE for node in nodes):
        return []
    try:
        listed, needed = await asyncio.to_thread(_look, settings, wiring, nodes)
    except HotspareError as error:
        return [Line("spare pool", Verdict.UNKNOWN, str(error), "mend host memory; the spares are tested when one is needed")]
    counting = [one for one in listed if one.counts]
    others = [f"{one.name}: {_why(one)}" for one in listed if not one.counts]
    more = [f"and {len(others) - SHOWN} more"] if len(others) > SHOWN else []
    text = f"{len(counting)} of {len(listed)} spares count, {needed} are planned for"
    if not others:
        return [Line("spare pool", Verdict.OK, text)]
    text += f" ({'; '.join([*others[:SHOWN], *more])})"
    if not acts(settings.policy):
        return [Line("spare pool", Verdict.OK, f"{text}; no spare is put under load while the cluster is only observed")]
    how = "the sweep tests them in turn; now: hotspare spares test NODE, all of it: hotspare spares list"
    new = all(one.use == "free" and one.standing == NEVER_TESTED for one in listed)
    return [Line("spare pool", Verdict.OK if counting or new else Verdict.WARN, text, how)]


def _look(settings: Settings, wiring: Wiring, nodes: list[Node]) -> tuple[list[Listed], int]:
    now = datetime.now(UTC)
    records = records_of(wiring.memory, nodes)
    listed = list_pool(nodes, records, [], settings.spares, settings.policy.probation_h, now)
    closed = [one for one in wiring.memory.incidents(limit=MOST_INCIDENTS) if one.cluster == settings.name]
    seen = SeenHere(settings.spares, nodes, closed, now)
    needs = groups_of(nodes, seen.rate_of, {})
    return listed, sum(plan_pool(need, settings.spares).pool for need in needs)


def _why(one: Listed) -> str:
    return one.standing if one.use == "free" else one.use
