"""RemediateNode: one node's incident, from the report to the node's final fate. Any trigger starts or joins it, by the node's id.

    look → diagnose → ask leave → quarantine → evidence → tell the job → spare first, or repair in place
         → re-test → back in service → the job resumes → the node's fate → close

Which of these comes next is decided by `workflows.decisions.policy` in a recorded decision; this file only carries it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.incidents import FailedBurnIn, JobResumed
    from activities.node import Report
    from checks.model import Action
    from workflows import incident_capacity as capacity
    from workflows import incident_closing as closing
    from workflows import incident_giving_up as giving_up
    from workflows import incident_healers as healers
    from workflows import incident_hearing as hearing
    from workflows import incident_looking as looking
    from workflows import incident_people as people
    from workflows import incident_proving as proving
    from workflows import incident_renewing as renewing
    from workflows import incident_repairs as repairs
    from workflows import incident_replacing as replacing
    from workflows import incident_steps as steps
    from workflows.cluster_messages import Answer, SayHolding
    from workflows.decide import DecideActivities, decided
    from workflows.decisions.facts import Facts, Step, StepKind
    from workflows.failures import cause_of, stop_if_cancelled
    from workflows.incident import Incident
    from workflows.incident_cancelling import stand_down
    from workflows.incident_opening import briefing_of, first_report, identify, read_start
    from workflows.messages import IncidentReport, Replacement, Word
    from workflows.operator_view import Line

STEPS: dict[StepKind, Callable[[Incident, Step], Awaitable[None]]] = {
    StepKind.EXAMINE: looking.examine,
    StepKind.AWAIT_BOUNDARY: looking.await_boundary,
    StepKind.ASK_ALONE: steps.ask_alone,
    StepKind.JOIN_STORM: steps.join_storm,
    StepKind.ASK_LEAVE: steps.ask_leave,
    StepKind.QUARANTINE: steps.quarantine,
    StepKind.COLLECT_EVIDENCE: steps.collect_evidence,
    StepKind.TELL_JOB: steps.tell_job,
    StepKind.REPLACE: replacing.replace,
    StepKind.PROVE_SPARE: proving.prove_spare,
    StepKind.BRING_IN: proving.bring_in,
    StepKind.STAND_BACK: healers.stand_back,
    StepKind.DRAIN: repairs.drain,
    StepKind.LOOK_AT_SLOT: capacity.look_at_slot,
    StepKind.DISRUPT: repairs.disrupt,
    StepKind.AWAIT_CAPACITY: capacity.await_capacity,
    StepKind.RETEST: repairs.retest,
    StepKind.BURN_IN: proving.burn_in,
    StepKind.BACK_IN_SERVICE: repairs.back_in_service,
    StepKind.GIVE_UP_NODE: steps.give_up_node,
    StepKind.AWAIT_JOB: steps.await_job,
    StepKind.REPLACE_BY_DRAIN: giving_up.replace_by_drain,
    StepKind.RETURN_TO_POOL: closing.return_to_pool,
    StepKind.RETIRE: closing.retire,
    StepKind.RENEW: renewing.renew,
    StepKind.ASK_PERSON: people.ask_person,
}


@workflow.defn
class RemediateNode:
    """Heal one node, safely, and show why."""

    @workflow.init
    def __init__(self, given: Any = None) -> None:
        self._start, self._bad_input = read_start(given)
        self._incident = Incident(self._start)
        self._incident.hear(first_report(self._start))

    @workflow.run
    async def run(self, given: Any = None) -> IncidentReport:
        """Take steps until the policy says close and nothing new has been reported meanwhile."""
        if self._bad_input:
            raise ApplicationError(self._bad_input, type="BadInput", non_retryable=True)
        # Asked first of all: a marker in one task with the result of a local activity was not found again on replay.
        self._incident.pages_beside = workflow.patched("pages go out beside the work")
        elsewhere = await identify(self._incident, self._start)
        if elsewhere is not None:
            return elsewhere
        try:
            while True:
                step = await self._next_step()
                if step.kind is not StepKind.CLOSE:
                    await self._take(step)
                    continue
                if not await self._closed_out(step):
                    continue
                await workflow.wait_condition(workflow.all_handlers_finished)
                if not self._something_new():
                    return self._report(step.outcome)
                await self._look_anew()
        except (asyncio.CancelledError, FailureError) as error:
            if not is_cancelled_exception(error):
                raise
            if self._incident.facts is not None:
                await stand_down(self._incident)
            raise asyncio.CancelledError from error

    async def _closed_out(self, step: Step) -> bool:
        try:
            await closing.close_out(self._incident, step)
        except ActivityError as error:
            self._incident.learn(stuck=f"could not close: {cause_of(error)}")
            return False
        return True

    async def _take(self, step: Step) -> None:
        """Carry a step out. One that fails for good is a person's: the incident waits, it never dies with a node in limbo."""
        try:
            await STEPS[step.kind](self._incident, step)
        except ActivityError as error:
            words = f"could not {step.kind.value}: {cause_of(error)}"
            self._incident.learn(stuck=words)
            self._incident.tell("stuck", words)

    async def _next_step(self) -> Step:
        """Take in what was said, then decide. The decision is recorded; changed settings never disturb an open incident."""
        incident = self._incident
        stop_if_cancelled()
        if incident.talk.has_strays():
            await incident.talk.give_back()
        hearing.read_reports(incident)
        hearing.obey(incident)
        hearing.hear_job(incident)
        incident.learn(asked_by_hand=any(report.source == "hand" for report in incident.read))
        step = await decided(DecideActivities.decide, incident.known, "decide the next step")
        incident.note_decision(step)
        return incident.unless_in_circles(step)

    def _something_new(self) -> bool:
        """Look at the inbox after the last await: what arrived during the close-out is acted on, not lost."""
        incident = self._incident
        incident.unread = [one for one in [*incident.later, *incident.unread] if not incident.is_history(one)]
        incident.later.clear()
        return bool(incident.unread or incident.words or incident.talk.has_strays())

    async def _look_anew(self) -> None:
        """Start over from the present state of the world and of host memory, with the new reports."""
        self._incident.start_over(await briefing_of(self._incident.cluster, self._start.node))

    def _report(self, outcome: str) -> IncidentReport:
        incident = self._incident
        incident.view.attributes(Phase="closed", Outcome=outcome)
        opinion = incident.known.opinion
        return IncidentReport(
            outcome=outcome,
            node=incident.node.name,
            fault=opinion.fault_class if opinion else "",
            story=[f"{line.at:%H:%M:%S} {line.phase}: {line.text}" for line in incident.view.lines],
            job=incident.known.job_outcome,
            lost_minutes=incident.lost_minutes,
            fate=incident.fate,
        )

    @workflow.signal(description="A fault of this node was reported")
    def report_fault(self, report: Report) -> None:
        self._incident.hear(report)

    @workflow.signal(description="Cluster answers an ask")
    def cluster_answer(self, answer: Answer) -> None:
        self._incident.talk.take(answer)

    @workflow.signal(description="The job has resumed, or a person owns it")
    def job_resumed(self, end: JobResumed) -> None:
        self._incident.job_resumed = end

    @workflow.signal(description="The node that this incident supplied failed the burn-in")
    def failed_burn_in(self, failed: FailedBurnIn) -> None:
        self._incident.failed_burn_in = failed

    @workflow.signal(description="The spare is ready")
    def replacement_ready(self, replacement: Replacement) -> None:
        self._incident.replacement = replacement

    @workflow.signal(description="A recovering Cluster asks what is held")
    async def say_holding(self, asked: SayHolding) -> None:
        await self._incident.talk.say_holding()

    @workflow.update(description="Let the step that waits for approval go ahead")
    def approve(self, word: Word) -> str:
        return self._heard("approve", word)

    @workflow.update(description="Leave out the step that is asked about, or the one named")
    def skip(self, word: Word) -> str:
        return self._heard("skip", word)

    @approve.validator
    def approve_names_a_step(self, word: Word) -> None:
        self._refuse_unless_it_names_a_step(word)

    @skip.validator
    def skip_names_a_step(self, word: Word) -> None:
        self._refuse_unless_it_names_a_step(word)

    def _refuse_unless_it_names_a_step(self, word: Word) -> None:
        """Refuse what could not be acted on, so that nobody believes to have been heard."""
        facts = self._incident.facts
        if word.step and word.step not in Action.__members__:
            raise ValueError(f"{word.step!r} is no step; the steps are {', '.join(Action.__members__)}")
        if not word.step and not (facts and facts.asked_rung):
            raise ValueError("nothing is asked at the moment; name the step that you mean")

    @workflow.update(description="Go one rung up the ladder")
    def escalate(self, word: Word) -> str:
        return self._heard("escalate", word)

    @workflow.update(description="A person owns the node from now on; the quarantine stays")
    def take_over(self, word: Word) -> str:
        return self._heard("take over", word)

    @workflow.update(description="Give the node back: it is checked again and the incident goes on")
    def hand_back(self, word: Word) -> str:
        return self._heard("hand back", word)

    def _heard(self, verb: str, word: Word) -> str:
        self._incident.take_word(verb, word)
        return f"{verb}: heard; it takes effect before the next step"

    @workflow.query(description="The story so far")
    def story(self) -> list[Line]:
        return self._incident.view.lines

    @workflow.query(description="What the incident knows")
    def facts(self) -> Facts | None:
        return self._incident.facts
