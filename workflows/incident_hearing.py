"""What an incident makes of what it heard since its last step: people's words, reports, the recovery of its job.

Handlers of signals and updates only write down what they hear (`workflows.incident`); here it becomes facts.
"""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.node import Report
    from checks.model import Action
    from workflows.incident import Incident
    from workflows.messages import Word
    from workflows.report_words import describe


def obey(incident: Incident) -> None:
    """Act on what people said since the last look. Any word lets a step that failed be tried again."""
    if incident.words:
        incident.try_again()
    obeyed = {
        "approve": _approve,
        "skip": _skip,
        "escalate": _escalate,
        "take over": _take_over,
        "hand back": _hand_back,
    }
    for verb, word in incident.words:
        incident.tell(verb, f"{word.by}: {word.reason or 'no reason given'}")
        obeyed[verb](incident, word)
    incident.words.clear()


def _approve(incident: Incident, word: Word) -> None:
    asked = [rung for rung in (word.step, incident.known.asked_rung) if rung]
    incident.learn(approved=[*incident.known.approved, *(Action(rung) for rung in asked[:1])], asked_rung="", asked_since=None)


def _skip(incident: Incident, word: Word) -> None:
    step = word.step or incident.known.asked_rung
    incident.learn(skipped_steps=[*incident.known.skipped_steps, *([step] if step else [])], asked_rung="", asked_since=None)


def _escalate(incident: Incident, word: Word) -> None:
    incident.learn(escalations=incident.known.escalations + 1, asked_rung="", asked_since=None)


def _take_over(incident: Incident, word: Word) -> None:
    incident.learn(person_owns=True, asked_since=None)


def _hand_back(incident: Incident, word: Word) -> None:
    incident.learn(
        person_owns=False, examination=None, retest=None, unreadable_probes=0, asked_rung="", asked_since=None, paged=[]
    )


def read_reports(incident: Incident) -> None:
    """Merge what was reported since the last look; a new fault before the quarantine asks for a new examination."""
    fresh, incident.unread = incident.unread, []
    for report in fresh:
        incident.tell("reported", describe(report))
    if incident.known.back_in_service:
        # The node serves again: what is said of it now is of the next look, unless the burn-in says it.
        incident.later += [report for report in fresh if not report.burn_in_failed]
        fresh = [report for report in fresh if report.burn_in_failed]
    incident.read += fresh
    if any(report.burn_in_failed for report in fresh):
        # What the node passed before is no answer to what it failed since.
        passed: dict[str, object] = {
            "quarantine_room": False,
            "retest": None,
            "burn_in": None,
            "disrupted": False,
            "fault_gone": False,
            "drained": False,
        }
        again = passed if incident.known.back_in_service else {}
        incident.learn(examination=None, job_told=False, job_answered=False, back_in_service=False, **again)
    elif any(_asks_for_a_look(incident, report) for report in fresh) and not incident.known.job_answered:
        incident.learn(examination=None)
    incident.codes += [report.xid for report in fresh if report.xid is not None]


def _asks_for_a_look(incident: Incident, report: Report) -> bool:
    """Before the quarantine every report does; afterwards one that says the fault is gone, or names another code."""
    if not incident.known.quarantined and not incident.known.job_told:
        return True
    return report.resolved or (report.xid is not None and report.xid not in incident.codes)


def hear_job(incident: Incident) -> None:
    """Act on what the job's recovery said."""
    if incident.failed_burn_in is not None:
        failed, incident.failed_burn_in = incident.failed_burn_in, None
        incident.tell("failed burn-in", failed.evidence)
        if failed.instance_id == incident.node.instance_id:
            # Its own checks have passed: only what the group showed can say what is wrong with it.
            incident.read.append(Report(source=failed.job, key="burn-in", what=failed.evidence, burn_in_failed=True))
            incident.learn(
                examination=None,
                job_answered=False,
                back_in_service=False,
                quarantine_room=False,
                retest=None,
                disrupted=False,
                fault_gone=False,
            )
        else:
            incident.hand_back_spare(failed.instance_id, failed.evidence)
    if incident.job_resumed is not None and not incident.known.job_done:
        end = incident.job_resumed
        words = f"resumed at step {end.step}" if end.resumed else f"not resumed: {end.reason}"
        incident.learn(job_done=True, job_outcome=words)
        incident.lost_minutes = end.lost_minutes
