"""The first half of the runbook, from the report to a quarantined node whose job knows. Each guard answers or passes on."""

from __future__ import annotations

from checks.model import Action, Verdict
from workflows.decisions.facts import Facts, Step, StepKind
from workflows.decisions.gates import ask, class_of, gate, job_end, look_at_slot, mode_of, page_and_close
from workflows.decisions.guards_repair import await_job, close
from workflows.decisions.ladder import Rungs
from workflows.decisions.settings import Mode, PolicySettings

JOB_ONLY = (Action.RESTART_JOB,)


def person_owns(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if not facts.person_owns:
        return None
    return ask(facts, policy, "a person has taken the node over; quarantine stays until it is handed back", "taken over")


def stuck(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A step could not be carried out at all: a person is asked; any word, or the next page's time, tries it again."""
    return ask(facts, policy, facts.stuck, "step failed") if facts.stuck else None


def fate_is_settled(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Once the node is in the pool or with a person, nothing more is done to it."""
    return close(facts, policy, rungs) if facts.settled and (facts.job_done or not facts.job_told) else None


def look_first(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.examination is None or facts.opinion is None:
        return Step(kind=StepKind.EXAMINE, because=["a report is not evidence: look at the node before anything else"])
    unread = facts.examination.verdict is Verdict.UNKNOWN
    if unread and not facts.disrupted and facts.unreadable_probes < policy.confirm_attempts:
        count = f"look {facts.unreadable_probes + 1} of {policy.confirm_attempts}"
        because = [f"the node could not be read ({count}): unknown is neither healthy nor broken"]
        return Step(kind=StepKind.EXAMINE, because=because, deadline_s=policy.look_again_s)
    return None


def only_we_cannot_reach_it(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """That we do not reach a node is one signal. Without a second one it may be our way to it that is broken."""
    seen = facts.examination
    if seen is None or seen.reachable or facts.disrupted or facts.second_signal or facts.approved:
        return None
    why = f"{facts.node.name} does not answer us ({seen.why_unreachable}), but EC2 and the job see nothing wrong with it"
    return ask(facts, policy, why, "unreachable for us alone")


def left_by_earlier(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A node that an earlier incident left quarantined for a person is looked at again only when a person asks."""
    if not facts.left_by_earlier or facts.asked_by_hand:
        return None
    said = "an earlier incident left this node quarantined for a person; reports by machines change nothing"
    return Step(kind=StepKind.CLOSE, outcome="still with a person", because=[said, "a report by hand re-tests it and returns it"])


def nothing_wrong(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    assert facts.examination
    assert facts.opinion
    if facts.quarantined or facts.disrupted or facts.back_in_service:
        return None
    if facts.job_told and facts.opinion.action is Action.NONE:
        return close(facts, policy, rungs) if facts.job_done else await_job(facts, policy)
    if facts.examination.verdict is Verdict.UNKNOWN and facts.examination.reachable:
        return page_and_close(facts, "the monitor failed, which says nothing about the node; nothing was done", "monitor failed")
    if facts.opinion.action is Action.NONE:
        return Step(
            kind=StepKind.CLOSE, outcome="nothing found", because=[*facts.opinion.because, "no finding asks for an action"]
        )
    return None


def only_observe(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Where the first rung is only observed, say what would be done and touch nothing."""
    if facts.disrupted or (facts.quarantined and not facts.inherited):
        return None
    assert facts.opinion
    if facts.opinion.action in JOB_ONLY and mode_of(Action.RESTART_JOB, policy, class_of(facts)) is Mode.OBSERVE:
        told = f"observe mode: would restart the job {facts.job or '(none found)'} after a burn-in"
    elif rungs.observed and not rungs.left:
        told = f"observe mode: would quarantine {facts.node.name} and try {', then '.join(rung.value for rung in rungs.observed)}"
    else:
        return None
    return Step(kind=StepKind.CLOSE, outcome="observed", because=[told, *facts.opinion.because])


def opted_out(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A node whose owner wants it left alone is looked at and told of, nothing more. What was begun is ended."""
    if not facts.node.opt_out or facts.quarantined or facts.disrupted or facts.job_told:
        return None
    why = f"{facts.node.name} has opted out ({facts.node.opt_out}): nothing was done to it"
    return page_and_close(facts, why, "left alone")


def part_of_a_storm(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """One event that shows on many nodes is answered once, by its storm; no node is disrupted for it."""
    if not facts.storm or facts.job_told or facts.disrupted:
        return None
    if not facts.storm_id:
        return page_and_close(facts, facts.storm, "part of a storm", "one event shows on many nodes: no node is disrupted for it")
    if not facts.storm_joined:
        return Step(kind=StepKind.JOIN_STORM, because=[facts.storm])
    because = [facts.storm, f"{facts.storm_id} answers for all of them; no node is disrupted for it"]
    return Step(kind=StepKind.CLOSE, outcome="part of a storm", because=because)


def left_to_its_owner(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A node that only its owner may touch is not quarantined; a controller's job that died of it is watched until it runs."""
    owns = facts.others.owns
    if not owns or facts.quarantined or (facts.opinion and facts.opinion.action in JOB_ONLY):
        return None
    if facts.job_controller and not facts.job_running and not facts.job_told:
        because = [f"{facts.job} has died of it, and {owns}: see the job restarted, leave the node to its owner"]
        return gate(Action.RESTART_JOB, facts, policy) or Step(kind=StepKind.TELL_JOB, because=because)
    if facts.job_told and not facts.job_done:
        return await_job(facts, policy)
    return page_and_close(facts, f"{facts.node.name} is left to its owner: {owns}", "left to its owner", facts.job_outcome)


def for_people(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    assert facts.opinion
    if facts.quarantined or facts.opinion.action in JOB_ONLY or rungs.left or facts.job_told or facts.disrupted:
        return None
    why = f"{facts.opinion.fault_class}: {facts.opinion.action.value} is for a person; no rung of the ladder is left"
    return page_and_close(facts, why, "escalated", *rungs.refused)


def diagnostics(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Diagnostics are a person's. A job that died does not wait for them: the burn-in before its restart is a test too."""
    assert facts.opinion
    if facts.opinion.action is not Action.RUN_DIAGNOSTICS or facts.quarantined or rungs.left or facts.disrupted:
        return None
    mode = mode_of(Action.RESTART_JOB, policy, class_of(facts))
    skipped = Action.RESTART_JOB.value in facts.skipped_steps
    if facts.job and not facts.job_running and not facts.job_told and mode is not Mode.OBSERVE and not skipped:
        because = [
            f"{facts.job} has died of it: restart it, gated by a burn-in; a person runs diagnostics",
            *facts.opinion.because,
        ]
        return gate(Action.RESTART_JOB, facts, policy) or Step(kind=StepKind.TELL_JOB, because=because)
    if facts.job_told and not facts.job_done:
        return await_job(facts, policy)
    why = f"{facts.opinion.fault_class}: run diagnostics on {facts.node.name}"
    return page_and_close(facts, why, "escalated", *([facts.job_outcome] if facts.job_outcome else []))


def restart_the_job(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    assert facts.opinion
    if facts.opinion.action not in JOB_ONLY or facts.quarantined:
        return None
    if not facts.job:
        return Step(kind=StepKind.CLOSE, outcome="nothing to restart", because=[*facts.opinion.because, "no job holds this node"])
    if not facts.job_told and not facts.alone and class_of(facts) == "application":
        return Step(
            kind=StepKind.ASK_ALONE, because=["a job that crashes shows on all its nodes: ask whether others show it too"]
        )
    if not facts.job_told and Action.RESTART_JOB.value in facts.skipped_steps:
        return Step(kind=StepKind.CLOSE, outcome="escalated", because=[f"a person said not to restart {facts.job}"])
    if not facts.job_told:
        return gate(Action.RESTART_JOB, facts, policy) or Step(
            kind=StepKind.TELL_JOB,
            because=[*facts.opinion.because, f"the GPU is usable: restart {facts.job}, gated by a burn-in"],
        )
    if not facts.job_done:
        return await_job(facts, policy)
    return Step(kind=StepKind.CLOSE, outcome=job_end(facts), because=[facts.job_outcome])


def at_the_jobs_boundary(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """What can wait for the job's next checkpoint or end does: a running job is worth more than the minutes."""
    assert facts.opinion
    if not facts.opinion.at_boundary or not facts.job_running or facts.boundary_reached or facts.quarantined or facts.job_told:
        return None
    because = [
        f"{facts.opinion.action.value} can wait until {facts.job} has written a checkpoint or ended",
        *facts.opinion.because,
    ]
    return Step(kind=StepKind.AWAIT_BOUNDARY, because=because, deadline_s=policy.boundary_deadline_s)


def quarantine(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.back_in_service or (facts.quarantined and (facts.quarantine_room or not facts.inherited)):
        return None
    if facts.refused:
        return page_and_close(facts, facts.refused, "escalated", "the node was left in service")
    if not facts.quarantine_room:
        return Step(
            kind=StepKind.ASK_LEAVE, because=["quarantine takes a node out: ask whether it is alone and whether there is room"]
        )
    if facts.quarantined:
        return None
    assert facts.opinion
    return Step(kind=StepKind.QUARANTINE, because=[*facts.opinion.because, "no new work on a suspect node; nothing is evicted"])


def evidence(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    if facts.evidence_taken or facts.back_in_service:
        return None
    return Step(
        kind=StepKind.COLLECT_EVIDENCE,
        because=["a reboot or a drain destroys evidence: save it first"],
        deadline_s=policy.evidence_deadline_s,
    )


def _what_for(controller: str, otherwise: str) -> str:
    return f"{controller} restarts it without the node" if controller else otherwise


def tell_job(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """A job that has died is told at once. One that still runs is stopped only where the next rung may be taken."""
    if not facts.job or facts.job_told:
        return None
    if facts.job_running and not (rungs.left or facts.fault_gone or facts.disrupted):
        why = f"{facts.job} still runs on {facts.node.name}, and no rung is left to stop it for"
        return page_and_close(facts, why, "escalated", "it was not stopped; the quarantine stays", *rungs.refused)
    controller = facts.job_controller
    because = [f"{facts.job} has this node in its node set: " + _what_for(controller, "hold it, it cannot go on")]
    if facts.job_running and rungs.left:
        stop = _what_for(controller, f"stop it for {rungs.left[0].value}")
        because = [f"{facts.job} still runs on it: {stop}"]
        asked = look_at_slot(rungs.left[0], facts, policy) or gate(rungs.left[0], facts, policy)
        if asked is not None:
            return asked
    return Step(kind=StepKind.TELL_JOB, because=because)
