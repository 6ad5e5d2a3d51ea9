"""The record of a rung for a fault class, read before it is promoted: decisions, outcomes, what people did otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from pydantic import BaseModel

from activities.host_memory import ClosedIncident, HostRecord
from checks.model import Action
from workflows.decisions.facts import Step, StepKind
from workflows.decisions.replayed import CannotRebuild, rebuild

OTHERWISE = ("skip", "escalate", "take over", "cancel")
"""Words with which a person went another way than the incident proposed."""

RUNG_NAMES = {
    "reset": Action.RESET_GPU,
    "soft-reboot": Action.SOFT_REBOOT,
    "reboot": Action.REBOOT_NODE,
    "power-cycle": Action.POWER_CYCLE,
    "replace": Action.REPLACE_NODE,
    "restart-job": Action.RESTART_JOB,
}
"""What a person types for a rung; its name in the settings is taken too."""

_KINDS = {Action.REPLACE_NODE: StepKind.REPLACE, Action.RESTART_JOB: StepKind.TELL_JOB}


class Otherwise(BaseModel):
    """One time that a person went another way."""

    at: datetime
    incident: str
    instance_id: str
    verb: str
    by: str
    reason: str
    step: str


class TrackRecord(BaseModel):
    """The record of one rung for one fault class. `unanswered` are incidents that asked for it and never heard a word."""

    since: datetime | None = None
    incidents: int = 0
    outcomes: dict[str, int] = {}
    observed: int = 0
    asked: int = 0
    approved: int = 0
    unanswered: int = 0
    taken: int = 0
    helped: int = 0
    did_not_help: int = 0
    without_result: int = 0
    otherwise: list[Otherwise] = []
    unreadable: int = 0


def track_record(
    incidents: Iterable[ClosedIncident], hosts: Iterable[HostRecord], fault_class: str, rung: Action, begin: datetime
) -> TrackRecord:
    """Read the record of a rung for a fault class from the incidents of that class and the attempts on all hosts."""
    found = TrackRecord()
    outcomes: Counter[str] = Counter()
    for closed in incidents:
        if closed.fault_class != fault_class:
            continue
        outcomes[closed.outcome] += 1
        found.since = min(found.since or closed.opened_at, closed.opened_at)
        _add_decisions(found, closed, rung)
        _add_words(found, closed, rung)
    found.incidents, found.outcomes = outcomes.total(), dict(outcomes.most_common())
    attempts = [one for host in hosts for one in host.attempts if one.at >= begin]
    helped = [one.helped for one in attempts if one.rung is rung and one.fault_class == fault_class]
    found.helped, found.did_not_help, found.without_result = helped.count(True), helped.count(False), helped.count(None)
    return found


def _add_decisions(found: TrackRecord, closed: ClosedIncident, rung: Action) -> None:
    asked = False
    for text in closed.decisions:
        try:
            step = rebuild(text, closed).step
        except CannotRebuild:
            found.unreadable += 1
            continue
        found.observed += step.outcome == "observed" and rung.value in step.because[0]
        found.taken += _takes(step, rung)
        asked = asked or (step.kind is StepKind.ASK_PERSON and step.rung is rung)
    found.asked += asked
    found.unanswered += asked and not closed.said


def _takes(step: Step, rung: Action) -> bool:
    if rung in _KINDS:
        return step.kind is _KINDS[rung]
    return step.kind is StepKind.DISRUPT and step.rung is rung


def _add_words(found: TrackRecord, closed: ClosedIncident, rung: Action) -> None:
    found.approved += any(said.verb == "approve" and said.step == rung.value for said in closed.said)
    found.otherwise += [
        Otherwise(incident=closed.incident, instance_id=closed.instance_id, **said.model_dump())
        for said in closed.said
        if said.verb in OTHERWISE
    ]
