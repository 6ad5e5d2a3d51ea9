"""Decisions as local activities: pure, one at a time, their answers recorded, so settings may change under open incidents."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import activity, workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.host_records import SpareRecord
from activities.inventory import Node
from activities.message import Message
from workflows import options
from workflows.cluster_messages import Ask, ClusterState
from workflows.decisions.burn_in_facts import only_observed
from workflows.decisions.burn_in_plan import BurnInFacts, BurnInNext, plan_next
from workflows.decisions.burn_in_settings import BurnInLimits
from workflows.decisions.cluster_book import Judgement, judge_asks
from workflows.decisions.facts import Facts, Step
from workflows.decisions.orphans import LeftBehind, OrphanPlan, plan_orphans
from workflows.decisions.policy import next_step
from workflows.decisions.provisioning import LaunchPlan, ProvisionFacts, plan_launch
from workflows.decisions.settings import ClusterSettings, PolicySettings, SweepSettings
from workflows.decisions.spares_settings import SpareSettings
from workflows.decisions.spares_standing import standing_of
from workflows.decisions.spares_tests import PoolSeen, SpareTests, acts, plan_spare_tests
from workflows.decisions.storm_plan import StormFacts, StormPlan, plan_storm

Question = TypeVar("Question", bound=Message)
Decision = TypeVar("Decision", bound=Message)


class CannotDecide(RuntimeError):
    """A decision failed in our own code. No failure of a workflow but of its task: it is found, paged and mended by `unwedge`."""


class Desk(Message):
    """What Cluster judges in one go: the batch of asks in order, its books, the spares as seen, and what is known of them."""

    state: ClusterState
    asks: list[Ask]
    spares: list[Node]
    known: list[SpareRecord] = []
    now_iso: str


class SweepPlan(Message):
    """How a sweep goes about it."""

    cluster: str
    parallel: int


class Bearings(Message):
    """What a workflow asks when it starts: the worker's cluster, and whether search attributes are registered.

    `spares_work`: spares do preemptible work while they wait, which is evicted first. `trust_h`: a spare that passed its test
    within so many hours is not put under load again before it joins. The other bounds are those of [policy].
    """

    cluster: str
    attributes: bool
    recovery_deadline_s: float
    ui_url: str = ""
    spares_work: bool = False
    trust_h: float = 0.0
    node_deadline_s: float = 7200.0
    incident_speaks_s: float = 300.0
    burn_in_rounds: int = 4
    spares_tried: int = 3
    hand_over_s: float = 18_000.0


class DecideActivities:
    """Holds the settings as they are now; workflow code never reads them."""

    def __init__(
        self,
        policy: PolicySettings,
        limits: ClusterSettings,
        cluster: str,
        *,
        attributes: bool = True,
        sweep: SweepSettings | None = None,
        spares: SpareSettings | None = None,
        spares_work: bool = False,
        isolation: BurnInLimits | None = None,
        ui_url: str = "",
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._cluster = cluster
        self._attributes = attributes
        self._sweep = sweep or SweepSettings()
        self._isolation = isolation or BurnInLimits()
        self._spares = spares or SpareSettings()
        self._spares_work = spares_work
        self._ui_url = ui_url

    @activity.defn
    def bearings(self) -> Bearings:
        """Say which cluster this worker serves."""
        return Bearings(
            cluster=self._cluster,
            attributes=self._attributes,
            recovery_deadline_s=self._limits.recovery_deadline_s,
            ui_url=self._ui_url,
            spares_work=self._spares_work,
            trust_h=self._spares.trust_h,
            node_deadline_s=self._policy.node_deadline_s,
            incident_speaks_s=self._policy.incident_speaks_s,
            burn_in_rounds=self._policy.burn_in_rounds,
            spares_tried=self._policy.spares_tried,
            hand_over_s=self._policy.hand_over_s,
        )

    @activity.defn
    def decide(self, facts: Facts) -> Step:
        """Choose an incident's next step."""
        return next_step(facts, self._policy)

    @activity.defn
    def judge_asks(self, desk: Desk) -> Judgement:
        """Judge what was asked of Cluster."""
        now = datetime.fromisoformat(desk.now_iso)
        standings = {one.instance_id: standing_of(one, self._spares, self._policy.probation_h, now) for one in desk.known}
        return judge_asks(desk.state, desk.asks, desk.spares, self._limits, desk.now_iso, self._cluster, standings)

    @activity.defn
    def plan_burn_in(self, facts: BurnInFacts) -> BurnInNext:
        """Choose a burn-in's next groups, or its verdict. One by hand puts load on no cluster that is only observed."""
        if facts.by_hand and not acts(self._policy):
            return only_observed(self._cluster)
        return plan_next(facts, self._isolation)

    @activity.defn
    def plan_storm(self, facts: StormFacts) -> StormPlan:
        """Choose what is done about an event that shows on many nodes."""
        return plan_storm(facts, self._policy)

    @activity.defn
    def plan_orphans(self, left: LeftBehind) -> OrphanPlan:
        """Choose what is done about what was left behind."""
        return plan_orphans(left, self._policy)

    @activity.defn
    def plan_spare_tests(self, seen: PoolSeen) -> SpareTests:
        """Choose which spares are tested now."""
        return plan_spare_tests(seen, self._spares, self._policy)

    @activity.defn
    def plan_launch(self, facts: ProvisionFacts) -> LaunchPlan:
        """Choose what comes first, launch or termination, where a new spare is made."""
        policy = self._policy.for_pool(facts.pool or facts.instance_type).for_type(facts.instance_type)
        return plan_launch(facts, policy)

    @activity.defn
    def plan_sweep(self) -> SweepPlan:
        """Say how many nodes a sweep examines at once."""
        return SweepPlan(cluster=self._cluster, parallel=self._sweep.parallel)


async def decided(by: Callable[[DecideActivities, Question], Decision], question: Question, summary: str) -> Decision:
    """Ask for a decision from workflow code.

    Left to the SDK, an error in a decision is retried for ever and without a sound, while a node waits.
    """
    try:
        return await workflow.execute_local_activity_method(by, question, summary=summary, **options.DECIDE)
    except (ApplicationError, ActivityError) as error:
        if is_cancelled_exception(error):
            raise
        raise CannotDecide(f"{summary}: {error.cause or error}") from error


async def bearings() -> Bearings:
    """Ask for bearings from workflow code."""
    return await workflow.execute_local_activity_method(DecideActivities.bearings, start_to_close_timeout=timedelta(seconds=10))
