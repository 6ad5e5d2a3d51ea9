"""The books of Cluster: who is out, who repairs, who has which spare; judged in batches, purely.

Limits stop new disruption only. What gives capacity back is never judged, just booked.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.host_memory import Freeze
from activities.inventory import Node
from activities.message import Message
from workflows.decisions.settings import ClusterSettings
from workflows.decisions.spares import SpareChoice, choose_spare
from workflows.messages import Alone, Answer, Ask, AskKind, ClusterState, Grant, Holding, SeenFault

SILENT = "silent/"
"""Begins the request id of a grant that was booked for a holder which did not say what it holds."""


class Judgement(Message):
    """The books after a batch, and the answers to send: (workflow id, answer)."""

    state: ClusterState
    answers: list[tuple[str, Answer]] = []


def judge_asks(state: ClusterState, asks: list[Ask], spares: list[Node], limits: ClusterSettings, now_iso: str) -> Judgement:
    """Judge the queue first, in its order, then the new asks. Asking again with the same id gets the same grant."""
    book = _Book(state, spares, limits, datetime.fromisoformat(now_iso))
    queued = {ask.request_id for ask in state.queue}
    for ask in state.queue:
        book.judge(ask, new=False)
    for ask in asks:
        if ask.request_id in queued:
            book.repeat_queued(ask)
        else:
            book.judge(ask, new=True)
    book.tell_the_queue_of_storms()
    return Judgement(state=book.state(), answers=book.answers)


class _Book:
    def __init__(self, state: ClusterState, spares: list[Node], limits: ClusterSettings, now: datetime) -> None:
        self._old = state
        self._spares = spares
        self._limits = limits
        self._now = now
        self._grants = {grant.request_id: grant for grant in state.grants}
        self._freezes = [freeze for freeze in state.freezes if freeze.until > now]
        window = timedelta(seconds=limits.storm_window_s)
        self._recent = [seen for seen in state.recent if now - seen.at <= window]
        self._queue: list[Ask] = []
        self.answers: list[tuple[str, Answer]] = []

    def state(self) -> ClusterState:
        return self._old.model_copy(
            update={
                "grants": list(self._grants.values()),
                "freezes": self._freezes,
                "queue": self._queue,
                "recent": self._recent,
            }
        )

    def judge(self, ask: Ask, *, new: bool) -> None:
        if ask.request_id in self._grants:
            self._answer(ask, self._granted(self._grants[ask.request_id], "granted before"))
            return
        if new and ask.kind is AskKind.NODE_OUT:
            self._remember(ask)
        refusal = self._storm(ask) if new else None
        if refusal is None and ask.kind is AskKind.SPARE:
            self._lease(ask)
            return
        if refusal is not None:
            self._answer(ask, refusal)
            return
        no_room = self._frozen(ask) or self._no_room(ask)
        if no_room:
            self._queue.append(ask)
            if new:
                self._answer(ask, Answer(request_id=ask.request_id, kind=ask.kind, granted=False, queued=True, reason=no_room))
            return
        self._grant(ask, "there is room")

    def tell_the_queue_of_storms(self) -> None:
        """What is recognised as a storm now was taken for single faults before: those still queued are told too."""
        waiting, self._queue = self._queue, []
        for ask in waiting:
            storm = self._storm(ask)
            if storm is None:
                self._queue.append(ask)
            else:
                self._answer(ask, storm)

    def repeat_queued(self, ask: Ask) -> None:
        if any(waiting.request_id == ask.request_id for waiting in self._queue):
            why = self._frozen(ask) or self._no_room(ask)
            self._answer(ask, Answer(request_id=ask.request_id, kind=ask.kind, granted=False, queued=True, reason=why))

    def _remember(self, ask: Ask) -> None:
        self._recent = [
            seen for seen in self._recent if (seen.instance_id, seen.fault_class) != (ask.instance_id, ask.fault_class)
        ]
        self._recent.append(SeenFault(instance_id=ask.instance_id, fault_class=ask.fault_class, at=self._now))

    def _storm(self, ask: Ask) -> Answer | None:
        if ask.kind is not AskKind.NODE_OUT:
            return None
        nodes = {seen.instance_id for seen in self._recent if seen.fault_class == ask.fault_class}
        share = 100.0 * len(nodes) / max(1, self._old.fleet)
        if len(nodes) < self._limits.storm_nodes or share < self._limits.storm_percent:
            return None
        reason = (
            f"{len(nodes)} of {self._old.fleet} nodes show {ask.fault_class} within {self._limits.storm_window_s:g} s: "
            "one event, not that many broken nodes"
        )
        return Answer(request_id=ask.request_id, kind=ask.kind, granted=False, alone=Alone.STORM, reason=reason)

    def _frozen(self, ask: Ask) -> str:
        scopes = {"cluster", f"node:{ask.instance_id}", f"job:{ask.job}", f"domain:{ask.zone}", f"domain:{ask.spine}"}
        for freeze in self._freezes:
            if freeze.scope in scopes:
                until = f"{freeze.until:%Y-%m-%d %H:%M} UTC"
                return f"{freeze.scope} is frozen until {until} by {freeze.who}: {freeze.why or 'no reason given'}"
        return ""

    def _no_room(self, ask: Ask) -> str:
        others = {grant.instance_id for grant in self._grants.values() if grant.kind is ask.kind} - {ask.instance_id}
        if ask.kind is AskKind.REPAIR_SLOT:
            limit = self._limits.max_repairs
            return "" if len(others) < limit else f"{len(others)} nodes are under repair, the limit is {limit}"
        if ask.accused:
            return ""
        percent = max(1, int(self._old.fleet * self._limits.max_percent_out / 100))
        limit = min(self._limits.max_nodes_out, percent)
        if len(others) < limit:
            return ""
        return (
            f"{len(others)} nodes are out, the limit is {limit} (at most {self._limits.max_nodes_out} nodes and "
            f"{self._limits.max_percent_out:g} % of {self._old.fleet})"
        )

    def _choose(self, ask: Ask) -> SpareChoice:
        leased = {grant.spare_id for grant in self._grants.values() if grant.kind is AskKind.SPARE}
        return choose_spare(ask, self._spares, leased)

    def _lease(self, ask: Ask) -> None:
        choice = self._choose(ask)
        if choice.spare is None:
            self._answer(ask, Answer(request_id=ask.request_id, kind=ask.kind, granted=False, reason=choice.reason))
            return
        self._grant(ask, choice.reason, choice.spare)

    def _grant(self, ask: Ask, reason: str, spare: Node | None = None) -> None:
        if ask.kind is not AskKind.SPARE:
            self._supersede(ask)
        grant = Grant(
            request_id=ask.request_id,
            asker=ask.asker,
            kind=ask.kind,
            instance_id=ask.instance_id,
            spare_id=spare.instance_id if spare else "",
            granted_at=self._now,
            job=ask.job,
        )
        self._grants[ask.request_id] = grant
        answer = self._granted(grant, reason, spare)
        if ask.kind is AskKind.NODE_OUT:
            answer = answer.model_copy(update={"spare_free": self._choose(ask).spare is not None})
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
            request_id=grant.request_id, kind=grant.kind, granted=True, reason=reason, spare=spare, granted_at=grant.granted_at
        )

    def _answer(self, ask: Ask, answer: Answer) -> None:
        self.answers.append((ask.asker, answer))


def give_back(state: ClusterState, request_ids: list[str]) -> ClusterState:
    """Book capacity that came back, and forget asks that are no longer wanted. Unknown ids change nothing."""
    gone = set(request_ids)
    return state.model_copy(
        update={
            "grants": [grant for grant in state.grants if grant.request_id not in gone],
            "queue": [ask for ask in state.queue if ask.request_id not in gone],
        }
    )


def book_holding(state: ClusterState, holding: Holding) -> ClusterState:
    """Book what a holder says it holds. Its word stands: it is the one who knows."""
    mine = [grant for grant in state.grants if not (grant.asker == holding.asker and grant.request_id.startswith(SILENT))]
    known = {grant.request_id for grant in mine}
    return state.model_copy(update={"grants": [*mine, *(grant for grant in holding.grants if grant.request_id not in known)]})


def book_silent(state: ClusterState, holders: list[str], now: datetime) -> ClusterState:
    """Count the node of a holder that is there but does not answer as out: too careful rather than too many."""
    grants = [
        Grant(
            request_id=f"{SILENT}{holder}",
            asker=holder,
            kind=AskKind.NODE_OUT,
            instance_id=holder.rpartition("/")[2],
            granted_at=now,
        )
        for holder in holders
    ]
    return state.model_copy(update={"grants": [*state.grants, *grants]})


def release_gone(state: ClusterState, gone: list[Grant], leased: set[str]) -> ClusterState:
    """Book off what holders that have ended held. A spare that still carries a lease tag is suspect: it stays booked."""
    free = [grant.request_id for grant in gone if grant.kind is not AskKind.SPARE or grant.spare_id not in leased]
    return give_back(state, free)


def freeze(state: ClusterState, asked: Freeze) -> ClusterState:
    """Book a freeze; a second one of the same scope replaces the first."""
    return state.model_copy(update={"freezes": [*(one for one in state.freezes if one.scope != asked.scope), asked]})


def thaw(state: ClusterState, scope: str) -> ClusterState:
    """End a freeze."""
    return state.model_copy(update={"freezes": [one for one in state.freezes if one.scope != scope]})
