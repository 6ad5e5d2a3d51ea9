"""One workflow's side of its talk with Cluster: ask, be answered, give back, say what is held.

Ids of workflows are reused per node, so every answer names the request it answers; a grant that is not ours goes straight back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.inventory import domains_of
    from workflows import options
    from workflows.cluster_messages import Answer, Ask, AskKind, GiveBack, Grant, Holding
    from workflows.post import post_to_cluster
    from workflows.tokens import Tokens


class ClusterTalk:
    """Holds what Cluster has granted to this workflow."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._cluster = ""
        self._asked: dict[str, Ask] = {}
        self._answers: dict[str, Answer] = {}
        self._strays: list[Answer] = []
        self._waits_since: dict[tuple[AskKind, str], datetime] = {}
        self.held: dict[AskKind, Grant] = {}

    def serve(self, cluster: str) -> None:
        """Learn which cluster this is."""
        self._cluster = cluster

    def take(self, answer: Answer) -> None:
        """Handle Cluster's signal. Synchronous: it only books, the talker acts."""
        ask = self._asked.get(answer.request_id)
        if ask is None:
            if answer.granted:
                self._strays.append(answer)
            return
        self._answers[answer.request_id] = answer
        if answer.queued:
            self._waits_since.setdefault((ask.kind, ask.fault_class), workflow.now())
        else:
            self._waits_since.pop((ask.kind, ask.fault_class), None)
        if answer.granted:
            self._hold(ask, answer)
        elif self._holds(answer.request_id):
            self.held.pop(ask.kind)  # taken back, as by a freeze

    def _hold(self, ask: Ask, answer: Answer) -> None:
        self.held[ask.kind] = Grant(
            request_id=ask.request_id,
            asker=ask.asker,
            kind=ask.kind,
            instance_id=ask.instance_id,
            spare_id=answer.spare.instance_id if answer.spare else "",
            granted_at=answer.granted_at or workflow.now(),
            job=ask.job,
            domains=domains_of(ask.zone, ask.placement_group, ask.spine, ask.nvlink_domain),
            pool=ask.pool,
            partners=[node.instance_id for node in answer.partners],
        )

    def _holds(self, request_id: str) -> bool:
        return any(grant.request_id == request_id for grant in self.held.values())

    def last_answer(self, ask: Ask) -> Answer:
        """Return what Cluster said last to this ask: a grant may have been taken back."""
        return self._answers[ask.request_id]

    async def ask(self, ask: Ask) -> Answer:
        """Ask and return the first answer, which may be "queued". Without any answer it asks again under the same id."""
        ask = self._with_place(ask)
        self._asked[ask.request_id] = ask
        for _ in range(3):
            await self._send("ask", ask)
            try:
                await workflow.wait_condition(
                    lambda: ask.request_id in self._answers,
                    timeout=options.CLUSTER_ANSWER,
                    timeout_summary=f"Cluster answers: {ask.kind.value} for {ask.node_name or ask.instance_id}",
                )
                return self._answers[ask.request_id]
            except TimeoutError:
                workflow.logger.warning("Cluster did not answer %s, asking again", ask.request_id)
        return Answer(request_id=ask.request_id, kind=ask.kind, granted=False, unanswered=True, reason="Cluster does not answer")

    async def stand_in_queue(self, ask: Ask, patience: timedelta, called_away: Callable[[], bool]) -> Answer:
        """Wait for the end of a queued ask; returns the last answer when patience ends or the asker is called away.

        The place in the queue is kept.
        """
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: not self._answers[ask.request_id].queued or called_away(),
                timeout=patience,
                timeout_summary=f"room for {ask.kind.value}: {self._answers[ask.request_id].reason}",
            )
        return self._answers[ask.request_id]

    async def withdraw(self, ask: Ask) -> None:
        """Take an ask back, granted or queued."""
        self._asked.pop(ask.request_id, None)
        self.held.pop(ask.kind, None)
        await self._send("give_back", GiveBack(asker=ask.asker, request_ids=[ask.request_id]))

    async def withdraw_all(self) -> None:
        """Take every ask back, granted, queued or on its way: nothing more is wanted."""
        asked = [request_id for request_id in self._asked if self._asked[request_id].kind not in self.held]
        self._asked = {key: ask for key, ask in self._asked.items() if key not in asked}
        if asked:
            await self._send("give_back", GiveBack(asker=workflow.info().workflow_id, request_ids=asked))

    async def leave_queue(self) -> None:
        """Take back every ask that still waits: who was called away would be granted something that nobody uses."""
        waiting = [key for key, answer in self._answers.items() if answer.queued and key in self._asked]
        if not waiting:
            return
        self._asked = {key: ask for key, ask in self._asked.items() if key not in waiting}
        await self._send("give_back", GiveBack(asker=workflow.info().workflow_id, request_ids=waiting))

    async def give_back(self, *kinds: AskKind, healed: bool | None = None) -> None:
        """Give back what is held of these kinds, and every stray grant. Awaited until the server has it.

        `healed` says whether a repair helped: Cluster's breaker goes by it.
        """
        going = [self.held[kind].request_id for kind in kinds if kind in self.held]
        going += [stray.request_id for stray in self._strays]
        if not going:
            return
        await self._send("give_back", GiveBack(asker=workflow.info().workflow_id, request_ids=going, healed=healed))
        for kind in kinds:
            self.held.pop(kind, None)
        self._strays.clear()

    async def say_holding(self) -> None:
        """Tell a recovering Cluster what is held, an empty answer is an answer too; and ask again for what stood in its queue.

        Said from a signal handler, beside the running step, so not by a local activity: two of them at once are not safe
        (temporalio/sdk-python#1578).
        """
        cluster = workflow.get_external_workflow_handle(names.cluster_id(self._cluster))
        with suppress(ApplicationError):  # gone again: the next Cluster asks again
            await cluster.signal("holding", Holding(asker=workflow.info().workflow_id, grants=list(self.held.values())))
            queued = [self._asked[one] for one, answer in self._answers.items() if answer.queued and one in self._asked]
            for ask in queued:  # a queue does not outlive its Cluster
                await cluster.signal("ask", self._with_place(ask))

    def _with_place(self, ask: Ask) -> Ask:
        """What was queued before keeps its place, and is no new fault to the breaker."""
        return ask.model_copy(update={"since": self._waits_since.get((ask.kind, ask.fault_class))})

    def has_strays(self) -> bool:
        """Return whether a grant arrived that this workflow did not ask for."""
        return bool(self._strays)

    async def _send(self, signal: str, message: Ask | GiveBack) -> None:
        await post_to_cluster(self._cluster, signal, message)
