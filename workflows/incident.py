"""The state of one incident: what it knows, what was reported, what people and other workflows said to it.

Signal and update handlers only write here; the steps in `incident_steps` and `incident_repairs` act on it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.workflow import ChildWorkflowHandle

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.briefing import Briefing
    from activities.host_memory import Said
    from activities.incidents import FailedBurnIn, JobResumed, StartIncident
    from activities.inventory import Node
    from activities.node import Report
    from checks.model import Verdict
    from workflows.circles import CIRCLES, CIRCLES_WAIT_S, Circles
    from workflows.cluster_messages import Ask, AskKind
    from workflows.cluster_talk import ClusterTalk
    from workflows.decisions.facts import Facts, OtherHealers, Spare, Step, StepKind
    from workflows.decisions.replayed import recorded, repeats
    from workflows.messages import Replacement, Word
    from workflows.operator_view import TEXT_LIMIT, OperatorView
    from workflows.report_words import report_key
    from workflows.tokens import Tokens

REPORTS_SHOWN = 20
"""Different reports whose text is kept; further ones are counted. Hotspare default: history stays readable in a flood."""

DECISIONS_KEPT = 20
"""Decisions that are remembered of an incident, the last ones. Hotspare default: a whole incident has 10 to 15."""

WORDS_KEPT = 50
"""Words of people that are remembered of an incident, the last ones. Hotspare default: a wild sender fills no record."""


class Incident:
    """Everything that one run of RemediateNode remembers."""

    def __init__(self, start: StartIncident) -> None:
        self.cluster = start.cluster
        self.tokens = Tokens()
        self.talk = ClusterTalk(self.tokens)
        self.view = OperatorView()
        self.opened_at = workflow.now()
        self.facts: Facts | None = None
        self.unread: list[Report] = []
        self.read: list[Report] = []
        self.later: list[Report] = []
        self.rounds = 1
        self.seen_keys: list[str] = []
        self.codes: list[int] = []
        self.duplicates = 0
        self.words: list[tuple[str, Word]] = []
        self.said: list[Said] = []
        self.job_resumed: JobResumed | None = None
        self.failed_burn_in: FailedBurnIn | None = None
        self.replacement: Replacement | None = None
        self.replace_child: ChildWorkflowHandle[Any, Replacement] | None = None
        self.handled_until: datetime | None = None
        self.unwanted_spares: list[str] = []
        self.decisions: list[str] = []
        self.decisions_made = 0
        self.lost_minutes: float | None = None
        self.fate = ""
        self.strike = False
        self.ui_url = ""
        self.last_boot_id = ""
        self.pages_beside = False
        self.paging: list[workflow.ActivityHandle[None]] = []
        self._circles = Circles()
        self.booted_at: str = ""

    @property
    def known(self) -> Facts:
        """The facts, once the node has been identified."""
        if self.facts is None:
            raise RuntimeError("the node has not been identified yet")
        return self.facts

    @property
    def node(self) -> Node:
        """The node that this incident is about."""
        return self.known.node

    def begin(self, briefing: Briefing) -> None:
        """Start from nothing but the node and its record. A quarantine left by an earlier run for this node is ours.

        One that was left for a person stays so; one that a terminated or reset run left behind is taken up and gone on with.
        """
        node, record = briefing.node, briefing.record
        incident = names.incident_id(self.cluster, node.instance_id)
        asked = names.owner_in(node.stood_back) == incident
        ours = node.quarantine == incident
        for_a_person = {node.fate, record.fate} & {names.FATE_RETIRED, names.FATE_WITH_PERSON}
        self.facts = Facts(
            cluster=self.cluster,
            incident=incident,
            run=self.tokens.run if self.rounds == 1 else f"{self.tokens.run}~{self.rounds}",
            node=node,
            now=workflow.now(),
            record=record,
            quarantined=ours,
            left_by_earlier=ours and bool(for_a_person),
            inherited=ours,
            drains=briefing.drains,
            drain_replaces=briefing.drain_replaces,
            owned_by=briefing.owned_by,
            others=OtherHealers(found=briefing.healers, owns=briefing.owner, asked=asked, doubts=briefing.doubts),
        )
        self.handled_until = record.handled_at

    def start_over(self, briefing: Briefing) -> None:
        """Begin a second look: nothing of the first one counts but what host memory and tags say."""
        self.rounds += 1
        self.read, self.job_resumed, self.fate, self.strike = [], None, "", False
        self.begin(briefing)
        self.tell("reported again", "something was reported while closing: looking anew")

    def learn(self, **changes: object) -> None:
        """Take new facts in."""
        self.facts = self.known.model_copy(update={**changes, "now": workflow.now()})

    def tell(self, phase: str, text: str) -> None:
        """Add a line to the story."""
        self.view.tell(phase, text)

    def hear(self, report: Report) -> None:
        """Take a report in. The same fault, reported a thousand times, is one."""
        key = report_key(report)
        if key in self.seen_keys:
            self.duplicates += 1
            return
        self.seen_keys.append(key)
        new = report.burn_in_failed or report.resolved or (report.xid is not None and report.xid not in self.codes)
        if new or len(self.unread) + len(self.read) < REPORTS_SHOWN:
            self.unread.append(report)
        else:
            self.duplicates += 1

    def note_decision(self, step: Step) -> None:
        """Keep the decision with its facts, for people and for trying a changed policy on it. Of repeats the newest is kept."""
        new = recorded(self.known, step)
        if self.decisions and repeats(self.decisions[-1], new):
            self.decisions[-1] = new
            return
        self.decisions_made += 1
        self.decisions = [*self.decisions, new][-DECISIONS_KEPT:]

    def take_word(self, verb: str, word: Word) -> None:
        """Keep a person's word: acted on before the next step, and remembered with who said it and when."""
        step = word.step or (self.facts.asked_rung if self.facts else "")
        self._remember(Said(at=workflow.now(), verb=verb, by=word.by, reason=word.reason, step=step))
        self.words.append((verb, word))

    def hear_cancel(self, reason: str) -> None:
        """Remember who cancelled and why, where the canceller says so as `hotspare cancel` does; the Temporal UI does not."""
        by, known, why = reason.partition(": ")
        by, why = (by, why) if known else ("", reason)
        self._remember(Said(at=workflow.now(), verb="cancel", by=by, reason=why))
        self.tell("cancel", reason or "whoever cancelled did not say who they are")

    def _remember(self, said: Said) -> None:
        short = said.model_copy(update={"by": said.by[:TEXT_LIMIT], "reason": said.reason[:TEXT_LIMIT]})
        self.said = [*self.said, short][-WORDS_KEPT:]

    def unless_in_circles(self, step: Step) -> Step:
        """Return the step, or a question to a person when it was taken before and has changed no fact."""
        if not self._circles.closes(step, self.known):
            return step
        why = f"{step.kind.value} was tried {CIRCLES} times and changed nothing"
        self.learn(stuck=why)
        return Step(kind=StepKind.ASK_PERSON, because=[why, *step.because], page="going in circles", deadline_s=CIRCLES_WAIT_S)

    def ask(self, kind: AskKind) -> Ask:
        """Return a request to Cluster for this node."""
        opinion = self.known.opinion
        return Ask(
            request_id=self.tokens.next(),
            asker=self.known.incident,
            kind=kind,
            instance_id=self.node.instance_id,
            node_name=self.node.name,
            fault_class=opinion.fault_class if opinion else "",
            code=opinion.code if opinion else None,
            job=self.known.job,
            zone=self.node.zone,
            spine=self.node.spine,
            placement_group=self.node.placement_group,
            nvlink_domain=self.node.nvlink_domain,
            pool=self.node.pool_name(),
            instance_type=self.node.instance_type,
            impact=self.known.gpus_waiting,
            uptime_s=self.known.examination.uptime_s if self.known.examination else None,
            accused=any(report.burn_in_failed for report in self.read),
        )

    def is_history(self, report: Report) -> bool:
        """Return whether a report predates the node's last boot: history, not state."""
        if report.seen_at is None or not self.booted_at:
            return False
        return report.seen_at < datetime.fromisoformat(self.booted_at)

    def accused(self) -> bool:
        """Return whether a burn-in has failed on this node and that is not acted on yet."""
        return any(report.burn_in_failed for report in self.unread)

    def interrupted(self) -> bool:
        """Return whether a person has said something that is not acted on yet."""
        return bool(self.words)

    def try_again(self) -> None:
        """Forget what stopped the incident: a step that failed, a test without a result."""
        known = self.known
        self.learn(
            stuck="",
            retest=None if known.retest is Verdict.UNKNOWN else known.retest,
            burn_in=None if known.burn_in is Verdict.UNKNOWN else known.burn_in,
        )

    def hand_back_spare(self, instance_id: str, why: str) -> None:
        """Have a spare that did not pass put back and looked at, and ask for another."""
        self.unwanted_spares.append(instance_id)
        if self.replace_child is not None:
            self.replace_child.cancel()
        self.learn(job_answered=False, spare=Spare.NOT_ASKED, spare_reason=why, proof=None, proof_because=[])
