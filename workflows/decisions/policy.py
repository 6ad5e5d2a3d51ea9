"""The policy: from the facts of an incident to its next step, with the reason. `RUNBOOK` reads top to bottom like the runbook.

Pure: the same facts and settings always give the same step. Each guard answers with a step or passes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from workflows.decisions import guards_before as before
from workflows.decisions import guards_repair as repair
from workflows.decisions.facts import Facts, Step, StepKind
from workflows.decisions.giving_up import replace_by_drain
from workflows.decisions.ladder import Rungs, rungs_for
from workflows.decisions.renewing import renew
from workflows.decisions.settings import PolicySettings

Guard = Callable[[Facts, PolicySettings, Rungs], Step | None]

RUNBOOK: tuple[Guard, ...] = (
    before.person_owns,
    before.stuck,
    renew,
    before.fate_is_settled,
    before.look_first,
    before.left_by_earlier,
    before.nothing_wrong,
    before.only_observe,
    before.opted_out,
    before.part_of_a_storm,
    before.only_we_cannot_reach_it,
    before.left_to_its_owner,
    before.diagnostics,
    before.for_people,
    before.restart_the_job,
    before.at_the_jobs_boundary,
    before.quarantine,
    before.evidence,
    before.tell_job,
    repair.resume_first,
    repair.prove_the_spare,
    repair.await_capacity,
    repair.await_job_after_swap,
    repair.check_the_repair,
    repair.repaired,
    repair.a_test_without_a_result,
    repair.next_rung,
    replace_by_drain,
    repair.cannot_mend,
    repair.close,
)
"""Asked in this order; the first that answers decides."""


def next_step(facts: Facts, policy: PolicySettings) -> Step:
    """Return the incident's next step and why."""
    policy = policy.for_pool(facts.node.pool_name()).for_type(facts.node.instance_type)
    rungs = rungs_for(facts, policy)
    for guard in RUNBOOK:
        step = guard(facts, policy, rungs)
        if step is not None:
            return with_plan(step, rungs).model_copy(update={"policy_hash": policy_hash(policy)})
    raise AssertionError("the last guard always answers")


def with_plan(step: Step, rungs: Rungs) -> Step:
    """Add to a question for approval what would follow, and what else a person can say."""
    if step.kind is not StepKind.ASK_PERSON or step.rung is None:
        return step
    after = [rung.value for rung in rungs.left if rung is not step.rung]
    plan = f"plan: {step.rung.value}, and where it does not help {', then '.join(after) or 'a person'}"
    others = "instead of approve: skip leaves this rung out, escalate takes the next one, take-over makes the node yours"
    unanswered = "unanswered, the quarantine stays and nothing is disrupted"
    return step.model_copy(update={"because": [*step.because, plan, others, unanswered]})


def policy_hash(policy: PolicySettings) -> str:
    """Return a short hash of the settings, so that a decision in history names the policy that made it."""
    return hashlib.sha256(policy.model_dump_json().encode()).hexdigest()[:12]
