"""Cluster: the single writer of scarce things in one cluster: leave to be out, repair slots, leases of spares, freezes.

It does nothing else. Handlers only append; one loop judges the inbox in batches, and answers from an outbox that is emptied
before anything is carried over. One that starts without carried state is recovering: it grants nothing before holders have
said what they hold.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.host_memory import Freeze, HostMemoryActivities, LoadFreezes, SaveFreezes
    from workflows import options
    from workflows.cluster_fleet import Fleet
    from workflows.cluster_holders import open_holders, silent_holders
    from workflows.cluster_messages import (
        Ask,
        ClusterStart,
        ClusterState,
        FreezeRequest,
        GiveBack,
        Holding,
        Overview,
        ThawRequest,
    )
    from workflows.cluster_pages import noted, pages_for, send, untold
    from workflows.decide import DecideActivities, Desk, bearings, decided
    from workflows.decisions import cluster_entries as book
    from workflows.decisions.cluster_book import Judgement
    from workflows.decisions.spares import OF_THE_POOL
    from workflows.failures import cause_of
    from workflows.post import post

FREEZE_LIMIT_MINUTES = 30 * 24 * 60.0
"""Longest freeze. Hotspare default: what is frozen for longer is better set to observe mode."""

QUEUE_LOOK = timedelta(seconds=30)
"""Between looks at the queue, for freezes that have ended. Hotspare default."""

AUDIT = timedelta(minutes=10)
"""Age at which a grant's holder is looked for, and time between such looks. Hotspare default."""

HISTORY_LIMIT = 4_000
"""Events after which state is carried into a new run. Source: the server suggests it at about 4,100 (measured, Server 1.32)."""


@workflow.defn
class Cluster:
    """Keeper of the books."""

    @workflow.init
    def __init__(self, start: ClusterStart) -> None:
        self._cluster = start.cluster
        self._recovering = start.state is None
        self._state = start.state or ClusterState()
        self._asks = list(start.asks)
        self._back = list(start.back)
        self._heard = list(start.heard)
        self._freezes_changed = False
        self._look_again_s: float | None = None
        self._thawed_meanwhile: set[str] = set()
        self._ui_url = ""
        self._paging: asyncio.Task[None] | None = None
        self._fleet = Fleet()
        self._thawed: list[str] = []
        self._audited_at = workflow.now()

    @workflow.run
    async def run(self, start: ClusterStart) -> None:
        """Recover if need be, then judge batch after batch."""
        known = await bearings()
        self._cluster = start.cluster or known.cluster
        self._ui_url = known.ui_url
        while self._recovering:
            try:
                await self._recover(known.recovery_deadline_s)
            except ActivityError as error:  # nothing is granted before the recovery has gone through
                workflow.logger.error("recovering: %s", cause_of(error))
                await workflow.sleep(QUEUE_LOOK, summary="before the recovery is tried again")
        while not self._should_carry_over():
            await self._wait_for_work()
            await self._work()
            if workflow.now() - self._audited_at >= AUDIT:  # a stream of messages must not keep it from being done
                await self._audit()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self._paging is not None and not self._paging.done():
            self._paging.cancel()  # nobody waits for a pager; the next run pages again, under the same key
            self._state = untold(self._state)
        carried = ClusterStart(cluster=self._cluster, state=self._state, asks=self._asks, back=self._back, heard=self._heard)
        workflow.continue_as_new(carried)

    async def _work(self) -> None:
        """Judge, store, answer. What fails for good is kept and tried again: nothing here may end the keeper of the books."""
        await self._judge()
        try:
            await self._store_freezes()
            await self._empty_outbox()
            self._tell_people()
        except ActivityError as error:
            workflow.logger.error("kept for later: %s", cause_of(error))
            await workflow.sleep(QUEUE_LOOK, summary="before it is tried again")

    def _should_carry_over(self) -> bool:
        info = workflow.info()
        full = info.is_continue_as_new_suggested() or info.get_current_history_length() > HISTORY_LIMIT
        return full and not (self._freezes_changed or self._state.outbox)

    async def _recover(self, deadline_s: float) -> None:
        """Ask everybody who may hold something, by their fixed ids, and read the freezes back. No holder is a first start."""
        await self._fleet.look(self._cluster)
        self._state = self._state.model_copy(update={"fleet": self._fleet.view.nodes, "view": self._fleet.view})
        freezes = await workflow.execute_activity_method(
            HostMemoryActivities.load_freezes,
            LoadFreezes(cluster=self._cluster),
            summary="read the freezes back",
            **options.LOOK_UP,
        )
        holders = await open_holders(self._cluster, self._fleet.everybody)
        silent = await silent_holders(self._cluster, holders, lambda: {one.asker for one in self._heard}, deadline_s)
        self._take_holdings()
        self._state = book.book_silent(self._state, silent, workflow.now(), self._fleet.nodes)
        self._state = book.with_stored(self._state, freezes.freezes, self._thawed)
        self._recovering = False

    async def _wait_for_work(self) -> None:
        """Wake for messages; with a queue also by the clock, which ends freezes; with grants to see that holders live."""
        soon = timedelta(seconds=self._look_again_s) if self._look_again_s else QUEUE_LOOK
        idle = min(soon, QUEUE_LOOK) if self._state.queue else AUDIT if self._state.grants else None
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: bool(self._asks or self._back or self._heard or self._freezes_changed),
                timeout=idle,
                timeout_summary="look at the queue, or at the holders, again",
            )
            return
        await self._audit()

    async def _audit(self) -> None:
        """See whether the holders of old grants are there. One that has ended holds nothing; its spare is suspect, not free."""
        self._audited_at = workflow.now()
        old = [grant for grant in self._state.grants if workflow.now() - grant.granted_at >= AUDIT]
        if not old:
            return
        try:
            holders = await open_holders(self._cluster, sorted({grant.instance_id for grant in old}))
            gone = [grant for grant in old if grant.asker not in holders]
            if gone:
                await self._fleet.look(self._cluster)
        except ActivityError as error:  # not seen to be gone: everything stays booked
            workflow.logger.error("holders could not be looked for: %s", cause_of(error))
            return
        self._state = book.release_gone(self._state, gone, self._fleet.leased)

    async def _judge(self) -> None:
        """Book what came back first, then judge the queue and the new asks."""
        back, self._back = self._back, []
        for one in back:
            self._state = book.give_back(self._state, one.request_ids, one.healed)
        self._take_holdings()
        asks, self._asks = self._asks, []
        if not asks and not self._state.queue:
            return
        if self._fleet.is_stale() or any(ask.kind in OF_THE_POOL for ask in [*asks, *self._state.queue]):
            await self._see_fleet()
        judged = await decided(
            DecideActivities.judge_asks,
            Desk(
                state=self._state,
                asks=asks,
                spares=self._fleet.spares,
                known=self._fleet.known,
                now_iso=workflow.now().isoformat(),
            ),
            f"judge {len(asks)} asks, {len(self._state.queue)} queued",
        )
        self._book_judgement(judged)

    def _book_judgement(self, judged: Judgement) -> None:
        """Take the judged books over; what was said while they were judged stands above them."""
        before = self._state
        state = judged.state
        for one in self._back:  # booked again when its turn comes, which changes nothing then
            state = book.give_back(state, one.request_ids, one.healed)
        said = {"outbox": [*before.outbox, *judged.answers], "freezes": before.freezes}
        if book.BREAKER in self._thawed_meanwhile:
            said["breaker"] = before.breaker
        if book.STORMS in self._thawed_meanwhile:
            said |= {"storms": [], "recent": []}
        self._freezes_changed = self._freezes_changed or judged.state.breaker.state is not before.breaker.state
        self._look_again_s = judged.look_again_s
        self._thawed_meanwhile.clear()
        self._state = book.take_back_frozen(state.model_copy(update=said))

    async def _see_fleet(self) -> None:
        """Look at the fleet anew. Where it cannot be seen the old view stands; a spare that is gone is refused when tested."""
        try:
            await self._fleet.look(self._cluster)
        except ActivityError as error:
            workflow.logger.error("the fleet could not be seen: %s", cause_of(error))
            return
        self._state = self._state.model_copy(update={"fleet": self._fleet.view.nodes, "view": self._fleet.view})

    def _take_holdings(self) -> None:
        heard, self._heard = self._heard, []
        for one in heard:
            self._state = book.book_holding(self._state, one)

    async def _empty_outbox(self) -> None:
        """Send each answer and wait until the server has it. A holder that is gone never got its grant: it is taken back."""
        while self._state.outbox:
            asker, answer = self._state.outbox[0]
            if not await post(asker, "cluster_answer", answer):
                self._state = book.give_back(self._state, [answer.request_id])
            self._state = self._state.model_copy(update={"outbox": self._state.outbox[1:]})

    def _tell_people(self) -> None:
        """Page beside the work: whoever waits for an answer does not wait for a pager."""
        if self._paging is not None and not self._paging.done():
            return
        pages = pages_for(self._state)
        if pages:
            self._state = noted(self._state)
            self._paging = asyncio.create_task(send(pages, self._ui_url))

    async def _store_freezes(self) -> None:
        if not self._freezes_changed:
            return
        stored = book.to_store(self._state)
        await workflow.execute_activity_method(
            HostMemoryActivities.save_freezes,
            SaveFreezes(cluster=self._cluster, freezes=stored),
            summary="keep the freezes in host memory",
            **options.LOOK_UP,
        )
        self._freezes_changed = stored != book.to_store(self._state)

    @workflow.signal(description="A workflow asks for leave, a slot or a spare")
    def ask(self, ask: Ask) -> None:
        if all(ask.request_id != one.request_id for one in self._asks):
            self._asks.append(ask)

    @workflow.signal(description="Capacity comes back")
    def give_back(self, back: GiveBack) -> None:
        self._asks = [ask for ask in self._asks if ask.request_id not in back.request_ids]
        self._back.append(back)

    @workflow.signal(description="A holder says what it holds")
    def holding(self, holding: Holding) -> None:
        self._heard.append(holding)

    @workflow.update(description="Stop new disruption for a while")
    def freeze(self, asked: FreezeRequest) -> str:
        until = workflow.now() + timedelta(minutes=asked.minutes)
        asked_for = Freeze(scope=asked.scope, until=until, who=asked.who, why=asked.why)
        self._state = book.take_back_frozen(book.freeze(self._state, asked_for))
        self._freezes_changed = True
        return f"{asked.scope} is frozen until {until:%Y-%m-%d %H:%M} UTC; recovery goes on"

    @freeze.validator
    def freeze_has_an_end(self, asked: FreezeRequest) -> None:
        """Refuse a freeze without a sensible end: freezes are time-boxed."""
        if asked.scope in (book.BREAKER, book.STORMS):
            raise ValueError("breaker and storms come by themselves; freeze the cluster instead")
        if not 0 < asked.minutes <= FREEZE_LIMIT_MINUTES:
            raise ValueError(f"minutes must be above 0 and at most {FREEZE_LIMIT_MINUTES:g} (30 days)")

    @workflow.update(description="End a freeze")
    def thaw(self, asked: ThawRequest) -> str:
        known = any(one.scope == asked.scope for one in book.to_store(self._state))
        known = known or (asked.scope == book.STORMS and bool(self._state.storms))
        self._thawed_meanwhile.add(asked.scope)
        self._state = book.thaw(self._state, asked.scope)
        self._freezes_changed = True
        self._thawed.append(asked.scope)
        return f"{asked.scope} is thawed" if known else f"{asked.scope} was not frozen"

    @workflow.query(description="The books")
    def overview(self) -> Overview:
        return Overview(recovering=self._recovering, state=self._state)
