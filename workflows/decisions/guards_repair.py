"""The second half of the runbook, from a quarantined node to its fate. Each guard answers with a step or passes on."""

from __future__ import annotations

from datetime import timedelta

from checks.model import Action, Verdict
from workflows.decisions.capacity import GIVES_UP_SLOT, ends_too_soon, what_a_stop_loses
from workflows.decisions.facts import Facts, Spare, Step, StepKind
from workflows.decisions.gates import ask, gate, job_end, job_resumed, look_at_slot, passes
from workflows.decisions.giving_up import plan_of_drain, why_not_drained
from workflows.decisions.ladder import RESTARTS, Rungs
from workflows.decisions.settings import PolicySettings


def resume_first(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Swap in a spare while the job waits, unless policy or the lack of a spare says to repair in place."""
    if not facts.job or facts.job_answered or passes(facts.retest):
        return None
    in_place = rungs.next_in_place() if facts.retest is not Verdict.UNKNOWN else None
    if facts.spare is not Spare.NOT_ASKED and not (facts.spare is Spare.NONE_SEEN and in_place is None):
        return None
    if Action.REPLACE_NODE not in rungs.left or (in_place is not None and not policy.resume_first):
        return None
    asked = gate(Action.REPLACE_NODE, facts, policy)
    if asked is not None:
        told = asked.model_copy(update={"because": [*asked.because, *plan_of_drain(facts)]})
        return told if in_place is None else None
    because = (
        "a job waits: swap in a spare first, repair afterwards" if in_place else "nothing in place can mend this fault: replace"
    )
    return Step(
        kind=StepKind.REPLACE,
        because=[because, *rungs.refused],
        deadline_s=policy.replace_deadline_s,
        waits=in_place is None,
    )


def prove_the_spare(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A controller starts ranks as soon as it gets the spare: it is proven first, in a pair, off the job's GPUs."""
    if not facts.job_controller or facts.job_answered or facts.spare is not Spare.READY:
        return None
    if facts.proof is None:
        because = [
            f"{facts.job_controller} starts ranks on {facts.spare_name} as soon as it may: pair it with an idle node first"
        ]
        return Step(kind=StepKind.PROVE_SPARE, because=because, deadline_s=policy.retest_deadline_s)
    unproven = _unproven(facts, policy, facts.spare_name, facts.proof, facts.proof_because)
    return unproven or Step(kind=StepKind.BRING_IN, because=[*facts.proof_because, f"{facts.job} may use {facts.spare_name}"])


def _unproven(facts: Facts, policy: PolicySettings, name: str, proof: Verdict | None, because: list[str]) -> Step | None:
    """A pair test without a result is no pass: a person may answer for the node."""
    if passes(proof) or Action.RESTART_JOB in facts.approved:
        return None
    if Action.RESTART_JOB.value in facts.skipped_steps:
        return Step(kind=StepKind.GIVE_UP_NODE, because=[f"a person said not to let {facts.job} use {name} unproven"])
    why = f"{name} could not be proven in a pair ({'; '.join(because) or 'no result'}); approve to let {facts.job} use it"
    return ask(facts, policy, why, f"approve {name} unproven", Action.RESTART_JOB)


def await_capacity(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A node that was stopped and finds no capacity to start is a wait, with the reason. The wait has an end."""
    if not facts.no_capacity or wait_is_over(facts, policy):
        return None
    since = facts.no_capacity_since or facts.now
    waited = (facts.now - since).total_seconds() / 60
    because = [
        f"{facts.node.name} is stopped, and EC2 has no capacity to start it: {facts.no_capacity}",
        f"{waited:.0f} of {policy.capacity_wait_s / 60:.0f} minutes waited; tried again every {policy.capacity_try_s:.0f} s",
    ]
    return Step(
        kind=StepKind.AWAIT_CAPACITY,
        because=because,
        deadline_s=policy.boot_deadline_s,
        settling_s=policy.settling_s,
        pause_s=policy.capacity_try_s,
    )


def wait_is_over(facts: Facts, policy: PolicySettings) -> bool:
    """Say whether a stopped node waits no longer: for too long, too near to its reservation's end, or as a person said."""
    since = facts.no_capacity_since or facts.now
    held = facts.slot.reservation if facts.slot else None
    too_late = held is not None and ends_too_soon(held, facts.now, policy)
    skipped = Action.POWER_CYCLE.value in facts.skipped_steps
    return skipped or bool(too_late) or facts.now - since >= timedelta(seconds=policy.capacity_wait_s)


def await_job_after_swap(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.job_answered and not facts.job_done:
        return await_job(facts, policy)
    return None


def check_the_repair(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.retest is not None or facts.no_capacity or not (facts.disrupted or facts.fault_gone):
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


def repaired(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if not passes(facts.retest):
        return None
    passed = ["the deep re-test passed", *facts.retest_because]
    if facts.job and not facts.job_answered and facts.job_controller:
        return _into_a_controlled_job(facts, policy, passed)
    if facts.job and not facts.job_answered:
        return Step(
            kind=StepKind.BACK_IN_SERVICE, because=[*passed, f"{facts.job} waits for this node; its burn-in is the last gate"]
        )
    if facts.back_in_service:
        return None
    if facts.job_controller and not job_resumed(facts):
        # Its controller still has the node in its job: in the pool the two would get it.
        return _into_a_controlled_job(facts, policy, [*passed, f"{facts.job} was not brought back with another node"])
    if not facts.job and facts.burn_in is None:
        return Step(
            kind=StepKind.BURN_IN, because=[*passed, "no job will burn it in: do it here"], deadline_s=policy.retest_deadline_s
        )
    if not facts.job and not passes(facts.burn_in):
        return None
    if not facts.job:
        return Step(kind=StepKind.BACK_IN_SERVICE, because=[*passed, "its burn-in passed"])
    return Step(kind=StepKind.RETURN_TO_POOL, because=[*passed, "a spare stands in for it: it joins the pool, on probation"])


def _into_a_controlled_job(facts: Facts, policy: PolicySettings, passed: list[str]) -> Step | None:
    """Lifting the quarantine lets the controller start ranks here, so the burn-in comes before it."""
    if facts.burn_in is None:
        because = [
            *passed,
            f"{facts.job_controller} starts ranks here once the quarantine is lifted: pair it with an idle node first",
        ]
        return Step(kind=StepKind.BURN_IN, because=because, deadline_s=policy.retest_deadline_s)
    if facts.burn_in is Verdict.CRITICAL:
        return None
    unproven = _unproven(facts, policy, facts.node.name, facts.burn_in, facts.proof_because)
    return unproven or Step(
        kind=StepKind.BACK_IN_SERVICE, because=[*passed, *facts.proof_because, f"{facts.job} may use it again"]
    )


def a_test_without_a_result(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A test that could not run proves nothing: a person's word, or the time of the next page, has it tried again."""
    if facts.back_in_service or facts.settled:
        return None
    if facts.retest is Verdict.UNKNOWN:
        why = f"the re-test gave no result: {'; '.join(facts.retest_because) or 'it could not run'}"
        return ask(facts, policy, why, "re-test without a result")
    if facts.burn_in is Verdict.UNKNOWN:
        return ask(facts, policy, "the burn-in gave no result, which says nothing about the node", "burn-in without a result")
    return None


def next_rung(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.back_in_service:
        return None
    rung = rungs.next_in_place()
    if rung is None:
        return None
    seen = facts.examination
    if seen and seen.reachable and seen.verdict is Verdict.UNKNOWN and not facts.disrupted:
        return ask(
            facts, policy, "the evidence could not be read again; unknown is no ground for a disruptive step", "evidence unknown"
        )
    because = [*(facts.opinion.because if facts.opinion else []), *rungs.refused]
    if facts.job and not facts.job_answered:
        because.insert(0, why_in_place(facts, policy))
    if rung in GIVES_UP_SLOT:
        because.append(what_a_stop_loses(facts))
    if (look := look_at_slot(rung, facts, policy)) is not None:
        return look
    asked = gate(rung, facts, policy)
    if asked is not None:
        lost = [what_a_stop_loses(facts)] if rung in GIVES_UP_SLOT else []
        return asked.model_copy(update={"because": [*asked.because, *lost]})
    others = facts.others
    if rung in RESTARTS and others.found and not others.told:
        said = f"{' and '.join(others.found)} would replace a node that restarts: have it stand back before {rung.value}"
        return Step(kind=StepKind.STAND_BACK, because=[said, *others.doubts])
    if rung in RESTARTS and facts.drains and not facts.drained:
        return Step(
            kind=StepKind.DRAIN, because=[f"{rung.value} ends every pod on {facts.node.name}: move them off first", *because]
        )
    return Step(
        kind=StepKind.DISRUPT,
        rung=rung,
        because=because,
        deadline_s=policy.rung_deadlines_s.get(rung, policy.boot_deadline_s),
        settling_s=policy.settling_s,
    )


def cannot_mend(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """The node cannot be mended here. A waiting job is told first, then the node's fate is settled."""
    if facts.back_in_service:
        return None
    if facts.job and not facts.job_answered:
        why = facts.spare_reason or "no rung of the ladder is left"
        return Step(kind=StepKind.GIVE_UP_NODE, because=[f"nothing comes in place of {facts.node.name}: {why}", *rungs.refused])
    because = ["nothing that can be done from here mends it", *rungs.refused]
    if kept := why_not_drained(facts, policy, rungs):
        because.append(kept)
    return Step(kind=StepKind.RETIRE, because=because)


def close(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    ended = facts.job_outcome or "the node is back in service"
    return Step(kind=StepKind.CLOSE, outcome=job_end(facts), because=[ended])


def why_in_place(facts: Facts, policy: PolicySettings) -> str:
    if facts.spare is Spare.NOT_ASKED:
        return "repair in place: swapping in a spare first is not open to this incident"
    return f"repair in place: {facts.spare_reason or facts.spare.value}"


def await_job(facts: Facts, policy: PolicySettings) -> Step:
    return Step(
        kind=StepKind.AWAIT_JOB, because=[f"{facts.job} burns in its nodes and resumes"], deadline_s=policy.job_deadline_s
    )
