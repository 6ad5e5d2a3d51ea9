"""What stands between a decision and a disruption: modes and approvals; and the ends of an incident that go to a person."""

from __future__ import annotations

from datetime import timedelta

from checks.model import Action, Verdict
from workflows.decisions.capacity import GIVES_UP_SLOT, slot_question
from workflows.decisions.facts import Facts, Step, StepKind
from workflows.decisions.settings import Mode, PolicySettings


def passes(verdict: Verdict | None) -> bool:
    """Return whether a test result lets a node serve: OK does, WARN does and is told. UNKNOWN never does."""
    return verdict in (Verdict.OK, Verdict.WARN)


def mode_of(rung: Action, policy: PolicySettings, fault_class: str) -> Mode:
    """Return the mode of a rung for a fault class: what was promoted for that class, else the rung's own, else the cluster's."""
    promoted = policy.mode_by_class.get(fault_class, {})
    return promoted.get(rung, policy.mode_by_rung.get(rung, policy.mode))


def gate(rung: Action, facts: Facts, policy: PolicySettings) -> Step | None:
    """Ask a person first where the mode of this rung says so, or where more is at stake than may be risked alone."""
    if rung in facts.approved:
        return None
    risk = slot_question(facts.slot) if rung in GIVES_UP_SLOT else ""
    if mode_of(rung, policy, class_of(facts)) is not Mode.ACT:
        why = "; ".join(filter(None, [f"{rung.value}: this rung needs a person's approval", risk]))
        return ask(facts, policy, why, f"approve {rung.value}", rung)
    if risk:
        return ask(facts, policy, f"{rung.value}: {risk}", f"approve {rung.value}", rung)
    limit = policy.ask_above_gpu_hours
    if facts.job_running and 0 < limit < facts.gpu_hours_at_stake:
        why = f"{rung.value}: stopping {facts.job} now loses {facts.gpu_hours_at_stake:.0f} GPU-hours, more than {limit:g}"
        return ask(facts, policy, why, f"approve {rung.value}", rung)
    return None


def class_of(facts: Facts) -> str:
    """The fault class of the present diagnosis, empty without one."""
    return facts.opinion.fault_class if facts.opinion else ""


def ask(facts: Facts, policy: PolicySettings, why: str, page: str, rung: Action | None = None) -> Step:
    """Wait for a person's word; when nobody answers for days, end with what is known."""
    if facts.asked_since is not None and facts.now - facts.asked_since > timedelta(seconds=policy.person_deadline_s):
        left = "the quarantine stays" if facts.quarantined else "the node was left as it is"
        return Step(kind=StepKind.CLOSE, outcome="escalated", because=[f"nobody answered: {why}", left], page=why)
    because = [why, *(facts.opinion.because if facts.opinion else [])]
    return Step(kind=StepKind.ASK_PERSON, rung=rung, because=because, page=page, deadline_s=policy.approval_page_again_s)


def page_and_close(facts: Facts, why: str, outcome: str, *more: str) -> Step:
    """End the incident and tell a person."""
    because = [why, *more, *(facts.opinion.because if facts.opinion else [])]
    return Step(kind=StepKind.CLOSE, outcome=outcome, because=because, page=why)


def job_end(facts: Facts) -> str:
    """Return the incident's outcome by what became of its job."""
    return "escalated" if facts.job_told and not job_resumed(facts) else "resolved"


def job_resumed(facts: Facts) -> bool:
    """Whether the job's recovery said that the job trains again."""
    return facts.job_outcome.startswith("resumed")


def look_at_slot(rung: Action, facts: Facts, policy: PolicySettings) -> Step | None:
    """See what capacity the node has before a rung that gives its slot up; what was seen long ago is seen anew."""
    return see_slot(rung.value, facts, policy) if rung in GIVES_UP_SLOT else None


def see_slot(what: str, facts: Facts, policy: PolicySettings) -> Step | None:
    """See what capacity the node has before its slot is given up by whatever this is."""
    seen_at = facts.slot_at if facts.slot is not None else None
    if seen_at is not None and facts.now - seen_at <= timedelta(seconds=policy.slot_age_s):
        return None
    said = f"{what} gives the slot of {facts.node.name} up: see first what capacity it runs in"
    return Step(kind=StepKind.LOOK_AT_SLOT, because=[said])
