"""The breaker: after a burst of faults, or repairs in a row that did not help, new disruption stops until a trial has gone well.

Something that makes many nodes fail at once, or repairs useless, is rarely the nodes. It never stops recovery: what comes back
is not asked of it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from workflows.cluster_messages import Breaker, BreakerState, RepairEnd, SeenFault
from workflows.decisions.settings import ClusterSettings

TRIAL_PERIODS = 4
"""Open periods that a trial may take. Hotspare default: longer than the slowest boot with its re-test."""


def after_faults(breaker: Breaker, recent: list[SeenFault], fleet: int, limits: ClusterSettings, now: datetime) -> Breaker:
    """Trip on a burst: so many nodes with faults of any kind within the window, and such a share of the fleet."""
    if breaker.state is not BreakerState.CLOSED:
        return breaker
    since = now - timedelta(seconds=limits.breaker_window_s)
    nodes = {seen.instance_id for seen in recent if seen.at > since}
    share = 100.0 * len(nodes) / max(1, fleet)
    many = share >= limits.breaker_percent or len(nodes) >= limits.breaker_nodes_at_most
    if len(nodes) < limits.breaker_nodes or not many:
        return breaker
    limit = f"limit {limits.breaker_nodes} nodes and {limits.breaker_percent:g} %"
    reason = f"{len(nodes)} of {fleet} nodes reported faults within {limits.breaker_window_s / 60:g} min ({limit})"
    return Breaker(state=BreakerState.OPEN, since=now, reason=reason)


def after_time(breaker: Breaker, limits: ClusterSettings, now: datetime) -> Breaker:
    """Let one node through once the breaker has been open long enough; a trial that does not end is no success."""
    waited_s = (now - breaker.since).total_seconds() if breaker.since is not None else 0.0
    if breaker.state is BreakerState.OPEN and waited_s >= limits.breaker_open_s:
        return breaker.model_copy(update={"state": BreakerState.HALF_OPEN, "since": now, "trial": ""})
    if breaker.state is BreakerState.HALF_OPEN and breaker.trial and waited_s >= TRIAL_PERIODS * limits.breaker_open_s:
        return Breaker(state=BreakerState.OPEN, since=now, reason="the repair that was tried half-open has not ended")
    return breaker


def after_repair(breaker: Breaker, end: RepairEnd, limits: ClusterSettings, now: datetime) -> Breaker:
    """Count how a node's repair ended. The trial decides: it closes the breaker, or opens it again."""
    if breaker.state is BreakerState.HALF_OPEN and breaker.trial == end.instance_id:
        if end.healed is None:
            return breaker.model_copy(update={"trial": ""})
        if end.healed:
            return Breaker()
        return Breaker(state=BreakerState.OPEN, since=now, reason="the repair that was tried half-open did not help")
    if end.healed is None:
        return breaker
    since = now - timedelta(hours=limits.breaker_failures_window_h)
    failures = [] if end.healed else [*(at for at in breaker.failures if at > since), now]
    if breaker.state is BreakerState.CLOSED and len(failures) >= limits.breaker_failed_repairs > 0:
        reason = f"{len(failures)} repairs in a row did not help: it may not be the nodes"
        return Breaker(state=BreakerState.OPEN, since=now, reason=reason)
    return breaker.model_copy(update={"failures": failures})


def with_trial(breaker: Breaker, instance_id: str, now: datetime) -> Breaker:
    """Return the breaker after a grant: half-open, the node that got it is the trial."""
    if breaker.state is BreakerState.HALF_OPEN and not breaker.trial:
        return breaker.model_copy(update={"trial": instance_id, "since": now})
    return breaker


def refusal(breaker: Breaker, instance_id: str, limits: ClusterSettings) -> str:
    """Return why nothing new may be disrupted now, empty when it may."""
    if breaker.state is BreakerState.OPEN and breaker.since is not None:
        at = breaker.since + timedelta(seconds=limits.breaker_open_s)
        closes = "`hotspare thaw --scope breaker` closes it"
        return f"the breaker is open: {breaker.reason}; one node is tried from {at:%H:%M} UTC, {closes}"
    if breaker.state is BreakerState.HALF_OPEN and breaker.trial not in ("", instance_id):
        return f"the breaker is half-open ({breaker.reason}): one node is being tried first"
    return ""
