"""Which rungs of the ladder are left for a node, and why the others are not."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from activities.host_memory import RungAttempt
from activities.names import FATE_PROBATION
from checks.model import Action
from workflows.decisions.capacity import GIVES_UP_SLOT, slot_refusal
from workflows.decisions.facts import Facts
from workflows.decisions.gates import class_of, mode_of
from workflows.decisions.owners import missing_rung
from workflows.decisions.settings import Mode, PolicySettings
from workflows.decisions.strikes import host_weight

DISRUPTIVE = (Action.RESET_GPU, Action.SOFT_REBOOT, Action.REBOOT_NODE, Action.POWER_CYCLE)
"""Rungs that work on the node in place."""

RESTARTS = (Action.SOFT_REBOOT, Action.REBOOT_NODE, Action.POWER_CYCLE)
"""Rungs during which the node is away: whoever else repairs it would take it for broken and replace it meanwhile."""

FIRST_SXID = 10_000
"""Smallest number of an SXid. Source: NVIDIA open kernel modules 595.45.04, table of NVSwitch errors."""


@dataclass(frozen=True)
class Rungs:
    """The ladder as it stands: what is left, in order, each refusal in words, and what would be left but for observe mode."""

    left: tuple[Action, ...]
    refused: tuple[str, ...] = field(default_factory=tuple)
    observed: tuple[Action, ...] = field(default_factory=tuple)

    def next_in_place(self) -> Action | None:
        """Return the next rung that works on the node itself, if any."""
        return next((rung for rung in self.left if rung in DISRUPTIVE), None)


def rungs_for(facts: Facts, policy: PolicySettings) -> Rungs:
    """Return the rungs left for this incident, with the reason for every rung that is not."""
    left: list[Action] = []
    refused: list[str] = []
    observed: list[Action] = []
    for rung in _ladder(facts, policy):
        reason = _why_not(rung, facts, policy)
        if not reason and mode_of(rung, policy, class_of(facts)) is Mode.OBSERVE:
            observed.append(rung)
            reason = _only_observed(rung, facts, policy)
        if reason:
            refused.append(f"{rung.value}: {reason}")
        else:
            left.append(rung)
    for _ in range(facts.escalations):
        if len(left) > 1:
            refused.append(f"{left[0].value}: a person asked for the next rung")
            left = left[1:]
    return Rungs(tuple(left), tuple(refused), tuple(observed))


def _ladder(facts: Facts, policy: PolicySettings) -> list[Action]:
    opinion = facts.opinion
    if opinion is None:
        return []
    by_code = policy.ladders_by_code.get(code_name(opinion.code)) if opinion.code is not None else None
    ladder = list(by_code if by_code is not None else policy.ladders.get(opinion.fault_class, []))
    if policy.soft_reboot and Action.REBOOT_NODE in ladder and Action.SOFT_REBOOT not in ladder:
        ladder.insert(ladder.index(Action.REBOOT_NODE), Action.SOFT_REBOOT)
    return ladder


def _only_observed(rung: Action, facts: Facts, policy: PolicySettings) -> str:
    if facts.node.instance_type in policy.observe_only_types:
        return f"{facts.node.instance_type} is only observed, nobody has tried it (policy.observe_only_types)"
    return f"its mode is observe: hotspare promote --class {class_of(facts)} --rung {rung.value} --to approve"


def code_name(code: int) -> str:
    """Name a code as settings do. Codes of NVSwitches have five digits, those of GPUs at most three."""
    return f"sxid:{code}" if code >= FIRST_SXID else f"xid:{code}"


def _why_not(rung: Action, facts: Facts, policy: PolicySettings) -> str:
    taken = next((one for one in facts.taken if one.rung is rung), None)
    if taken is not None:
        return f"tried in this incident, {taken.outcome.value}"
    if rung.value in facts.skipped_steps:
        return "a person said to skip it"
    if rung is Action.SOFT_REBOOT and facts.examination and not facts.examination.reachable:
        return "the node does not answer, so it cannot reboot itself"
    if rung is Action.RESET_GPU and facts.node.instance_type not in policy.reset_capable_types:
        return (
            f"not known to work on {facts.node.instance_type or 'this instance type'}; switch it on in policy.reset_capable_types"
        )
    if facts.others.owns and (rung in DISRUPTIVE or rung is Action.REPLACE_NODE):
        return facts.others.owns
    if missing := missing_rung(facts.owned_by, rung):
        return missing
    if facts.no_capacity and rung in DISRUPTIVE:
        return f"the instance is stopped, and EC2 has no capacity to start it: {facts.no_capacity}"
    if rung in GIVES_UP_SLOT and (kept := slot_refusal(facts.slot, facts.now, policy)):
        return kept
    if rung in RESTARTS and facts.others.refused:
        return f"{' and '.join(facts.others.found)} would replace the node meanwhile: {facts.others.refused}"
    if rung not in DISRUPTIVE:
        return ""
    return _given_up(facts, policy) or _over_budget(facts, policy) or _repeated(rung, facts, policy)


def _given_up(facts: Facts, policy: PolicySettings) -> str:
    """Say why nothing in place can mend this host: a GPU that is banned, or too many strikes in the time that counts."""
    if facts.examination is not None and facts.examination.known_bad:
        return f"{facts.examination.known_bad[0]}; nothing in place mends that (see hotspare ledger; --clear lifts it)"
    strikes = host_weight(facts.record, facts.now, policy.strike_half_life_days)
    if strikes < policy.strikes_at_most:
        return ""
    return (
        f"its strikes weigh {strikes:.1f}, the limit is {policy.strikes_at_most:g} "
        f"(each counts half after {policy.strike_half_life_days:g} days)"
    )


def _over_budget(facts: Facts, policy: PolicySettings) -> str:
    window = timedelta(hours=policy.attempts_window_h)
    recent = [
        one for one in _attempts(facts) if one.rung in DISRUPTIVE and facts.now - one.at <= window and one.incident != facts.run
    ]
    spent = len(recent) + sum(1 for one in facts.taken if one.rung in DISRUPTIVE)
    if spent >= policy.attempts_per_node:
        limit = policy.attempts_per_node
        return f"{spent} disruptive attempts on this node within {policy.attempts_window_h:g} h, the limit is {limit}"
    serial = facts.opinion.gpu.serial if facts.opinion else ""
    same_gpu = [one for one in recent if serial and one.gpu_serial == serial]
    if len(same_gpu) >= policy.attempts_per_gpu:
        limit = policy.attempts_per_gpu
        return f"GPU {serial} was treated {len(same_gpu)} times within {policy.attempts_window_h:g} h, the limit is {limit}"
    return ""


def _repeated(rung: Action, facts: Facts, policy: PolicySettings) -> str:
    window_h, what = policy.repeat_window_h, "the same fault came back"
    if facts.record.fate == FATE_PROBATION and policy.probation_h > window_h:
        window_h, what = policy.probation_h, "probation is broken, the same fault came back"
    for past in _attempts(facts):
        recent = facts.now - past.at <= timedelta(hours=window_h)
        if past.rung is rung and recent and _same_fault(past, facts) and past.incident != facts.run:
            return f"{what} within {window_h:g} h of it ({past.at:%Y-%m-%d %H:%M} UTC): one rung up"
    return ""


def _attempts(facts: Facts) -> list[RungAttempt]:
    """Every attempt on this host: under its instance id, and on the same boards while they had another."""
    return [*(facts.examination.elsewhere if facts.examination else []), *facts.record.attempts]


def _same_fault(past: RungAttempt, facts: Facts) -> bool:
    return facts.opinion is not None and past.fault_class == facts.opinion.fault_class
