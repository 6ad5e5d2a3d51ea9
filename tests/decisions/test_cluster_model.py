"""The books of Cluster in any order of events: never too many out, never a spare twice or lost, never recovery blocked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from activities.host_memory import Freeze
from activities.inventory import Node
from tests.decisions.cluster_world import World, frozen, in_force, instance, is_storm, places, too_many
from workflows.cluster_messages import Ask, AskKind, BreakerState, ClusterState, RepairEnd
from workflows.decisions import cluster_entries as entries
from workflows.decisions.cluster_book import CAPACITY, Judgement, judge_asks
from workflows.decisions.settings import ClusterSettings
from workflows.decisions.windows import Window

NODES = 12
EVENING = datetime(2026, 11, 4, 20, 0, tzinfo=UTC)
FAULTS = ["gpu_lost", "gsp_hang", "link", "unreachable", "application", "host"]
SCOPES = ["cluster", "node:i-1", "job:a", "pool:large", "zone:a", "rack:r1", "placement-group:near"]
STATE_LIMIT = 64_000
"""Bytes of the books of a dozen nodes, whatever happened to them."""

some_limits = st.fixed_dictionaries(
    {
        "max_nodes_out": st.integers(1, 5),
        "max_percent_out": st.sampled_from([5.0, 20.0, 50.0, 100.0]),
        "max_repairs": st.integers(1, 3),
        "max_nodes_out_per_domain": st.integers(1, 3),
        "max_percent_out_per_domain": st.sampled_from([10.0, 50.0, 100.0]),
        "max_nodes_out_per_job": st.integers(1, 3),
        "min_usable": st.sampled_from([{}, {"small": 3}, {"large": 6, "small": 2}]),
        "windows": st.sampled_from([[], [Window.model_validate({"begins": "22:00", "ends": "06:00"})]]),
        "breaker_nodes": st.sampled_from([3, 5, 100]),
        "breaker_failed_repairs": st.integers(0, 2),
        "storm_nodes": st.sampled_from([3, 5]),
        "alone_wait_s": st.sampled_from([0.0, 5.0]),
    }
)
asks = st.fixed_dictionaries(
    {
        "node": st.integers(0, NODES - 1),
        "kind": st.sampled_from([*AskKind, AskKind.NODE_OUT]),
        "fault_class": st.sampled_from(FAULTS),
        "job": st.sampled_from(["", "a", "b"]),
        "impact": st.sampled_from([0, 8, 64, 512]),
        "accused": st.booleans(),
        "uptime_s": st.sampled_from([None, 60.0, 90_000.0]),
    }
)


class Books(RuleBasedStateMachine):
    """Asks, answers, returns, freezes, faults of holders and of Cluster itself, and time, in any order."""

    @initialize(limits=some_limits)
    def begin(self, limits: dict[str, Any]) -> None:
        nodes = [instance(number) for number in range(NODES)]
        spares = [Node(instance_id=f"i-s{n}", name=f"spare-{n}", role="spare", zone="ab"[n % 2], spine=f"r{n}") for n in range(3)]
        self.world = World(ClusterSettings(**limits), EVENING, nodes, spares)
        self.state = ClusterState(fleet=NODES, view=self.world.view())
        self.stored: list[Freeze] = []
        self.silent: set[str] = set()
        self.count = 0

    @rule(batch=st.lists(asks, min_size=1, max_size=5))
    def ask(self, batch: list[dict[str, Any]]) -> None:
        self._judge([self._ask(**one) for one in batch])

    @rule(which=st.integers(0, 30))
    def ask_again(self, which: int) -> None:
        """An answer that is late has the asker ask again, under the same id."""
        known = list(self.world.asks.values())
        if known:
            self._judge([known[which % len(known)]])

    @rule(which=st.integers(0, 30), healed=st.sampled_from([True, False, None]))
    def give_back(self, which: int, healed: bool | None) -> None:
        known = list(self.world.asks)
        if not known:
            return
        key = known[which % len(known)]
        self._untag(key)
        self.world.forget(key)
        self.state = entries.give_back(self.state, [key], healed)
        assert all(grant.request_id != key for grant in self.state.grants)
        self._judge([])

    @rule(scope=st.sampled_from(SCOPES), minutes=st.sampled_from([1, 30, 600]))
    def freeze(self, scope: str, minutes: int) -> None:
        asked = Freeze(scope=scope, until=self.world.now + timedelta(minutes=minutes), who="ann", why="looking")
        before = self.state
        self.state = entries.take_back_frozen(entries.freeze(self.state, asked))
        left = {grant.kind for grant in before.grants if grant not in self.state.grants}
        assert left <= {AskKind.REPAIR_SLOT}
        self._deliver()

    @rule(scope=st.sampled_from([*SCOPES, "breaker"]))
    def thaw(self, scope: str) -> None:
        self.state = entries.thaw(self.state, scope)
        assert scope != "breaker" or self.state.breaker.state is BreakerState.CLOSED
        self._judge([], thawed=True)

    @rule(seconds=st.sampled_from([1, 5, 60, 400, 1000, 4000, 9 * 3600]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)
        self._judge([])

    @rule(which=st.integers(0, 5))
    def tag(self, which: int) -> None:
        """A holder writes its lease on the spare, before anything else is done with it."""
        held = [(key, answer.spare) for key, answer in self.world.held.items() if answer.spare]
        if held:
            key, spare = held[which % len(held)]
            self.world.tagged[spare.instance_id] = self.world.asks[key].asker

    @rule(which=st.integers(0, 30))
    def holder_ends_without_a_word(self, which: int) -> None:
        """Terminated by hand: what it held is free, but for a spare that carries its lease until somebody has looked at it."""
        askers = sorted(self.world.holdings())
        if not askers:
            return
        asker = askers[which % len(askers)]
        for key in [key for key, one in self.world.asks.items() if one.asker == asker]:
            self.world.forget(key)
        gone = [grant for grant in self.state.grants if grant.asker == asker]
        self.state = entries.release_gone(self.state, gone, set(self.world.tagged))
        assert {grant.spare_id for grant in self.state.grants if grant.asker == asker} <= set(self.world.tagged)
        self._judge([])

    @rule()
    def suspects_are_looked_at(self) -> None:
        """A spare whose holder is gone passes a re-test: its tag goes, then its place in the books."""
        leased = set(self.world.leased())
        self.world.tagged = {spare: by for spare, by in self.world.tagged.items() if spare in leased}
        gone = [grant for grant in self.state.grants if grant.request_id not in self.world.held]
        self.state = entries.release_gone(self.state, gone, set(self.world.tagged))
        self._judge([])

    @rule(node=st.integers(0, NODES - 1))
    def opt_out_or_in(self, node: int) -> None:
        self.world.opted_out ^= {f"i-{node}"}
        self._judge([])

    @rule(silent=st.sets(st.integers(0, NODES - 1), max_size=2), ask_again=st.booleans(), frozen=st.sampled_from([None, *SCOPES]))
    def books_are_lost(self, silent: set[int], ask_again: bool, frozen: str | None) -> None:
        """Cluster is terminated. The next one asks everybody, counts who is silent, and reads what host memory kept."""
        holdings = self.world.holdings()
        quiet = [asker for asker in holdings if int(asker.rpartition("-")[2]) in silent]
        for grant in (grant for asker in quiet for grant in holdings[asker].grants):
            if grant.spare_id:
                self.world.tagged[grant.spare_id] = grant.asker
            elif grant.partners:  # no tag speaks for a partner: whoever gets it finds the burn-in that runs there
                self.world.forget(grant.request_id)
        was, self.silent = self.state.breaker.state, set(quiet)
        state = ClusterState(fleet=NODES, view=self.world.view())
        if frozen:
            soon = self.world.now + timedelta(minutes=5)
            state = entries.freeze(state, Freeze(scope=frozen, until=soon, who="bob", why="while it recovers"))
        for asker, holding in holdings.items():
            if asker not in quiet:
                state = entries.book_holding(state, holding)
        state = entries.book_silent(state, quiet, self.world.now, self.world.nodes)
        self.state = entries.with_stored(state, self.stored, [])
        assert (self.state.breaker.state is BreakerState.CLOSED) == (was is BreakerState.CLOSED)
        self._judge([ask for key, ask in self.world.asks.items() if ask_again and key in self.world.waiting])
        if not ask_again:
            self.world.waiting &= {ask.request_id for ask in self.state.queue}

    @rule()
    def the_silent_speak(self) -> None:
        self.silent.clear()
        for holding in self.world.holdings().values():
            self.state = entries.book_holding(self.state, holding)

    @rule()
    def everything_comes_back(self) -> None:
        """With nothing against it, the queue runs empty: nobody waits for ever."""
        self.world.opted_out = set()
        self.world.now = self.world.now.replace(hour=23) + timedelta(days=1)
        self.state = self.state.model_copy(update={"freezes": []})
        for _ in range(len(self.world.asks) + 2):
            self.state = entries.thaw(self.state, "breaker")
            for key in list(self.world.held):
                self._untag(key)
                self.world.forget(key)
                self.state = entries.give_back(self.state, [key])
            self.suspects_are_looked_at()
        assert (self.state.queue, self.state.grants) == ([], [])

    @invariant()
    def books_and_world_agree_on_spares(self) -> None:
        """Each spare has one holder, or none and is free for the next who asks; one that is lent is nobody else's meanwhile."""
        if not hasattr(self, "world"):
            return
        booked = [grant.spare_id for grant in self.state.grants if grant.kind is AskKind.SPARE]
        assert len(booked) == len(set(booked))
        assert len(self.world.leased()) == len(set(self.world.leased()))
        assert set(self.world.leased()) <= set(booked) | set(self.world.tagged)
        lent = [partner for grant in self.state.grants for partner in grant.partners]
        assert set(self.world.lent()) <= set(lent)
        assert len({*booked, *lent}) == len(booked) + len(lent)
        asked = Ask(request_id="probe", asker="probe", kind=AskKind.SPARE, instance_id="i-0")
        answer = judge_asks(
            self.state, [asked], self.world.inventory(), self.world.limits, self.world.now.isoformat(), "lab"
        ).answers[-1][1]
        free = {spare.instance_id for spare in self.world.spares} - set(booked) - set(self.world.tagged)
        assert answer.granted == bool(free - set(lent)), "a spare is free and nobody may have it, or the reverse"
        assert answer.queued == (bool(free) and not answer.granted), "who waits does so for a spare that comes back"

    @invariant()
    def the_books_stay_small_and_say_why(self) -> None:
        if not hasattr(self, "world"):
            return
        assert len(self.state.model_dump_json()) < STATE_LIMIT
        assert all(ask.waits_for for ask in self.state.queue)
        impacts = [ask.impact for ask in self.state.queue if ask.kind is not AskKind.PARTNER]
        assert impacts == sorted(impacts, reverse=True)
        scopes = [freeze.scope for freeze in self.state.freezes]
        assert len(scopes) == len(set(scopes))

    def _ask(self, node: int, kind: AskKind, accused: bool, **more: Any) -> Ask:
        self.count += 1
        at = instance(node)
        one = Ask(
            request_id=f"r{self.count}",
            asker=f"incident/lab/{at.instance_id}",
            kind=kind,
            instance_id=at.instance_id,
            zone=at.zone,
            spine=at.spine,
            placement_group=at.placement_group,
            pool=at.pool,
            accused=accused and kind is AskKind.NODE_OUT,
            partners=2 if kind is AskKind.PARTNER else 0,
            **more,
        )
        self.world.asks[one.request_id] = one
        return one

    def _untag(self, key: str) -> None:
        answer = self.world.held.get(key)
        if answer and answer.spare:
            self.world.tagged.pop(answer.spare.instance_id, None)

    def _judge(self, new: list[Ask], *, thawed: bool = False) -> None:
        world, before = self.world, self.state.model_copy(update={"view": self.world.view()})
        judged = judge_asks(before, new, world.inventory(), world.limits, world.now.isoformat(), "lab")
        self.state = judged.state
        self._check(before, judged, new, thawed)
        gone = [answer.request_id for _, answer in judged.answers if answer.request_id not in world.asks]
        self.state = entries.give_back(self.state, gone)  # whom an answer does not reach has nothing
        self.stored = entries.to_store(self.state)

    def _deliver(self) -> None:
        for _, answer in self.state.outbox:
            self.world.hear(answer)
        self.state = self.state.model_copy(update={"outbox": []})
        self.stored = entries.to_store(self.state)

    def _check(self, before: ClusterState, judged: Judgement, new: list[Ask], thawed: bool) -> None:
        granted: set[str] = set()
        old = {grant.request_id for grant in before.grants}
        for _, answer in judged.answers:
            assert answer.reason
            ask = self.world.asks.get(answer.request_id)
            if ask is not None and answer.granted and ask.kind in CAPACITY and ask.request_id not in old:
                self._check_grant(ask, before)
                granted.add(ask.instance_id)
            self.world.hear(answer)
        answered = {answer.request_id for _, answer in judged.answers}
        assert {ask.request_id for ask in new} <= answered, "an ask without an answer"
        self._check_breaker(before, granted, thawed)
        self._check_queue(judged)

    def _check_grant(self, ask: Ask, before: ClusterState) -> None:
        """A disruption may begin: no limit stood against it in the world as it is, and nothing else did."""
        others = [
            (places(instance(int(one.instance_id[2:]))), "" if one.asker in self.silent else one.job, one.pool)
            for one in self.world.others(ask)
        ]  # of whom says nothing nobody knows the job
        assert not too_many(ask, others, self.world), f"{ask.request_id} is one too many"
        assert not frozen(ask, before, self.world.now)
        assert self.state.breaker.state is not BreakerState.OPEN
        assert ask.kind is not AskKind.REPAIR_SLOT or not in_force(
            ask.model_copy(update={"asked_at": self.world.now}), self.state, self.world
        )

    def _check_breaker(self, before: ClusterState, granted: set[str], thawed: bool) -> None:
        after = self.state.breaker
        if after.state is BreakerState.HALF_OPEN:
            assert granted <= {after.trial}
        if before.breaker.state is not BreakerState.CLOSED and after.state is BreakerState.CLOSED and not thawed:
            helped = RepairEnd(instance_id=before.breaker.trial, healed=True)
            assert before.breaker.trial
            assert helped in before.ended

    def _check_queue(self, judged: Judgement) -> None:
        """Who waits does so for a cause that stands, and looks again in time."""
        for ask in self.state.queue:
            others = {
                grant.instance_id: (grant.domains, grant.job, grant.pool)
                for grant in self.state.grants
                if grant.kind is ask.kind and grant.instance_id != ask.instance_id
            }
            if ask.kind in (AskKind.SPARE, AskKind.PARTNER):
                assert any(grant.partners for grant in self.state.grants), "the pool is queued for only while some are lent"
                continue
            stands = in_force(ask, self.state, self.world)
            assert stands or too_many(ask, list(others.values()), self.world), f"{ask.request_id} waits for nothing"
            assert ask.kind in (*CAPACITY, AskKind.ALONE)
            assert ask.kind is not AskKind.ALONE or judged.look_again_s is not None
        for _, answer in judged.answers:
            known = self.world.asks.get(answer.request_id)
            assert known is None or not (is_storm(answer) and known.accused)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=40)
