"""Decisions of closed incidents: written so that they can be made again, and made again under another policy.

What is written of a decision is all that the policy reads, and little more: no findings, no past faults, no addresses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from activities.host_memory import ClosedIncident, HostRecord
from activities.inventory import Node
from activities.message import Message
from activities.names import FATE_PROBATION
from activities.node import Examination, Opinion
from checks.model import Action, Verdict
from workflows.decisions.facts import Facts, Step, StepKind
from workflows.decisions.policy import next_step
from workflows.decisions.settings import PolicySettings

ATTEMPTS_KEPT = 20
"""Attempts on the node that go with a decision, newest last. Hotspare default: many times any attempt budget."""

NODE_PARTS = {"instance_id", "name", "role", "instance_type", "pool", "zone", "opt_out"}
SEEN_PARTS = {"reachable", "verdict", "taken_at", "why_unreachable", "known_bad", "elsewhere"}
STRIKE_PARTS = {"strikes", "struck", "last_incident_closed_at"}

NO_OPINION = Opinion(fault_class="none", action=Action.NONE)


class Recorded(Message):
    """A decision as it was made. `assumed` says what an older record did not keep and was put in."""

    facts: Facts
    step: Step
    assumed: str = ""


class Difference(Message):
    """A decision that another policy makes otherwise.

    `first` is false for what came after an incident's first difference: its facts are those of the course that was taken.
    `already` says that the present policy decides so too, so that the change was made before.
    """

    incident: str
    run_id: str
    node: str
    at: datetime
    was: Step
    would_be: Step
    first: bool = True
    already: bool = False
    assumed: str = ""


class NotRebuilt(Message):
    """Decisions that cannot be made again, and why."""

    incident: str
    run_id: str
    closed_at: datetime
    count: int
    why: str


class Replay(Message):
    """What another policy would have decided."""

    incidents: int = 0
    decisions: int = 0
    assumed: int = 0
    differences: list[Difference] = []
    not_rebuilt: list[NotRebuilt] = []

    @property
    def unknown(self) -> int:
        """Decisions about which nothing can be said."""
        return sum(one.count for one in self.not_rebuilt)


class CannotRebuild(ValueError):
    """A record does not hold what is needed to decide again; the message says what."""


def recorded(facts: Facts, step: Step) -> str:
    """Write a decision down as one line of JSON."""
    kept = facts.model_dump(mode="json", exclude_defaults=True, exclude={"node", "record", "examination", "incident", "cluster"})
    kept["node"] = facts.node.model_dump(mode="json", exclude_defaults=True, include=NODE_PARTS)
    attempts = facts.record.attempts[-ATTEMPTS_KEPT:]
    kept["attempts"] = [one.model_dump(mode="json", exclude_defaults=True) for one in attempts]
    struck = facts.record.model_dump(mode="json", exclude_defaults=True, include=STRIKE_PARTS)
    kept |= {"strikes": struck} if facts.record.strikes else {}
    kept |= {"fate": FATE_PROBATION} if facts.record.fate == FATE_PROBATION else {}
    if facts.examination is not None:
        kept["seen"] = facts.examination.model_dump(mode="json", exclude_defaults=True, include=SEEN_PARTS)
    answer = step.model_dump(mode="json", exclude_defaults=True)
    return json.dumps({"facts": kept, "step": answer}, separators=(",", ":"))


def repeats(earlier: str, later: str) -> bool:
    """Whether two decisions in a row came to the same step for the same reasons, as while a person is waited for."""
    return bool(json.loads(earlier)["step"] == json.loads(later)["step"])


def rebuild(text: str, closed: ClosedIncident) -> Recorded:
    """Read a decision back. Raises CannotRebuild saying what is wrong with the record."""
    try:
        document = json.loads(text)
        kept, step = dict(document["facts"]), Step.model_validate(document["step"])
    except (ValueError, KeyError, TypeError) as error:
        raise CannotRebuild(f"the record is not a decision: {error}") from error
    assumed = "" if "node" in kept else "node, past attempts and what the probe saw are not in this older record"
    if assumed:
        kept |= _assumed_of_older(kept, step, closed)
    try:
        return Recorded(facts=_facts(kept, closed), step=step, assumed=assumed)
    except (ValidationError, KeyError, TypeError) as error:
        raise CannotRebuild(f"the facts cannot be read: {error}") from error


def _facts(kept: dict[str, Any], closed: ClosedIncident) -> Facts:
    node = Node.model_validate(kept.pop("node"))
    past = {**kept.pop("strikes", {}), "attempts": kept.pop("attempts"), "fate": kept.pop("fate", "")}
    record = HostRecord.model_validate({"instance_id": node.instance_id, **past})
    seen = kept.pop("seen", None)
    known = {"run": closed.run_id, **kept}
    facts = Facts.model_validate(
        {**known, "cluster": closed.cluster, "incident": closed.incident, "node": node, "record": record}
    )
    if seen is None:
        return facts
    examination = Examination.model_validate({**seen, "opinion": facts.opinion or NO_OPINION})
    return facts.model_copy(update={"examination": examination})


def _assumed_of_older(kept: dict[str, Any], step: Step, closed: ClosedIncident) -> dict[str, Any]:
    """What an older record most likely stood for; whether it did is seen by deciding again under the present policy."""
    assumed: dict[str, Any] = {"node": {"instance_id": closed.instance_id, "name": closed.instance_id}, "attempts": []}
    if step.kind is not StepKind.EXAMINE and kept.get("opinion"):
        well = kept["opinion"].get("action") == Action.NONE.value
        verdict = Verdict.OK if well else Verdict.CRITICAL
        assumed["seen"] = {"reachable": True, "verdict": verdict.value, "taken_at": kept.get("now")}
    return assumed


def replay(closed: Iterable[ClosedIncident], policy: PolicySettings, present: PolicySettings) -> Replay:
    """Decide again what closed incidents decided, under `policy`. `present` tells what differs already from what is new."""
    outcome = Replay()
    for incident in closed:
        outcome = _with_incident(outcome, incident, policy, present)
    return outcome


def _with_incident(outcome: Replay, closed: ClosedIncident, policy: PolicySettings, present: PolicySettings) -> Replay:
    rebuilt: list[Recorded] = []
    missing: list[NotRebuilt] = []
    left_out = closed.decisions_made - len(closed.decisions)
    if left_out > 0:
        missing.append(_missing(closed, f"only the last {len(closed.decisions)} decisions of an incident are kept", left_out))
    for text in closed.decisions:
        try:
            rebuilt.append(_checked(rebuild(text, closed), policy, present))
        except CannotRebuild as error:
            missing.append(_missing(closed, str(error)))
    differences: list[Difference] = []
    for one in rebuilt:
        would_be = next_step(one.facts, policy)
        if same(one.step, would_be):
            continue
        already = same(next_step(one.facts, present), would_be)
        differences.append(_difference(closed, one, would_be, first=not differences, already=already))
    return Replay(
        incidents=outcome.incidents + 1,
        decisions=outcome.decisions + len(rebuilt),
        assumed=outcome.assumed + sum(1 for one in rebuilt if one.assumed),
        differences=[*outcome.differences, *differences],
        not_rebuilt=[*outcome.not_rebuilt, *missing],
    )


def _checked(one: Recorded, policy: PolicySettings, present: PolicySettings) -> Recorded:
    """Let an older record count only where what was put in leads to the step that was taken, and no pool decides."""
    if one.assumed and (policy.pools or not same(one.step, next_step(one.facts, present))):
        raise CannotRebuild(one.assumed)
    return one


def _difference(closed: ClosedIncident, one: Recorded, would_be: Step, *, first: bool, already: bool) -> Difference:
    return Difference(
        incident=closed.incident,
        run_id=closed.run_id,
        node=one.facts.node.name,
        at=one.facts.now,
        was=one.step,
        would_be=would_be,
        first=first,
        already=already,
        assumed=one.assumed,
    )


def _missing(closed: ClosedIncident, why: str, count: int = 1) -> NotRebuilt:
    return NotRebuilt(incident=closed.incident, run_id=closed.run_id, closed_at=closed.closed_at, count=count, why=why)


def same(one: Step, other: Step) -> bool:
    """Whether two steps do the same: words and the policy's hash aside, the times that they wait included."""
    return _deed(one) == _deed(other)


def _deed(step: Step) -> tuple[object, ...]:
    asked = step.page if step.kind is StepKind.ASK_PERSON else ""
    return step.kind, step.rung, step.outcome, asked, step.deadline_s, step.settling_s


def in_words(step: Step) -> str:
    """Say what a step does, with the times that it waits."""
    asked = step.page if step.kind is StepKind.ASK_PERSON else ""
    what = step.outcome or asked or (step.rung.value if step.rung else "")
    limit = "asked again after" if step.kind is StepKind.ASK_PERSON else "within"
    times = [f"{limit} {step.deadline_s:g} s"] if step.deadline_s else []
    times += [f"settling {step.settling_s:g} s"] if step.settling_s else []
    said = f"{step.kind.value}: {what}" if what else step.kind.value
    return f"{said} ({', '.join(times)})" if times else said
