"""The policy: from the facts of an incident to its next step, with the reason. Reads top to bottom like the runbook.

Pure: the same facts and settings always give the same step. Each guard answers with a step or passes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta

from checks.model import Action, Verdict
from workflows.decisions.facts import Facts, Spare, Step, StepKind
from workflows.decisions.ladder import Rungs, rungs_for
from workflows.decisions.settings import Mode, PolicySettings

JOB_ONLY = (Action.RESTART_JOB,)
FOR_PEOPLE = (Action.CONTACT_SUPPORT, Action.RUN_DIAGNOSTICS)

Guard = Callable[[Facts, PolicySettings, Rungs], Step | None]


def next_step(facts: Facts, policy: PolicySettings) -> Step:
    """Return the incident's next step and why."""
    rungs = rungs_for(facts, policy)
    for guard in RUNBOOK:
        step = guard(facts, policy, rungs)
        if step is not None:
            return step.model_copy(update={"policy_hash": policy_hash(policy)})
    raise AssertionError("the last guard always answers")


def policy_hash(policy: PolicySettings) -> str:
    """Return a short hash of the settings, so that a decision in history names the policy that made it."""
    return hashlib.sha256(policy.model_dump_json().encode()).hexdigest()[:12]


def _person_owns(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if not facts.person_owns:
        return None
    return _ask(facts, policy, "a person has taken the node over; quarantine stays until it is handed back", "taken over")


def _stuck(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A step could not be carried out at all: a person is asked; any word, or the next page's time, tries it again."""
    return _ask(facts, policy, facts.stuck, "step failed") if facts.stuck else None


def _look_first(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.examination is None or facts.opinion is None:
        return Step(kind=StepKind.EXAMINE, because=["a report is not evidence: look at the node before anything else"])
    unread = facts.examination.verdict is Verdict.UNKNOWN
    if unread and not facts.disrupted and facts.unreadable_probes < policy.confirm_attempts:
        count = f"look {facts.unreadable_probes + 1} of {policy.confirm_attempts}"
        return Step(
            kind=StepKind.EXAMINE, because=[f"the node could not be read ({count}): unknown is neither healthy nor broken"]
        )
    return None


def _nothing_wrong(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    assert facts.examination
    assert facts.opinion
    if facts.quarantined or facts.disrupted or facts.job_told:
        return None
    if facts.examination.verdict is Verdict.UNKNOWN and facts.examination.reachable:
        return _page_and_close(facts, "the monitor failed, which says nothing about the node; nothing was done", "monitor failed")
    if facts.opinion.action is Action.NONE:
        return Step(
            kind=StepKind.CLOSE, outcome="nothing found", because=[*facts.opinion.because, "no finding asks for an action"]
        )
    return None


def _for_people(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    assert facts.opinion
    if facts.quarantined or facts.opinion.action in JOB_ONLY or rungs.left or facts.job_told or facts.disrupted:
        return None
    why = f"{facts.opinion.fault_class}: {facts.opinion.action.value} is for a person; no rung of the ladder is left"
    return _page_and_close(facts, why, "escalated", *rungs.refused)


def _fate_is_settled(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Once the node is in the pool or with a person, nothing more is done to it."""
    return _close(facts, policy, rungs) if facts.settled and (facts.job_done or not facts.job_told) else None


def _left_by_earlier(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A node that an earlier incident left quarantined for a person is looked at again only when a person asks."""
    if not facts.left_by_earlier or facts.asked_by_hand:
        return None
    said = "an earlier incident left this node quarantined for a person; reports by machines change nothing"
    return Step(kind=StepKind.CLOSE, outcome="still with a person", because=[said, "a report by hand re-tests it and returns it"])


def _only_observe(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if policy.mode is not Mode.OBSERVE or facts.quarantined or facts.disrupted:
        return None
    assert facts.opinion
    plan = ", then ".join(rung.value for rung in rungs.left) or facts.opinion.action.value
    told = f"the cluster is in observe mode: would quarantine {facts.node.name} and try {plan}"
    if facts.opinion.action in JOB_ONLY:
        told = f"the cluster is in observe mode: would restart the job {facts.job or '(none found)'} after a burn-in"
    return Step(kind=StepKind.CLOSE, outcome="observed", because=[told, *facts.opinion.because])


def _restart_the_job(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    assert facts.opinion
    if facts.opinion.action not in JOB_ONLY or facts.quarantined:
        return None
    if not facts.job:
        return Step(kind=StepKind.CLOSE, outcome="nothing to restart", because=[*facts.opinion.because, "no job holds this node"])
    if not facts.job_told:
        gate = _gate(Action.RESTART_JOB, facts, policy)
        return gate or Step(
            kind=StepKind.TELL_JOB,
            because=[*facts.opinion.because, f"the GPU is usable: restart {facts.job}, gated by a burn-in"],
        )
    if not facts.job_done:
        return _await_job(facts, policy)
    return Step(kind=StepKind.CLOSE, outcome=_job_end(facts), because=[facts.job_outcome])


def _quarantine(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.quarantined or facts.back_in_service:
        return None
    if facts.storm:
        return _page_and_close(
            facts, facts.storm, "part of a storm", "one event shows on many nodes: no node is disrupted for it"
        )
    if facts.refused:
        return _page_and_close(facts, facts.refused, "escalated", "the node was left in service")
    if not facts.quarantine_room:
        return Step(
            kind=StepKind.ASK_LEAVE, because=["quarantine takes a node out: ask whether it is alone and whether there is room"]
        )
    assert facts.opinion
    return Step(kind=StepKind.QUARANTINE, because=[*facts.opinion.because, "no new work on a suspect node; nothing is evicted"])


def _evidence(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.evidence_taken or facts.back_in_service:
        return None
    return Step(
        kind=StepKind.COLLECT_EVIDENCE,
        because=["a reboot or a drain destroys evidence: save it first"],
        deadline_s=policy.evidence_deadline_s,
    )


def _tell_job(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if not facts.job or facts.job_told:
        return None
    return Step(kind=StepKind.TELL_JOB, because=[f"{facts.job} has this node in its node set: hold it, it cannot go on"])


def _resume_first(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Swap in a spare while the job waits, unless policy or the lack of a spare says to repair in place."""
    if not facts.job or facts.job_answered or facts.retest is Verdict.OK:
        return None
    in_place = rungs.next_in_place()
    if facts.spare is not Spare.NOT_ASKED and not (facts.spare is Spare.NONE_SEEN and in_place is None):
        return None
    if Action.REPLACE_NODE not in rungs.left or (in_place is not None and not policy.resume_first):
        return None
    gate = _gate(Action.REPLACE_NODE, facts, policy)
    if gate is not None:
        return gate if in_place is None else None
    because = (
        "a job waits: swap in a spare first, repair afterwards" if in_place else "nothing in place can mend this fault: replace"
    )
    return Step(kind=StepKind.REPLACE, because=[because, *rungs.refused], deadline_s=policy.replace_deadline_s)


def _await_job_after_swap(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.job_answered and not facts.job_done:
        return _await_job(facts, policy)
    return None


def _check_the_repair(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.retest is not None or not (facts.disrupted or facts.fault_gone):
        return None
    because = "a reboot that went through is not a repair: test deep before the node serves again"
    if not facts.disrupted:
        because = "the fault no longer shows: test deep instead of disrupting a node that may be well"
    return Step(
        kind=StepKind.RETEST,
        because=[because],
        deadline_s=policy.retest_deadline_s,
        settling_s=policy.settling_s,
    )


def _repaired(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.retest is not Verdict.OK:
        return None
    passed = ["the deep re-test passed", *facts.retest_because]
    if facts.job and not facts.job_answered:
        return Step(
            kind=StepKind.BACK_IN_SERVICE, because=[*passed, f"{facts.job} waits for this node; its burn-in is the last gate"]
        )
    if facts.back_in_service:
        return None
    if not facts.job and facts.burn_in_passed is None:
        return Step(
            kind=StepKind.BURN_IN, because=[*passed, "no job will burn it in: do it here"], deadline_s=policy.retest_deadline_s
        )
    if facts.burn_in_passed is False:
        return None
    if not facts.job:
        return Step(kind=StepKind.BACK_IN_SERVICE, because=[*passed, "its burn-in passed"])
    return Step(kind=StepKind.RETURN_TO_POOL, because=[*passed, "a spare stands in for it: it joins the pool, on probation"])


def _next_rung(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.back_in_service or facts.retest is Verdict.UNKNOWN:
        return None
    rung = rungs.next_in_place()
    if rung is None:
        return None
    seen = facts.examination
    if seen and seen.reachable and seen.verdict is Verdict.UNKNOWN and not facts.disrupted:
        return _ask(
            facts, policy, "the evidence could not be read again; unknown is no ground for a disruptive step", "evidence unknown"
        )
    because = [*(facts.opinion.because if facts.opinion else []), *rungs.refused]
    if facts.job and not facts.job_answered:
        because.insert(0, _why_in_place(facts, policy))
    return _gate(rung, facts, policy) or Step(
        kind=StepKind.DISRUPT, rung=rung, because=because, deadline_s=policy.boot_deadline_s, settling_s=policy.settling_s
    )


def _why_in_place(facts: Facts, policy: PolicySettings) -> str:
    if facts.spare is Spare.NOT_ASKED:
        return "repair in place: swapping in a spare first is not open to this incident"
    return f"repair in place: {facts.spare_reason or facts.spare.value}"


def _cannot_mend(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """The node cannot be mended here. A waiting job is told first, then the node's fate is settled."""
    if facts.back_in_service:
        return None
    if facts.job and not facts.job_answered:
        why = facts.spare_reason or "no rung of the ladder is left"
        return Step(kind=StepKind.GIVE_UP_NODE, because=[f"nothing comes in place of {facts.node.name}: {why}", *rungs.refused])
    return Step(
        kind=StepKind.RETIRE,
        because=["nothing that can be done from here mends it", *rungs.refused],
    )


def _close(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    ended = facts.job_outcome or "the node is back in service"
    return Step(kind=StepKind.CLOSE, outcome=_job_end(facts), because=[ended])


RUNBOOK: tuple[Guard, ...] = (
    _person_owns,
    _stuck,
    _fate_is_settled,
    _look_first,
    _left_by_earlier,
    _nothing_wrong,
    _for_people,
    _only_observe,
    _restart_the_job,
    _quarantine,
    _evidence,
    _tell_job,
    _resume_first,
    _await_job_after_swap,
    _check_the_repair,
    _repaired,
    _next_rung,
    _cannot_mend,
    _close,
)
"""Asked in this order; the first that answers decides."""


def _gate(rung: Action, facts: Facts, policy: PolicySettings) -> Step | None:
    """Ask a person first where the mode of this rung says so."""
    mode = policy.mode_by_rung.get(rung, policy.mode)
    if mode is Mode.ACT or rung in facts.approved:
        return None
    asked = "the mode of this rung is observe" if mode is Mode.OBSERVE else "this rung needs a person's approval"
    return _ask(facts, policy, f"{rung.value}: {asked}", f"approve {rung.value}", rung)


def _ask(facts: Facts, policy: PolicySettings, why: str, page: str, rung: Action | None = None) -> Step:
    if facts.asked_since is not None and facts.now - facts.asked_since > timedelta(seconds=policy.person_deadline_s):
        return Step(
            kind=StepKind.CLOSE, outcome="escalated", because=[f"nobody answered: {why}", "the quarantine stays"], page=why
        )
    return Step(
        kind=StepKind.ASK_PERSON,
        rung=rung,
        because=[why, *(facts.opinion.because if facts.opinion else [])],
        page=page,
        deadline_s=policy.approval_page_again_s,
    )


def _await_job(facts: Facts, policy: PolicySettings) -> Step:
    return Step(
        kind=StepKind.AWAIT_JOB, because=[f"{facts.job} burns in its nodes and resumes"], deadline_s=policy.job_deadline_s
    )


def _page_and_close(facts: Facts, why: str, outcome: str, *more: str) -> Step:
    because = [why, *more, *(facts.opinion.because if facts.opinion else [])]
    return Step(kind=StepKind.CLOSE, outcome=outcome, because=because, page=why)


def _job_end(facts: Facts) -> str:
    if facts.job_told and not facts.job_outcome.startswith("resumed"):
        return "escalated"
    return "resolved"
