"""What is said to Cluster while it judges stands above what it has judged."""

from __future__ import annotations

from datetime import UTC, datetime

from workflows.cluster import Cluster
from workflows.cluster_messages import AskKind, Breaker, BreakerState, ClusterState, GiveBack, Grant
from workflows.decisions.breaker import after_repair
from workflows.decisions.cluster_book import Judgement
from workflows.decisions.settings import ClusterSettings

NOW = datetime(2026, 11, 4, 3, 0, tzinfo=UTC)


def test_a_trial_that_ends_while_cluster_judges_closes_the_breaker() -> None:
    grant = Grant(request_id="r-1", asker="incident/lab/i-1", kind=AskKind.NODE_OUT, instance_id="i-1", granted_at=NOW)
    half = Breaker(state=BreakerState.HALF_OPEN, since=NOW, reason="a burst", trial="i-1")
    state = ClusterState(grants=[grant], breaker=half)
    cluster = Cluster.__new__(Cluster)
    cluster._state, cluster._freezes_changed, cluster._thawed_meanwhile = state, False, set()
    cluster._back = [GiveBack(asker=grant.asker, request_ids=["r-1"], healed=True)]
    cluster._book_judgement(Judgement(state=state))
    assert cluster._state.grants == []
    [end] = cluster._state.ended
    assert after_repair(half, end, ClusterSettings(), NOW).state is BreakerState.CLOSED
