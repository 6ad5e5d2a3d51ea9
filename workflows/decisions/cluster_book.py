"""The books of Cluster: who is out, who repairs, who has which spare; judged in batches, purely.

Limits stop new disruption only. What gives capacity back is never judged, just booked (`cluster_entries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from activities.inventory import Node
from activities.message import Message
from activities.names import storm_id
from workflows.cluster_messages import Alone, Answer, Ask, AskKind, ClusterState, Grant, OpenStorm, RepairEnd, SeenFault
from workflows.decisions import breaker, room
from workflows.decisions.settings import ClusterSettings
from workflows.decisions.spares import OF_THE_POOL, Pool, SpareChoice, choose_partners, choose_spare, taken_by
from workflows.decisions.spares_standing import Standing
from workflows.decisions.storms import OFTEN_SHARED, storm_among, worth_remembering

WORDS_LIMIT = 160
"""Characters of a reason that are kept with a queued ask. Hotspare default: keeps the books under 256 KB."""

CAPACITY = (AskKind.NODE_OUT, AskKind.REPAIR_SLOT)
"""Kinds that begin a disruption, which limits, freezes and the breaker hold back."""


class Judgement(Message):
    """The books after a batch, and the answers to send: (workflow id, answer). `look_again_s` is when time alone changes them."""

    state: ClusterState
    answers: list[tuple[str, Answer]] = []
    look_again_s: float | None = None


def judge_asks(
    state: ClusterState,
    asks: list[Ask],
    spares: list[Node],
    limits: ClusterSettings,
    now_iso: str,
    cluster: str = "",
    standings: Mapping[str, Standing] | None = None,
) -> Judgement:
    """Judge what waits and what is new, the greatest impact first. Asking again with the same id gets the same grant.

    `standings` says how the spares stand, by instance id.
    """
    book = _Book(state, Pool(spares, standings or {}), limits, datetime.fromisoformat(now_iso), cluster)
    book.count_repairs(state.ended)
    queued = {ask.request_id for ask in state.queue}
    repeats = [ask for ask in asks if ask.request_id in queued]
    fresh = [book.stamped(ask) for ask in asks if ask.request_id not in queued]
    for ask in fresh:
        book.remember(ask)
    book.look_for_bursts([*state.queue, *fresh])
    new = {ask.request_id for ask in fresh}
    for ask in sorted([*state.queue, *fresh], key=book.place):
        book.judge(ask, new=ask.request_id in new)
    for ask in repeats:
        book.repeat_queued(ask)
    return Judgement(state=book.state(), answers=book.answers, look_again_s=book.look_again_s())


class _Book:
    def __init__(self, state: ClusterState, pool: Pool, limits: ClusterSettings, now: datetime, cluster: str) -> None:
        self._old = state
        self._pool = pool
        self._spares = pool.spares
        self._limits = limits
        self._now = now
        self._cluster = cluster
        self._view = state.view.model_copy(update={"nodes": state.fleet})
        self._grants = {grant.request_id: grant for grant in state.grants}
        self._freezes = [freeze for freeze in state.freezes if freeze.until > now]
        self._recent = worth_remembering(state.recent, now)
        self._storms = [one for one in state.storms if now - one.since <= timedelta(seconds=limits.storm_lasts_s)]
        self._told = {(one.storm_id, node) for one in self._storms for node in one.members}
        self._breaker = breaker.after_time(state.breaker, limits, now)
        self._queue: list[Ask] = []
        self.answers: list[tuple[str, Answer]] = []

    def state(self) -> ClusterState:
        return self._old.model_copy(
            update={
                "grants": list(self._grants.values()),
                "freezes": self._freezes,
                "queue": self._queue,
                "recent": self._recent,
                "storms": self._storms,
                "breaker": self._breaker,
                "ended": [],
            }
        )

    def look_again_s(self) -> float | None:
        """Seconds until the youngest ask that waits for company has waited long enough."""
        waits = [self._wait_left_s(ask) for ask in self._queue]
        return min((left for left in waits if left > 0), default=None)

    def stamped(self, ask: Ask) -> Ask:
        return ask.model_copy(update={"asked_at": min(ask.since or self._now, self._now)})

    def place(self, ask: Ask) -> tuple[bool, int, datetime]:
        """Who waits with more GPUs goes first, of equals who waits longer; who wants partners only, last."""
        return ask.kind is AskKind.PARTNER, -ask.impact, ask.asked_at or self._now

    def remember(self, ask: Ask) -> None:
        if ask.kind not in (AskKind.NODE_OUT, AskKind.ALONE):
            return
        self._recent = [
            seen for seen in self._recent if (seen.instance_id, seen.fault_class) != (ask.instance_id, ask.fault_class)
        ]
        seen = SeenFault(
            instance_id=ask.instance_id,
            fault_class=ask.fault_class,
            at=ask.asked_at or self._now,
            code=ask.code,
            domains=room.domains(ask),
            job=ask.job,
            uptime_s=ask.uptime_s,
        )
        self._recent.append(seen)

    def count_repairs(self, ended: list[RepairEnd]) -> None:
        for end in ended:
            self._breaker = breaker.after_repair(self._breaker, end, self._limits, self._now)

    def look_for_bursts(self, asks: list[Ask]) -> None:
        """Open storms first: what is part of one event is not a burst of many."""
        for ask in asks:
            self._storm(ask)
        explained = {(node, one.fault_class) for one in self._storms for node in one.members}
        unexplained = [
            seen
            for seen in self._recent
            if seen.fault_class != "application" and (seen.instance_id, seen.fault_class) not in explained
        ]
        self._breaker = breaker.after_faults(self._breaker, unexplained, self._view.nodes, self._limits, self._now)

    def judge(self, ask: Ask, *, new: bool) -> None:
        if ask.request_id in self._grants:
            self._answer(ask, self._granted(self._grants[ask.request_id], "granted before"))
            return
        storm = self._storm(ask)
        if storm is not None:
            self._answer(ask, storm)
            return
        if ask.kind is AskKind.SPARE:
            self._lease(ask, new=new)
            return
        if ask.kind is AskKind.PARTNER:
            self._lend(ask, new=new)
            return
        why = self._held_back(ask)
        if why:
            self._have_wait(ask, why, new=new)
            return
        self._grant(ask, "there is room" if ask.kind in CAPACITY else "no other node shows it")

    def repeat_queued(self, ask: Ask) -> None:
        for waiting in self._queue:
            if waiting.request_id == ask.request_id:
                why = waiting.waits_for if ask.kind in OF_THE_POOL else self._held_back(waiting)
                self._answer(ask, self._queued(ask, why))

    def _held_back(self, ask: Ask) -> str:
        """Why a disruption may not begin now, empty when it may."""
        left = self._wait_left_s(ask)
        if left > 0:
            return f"seeing for {left:.0f} s whether other nodes show {ask.fault_class} too"
        if ask.kind not in CAPACITY:
            return ""
        within = room.scopes(ask.instance_id, ask.job, room.domains(ask), ask.pool)
        return (
            room.frozen(self._freezes, within)
            or breaker.refusal(self._breaker, ask.instance_id, self._limits)
            or room.no_room(ask, self._grants.values(), self._view, self._limits, self._now)
        )

    def _wait_left_s(self, ask: Ask) -> float:
        if ask.kind not in (AskKind.NODE_OUT, AskKind.ALONE) or ask.accused or ask.fault_class not in OFTEN_SHARED:
            return 0.0
        waited = (self._now - ask.asked_at).total_seconds() if ask.asked_at else 0.0
        return max(0.0, self._limits.alone_wait_s - waited)

    def _queued(self, ask: Ask, why: str) -> Answer:
        place = sum(1 for one in self._queue if one.kind is ask.kind and one.impact >= ask.impact)
        reason = f"{why}; place {place} in the queue by GPUs that wait" if ask.kind in CAPACITY and place > 1 else why
        return Answer(request_id=ask.request_id, kind=ask.kind, granted=False, queued=True, reason=reason)

    def _storm(self, ask: Ask) -> Answer | None:
        """Return that the fault is part of an event on many nodes, which disrupts none of them."""
        if ask.kind not in (AskKind.NODE_OUT, AskKind.ALONE) or ask.accused:
            return None
        known = self._known_storm(ask)
        if known is None:
            return None
        if ask.instance_id not in known.members:
            others = [one for one in self._storms if one is not known]
            joined = {"last_seen": self._now, "members": [*known.members, ask.instance_id]}
            self._storms = [*others, known.model_copy(update=joined)]
        return Answer(
            request_id=ask.request_id,
            kind=ask.kind,
            granted=False,
            alone=Alone.STORM,
            reason=known.reason,
            storm_id=known.storm_id,
            storm_known=(known.storm_id, ask.instance_id) in self._told,
        )

    def _known_storm(self, ask: Ask) -> OpenStorm | None:
        """Return the open storm that the fault belongs to, opening one where enough nodes show it now."""
        within = room.scopes(ask.instance_id, ask.job, room.domains(ask), ask.pool)
        window = timedelta(seconds=self._limits.storm_window_s)
        for one in self._storms:
            goes_on = ask.instance_id in one.members or self._now - one.last_seen <= window
            if one.fault_class == ask.fault_class and one.scope in within and goes_on:
                return one
        seen = storm_among(self._recent, ask, self._view, self._limits, self._now)
        if seen is None:
            return None
        return OpenStorm(
            storm_id=storm_id(self._cluster, seen.kind, self._now),
            fault_class=ask.fault_class,
            scope=seen.scope,
            reason=seen.reason,
            since=self._now,
            last_seen=self._now,
        )

    def _choose(self, ask: Ask) -> SpareChoice:
        return choose_spare(ask, self._pool, taken_by(self._grants.values()))

    def _lease(self, ask: Ask, *, new: bool) -> None:
        choice = self._choose(ask)
        if choice.spare is not None:
            self._grant(ask, choice.reason, choice.spare)
        elif choice.soon or (ask.waits and (choice.later or self._others_out(ask))):
            self._have_wait(ask, choice.reason, new=new)
        else:
            self._refuse(ask, choice.reason)

    def _others_out(self, ask: Ask) -> bool:
        """Whether another node is out that may come to the pool once it is repaired."""
        return any(one.kind is AskKind.NODE_OUT and one.instance_id != ask.instance_id for one in self._grants.values())

    def _lend(self, ask: Ask, *, new: bool) -> None:
        if ask.only and any(waiting.kind is AskKind.SPARE for waiting in self._queue):
            self._refuse(ask, "a node waits for a spare")
            return
        choice = choose_partners(ask, self._pool, taken_by(self._grants.values()))
        if choice.partners:
            self._grant(ask, choice.reason, partners=choice.partners)
        elif choice.soon and not ask.only:
            self._have_wait(ask, choice.reason, new=new)
        else:
            self._refuse(ask, choice.reason)

    def _refuse(self, ask: Ask, why: str) -> None:
        self._answer(ask, Answer(request_id=ask.request_id, kind=ask.kind, granted=False, reason=why))

    def _have_wait(self, ask: Ask, why: str, *, new: bool) -> None:
        self._queue.append(ask.model_copy(update={"waits_for": why[:WORDS_LIMIT]}))
        if new:
            self._answer(ask, self._queued(ask, why))

    def _grant(self, ask: Ask, reason: str, spare: Node | None = None, partners: Sequence[Node] = ()) -> None:
        grant = Grant(
            request_id=ask.request_id,
            asker=ask.asker,
            kind=ask.kind,
            instance_id=ask.instance_id,
            spare_id=spare.instance_id if spare else "",
            granted_at=self._now,
            job=ask.job,
            domains=room.domains(ask),
            pool=ask.pool,
            partners=[node.instance_id for node in partners],
        )
        if ask.kind in CAPACITY:
            self._supersede(ask)
            self._breaker = breaker.with_trial(self._breaker, ask.instance_id, self._now)
        if ask.kind is not AskKind.ALONE:
            self._grants[ask.request_id] = grant
        answer = self._granted(grant, reason, spare)
        if ask.kind is AskKind.NODE_OUT:
            choice = self._choose(ask)
            answer = answer.model_copy(update={"spare_free": choice.spare is not None or choice.soon})
        self._answer(ask, answer)

    def _supersede(self, ask: Ask) -> None:
        """A node is out once: an older grant for the same node is of an earlier, closed incident."""
        self._grants = {
            key: grant
            for key, grant in self._grants.items()
            if not (grant.kind is ask.kind and grant.instance_id == ask.instance_id)
        }

    def _granted(self, grant: Grant, reason: str, spare: Node | None = None) -> Answer:
        if spare is None and grant.spare_id:
            spare = next((one for one in self._spares if one.instance_id == grant.spare_id), None)
        return Answer(
            request_id=grant.request_id,
            kind=grant.kind,
            granted=True,
            reason=reason,
            spare=spare,
            granted_at=grant.granted_at,
            partners=[one for one in self._spares if one.instance_id in grant.partners],
        )

    def _answer(self, ask: Ask, answer: Answer) -> None:
        self.answers.append((ask.asker, answer))
