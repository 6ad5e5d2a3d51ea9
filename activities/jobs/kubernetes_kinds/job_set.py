"""JobSet: when one of its Jobs fails, all are made again, until `failurePolicy.maxRestarts` is reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy

from activities.jobs.kubernetes_kinds.job import traps_of_job
from activities.jobs.kubernetes_kinds.workload import (
    Cause,
    Ended,
    Family,
    Placement,
    Template,
    ended_by,
    job_template,
    rank_commands,
    spec_of,
    templates_placed,
)
from activities.jobs.kubernetes_pods import gpus_asked
from activities.jobs.lint import JobShape, Trap
from activities.kubernetes import JOB_SET, Object

RESTART_SETTING = "spec.failurePolicy.maxRestarts=10"

UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"
"""Action of a failure rule that restarts without a bound. Source: JobSet API, FailurePolicyAction."""


class JobSetKind:
    """A JobSet that nothing else owns."""

    kind = JOB_SET
    child = None
    movable_since: tuple[int, int] | None = None

    def pod_selector(self, name: str) -> str:
        return f"jobset.sigs.k8s.io/jobset-name={name}"

    def pod_name(self, family: Family) -> re.Pattern[str]:
        return pod_name_in_set(family.top)

    def templates(self, family: Family) -> list[Template]:
        return templates_of_set(family.top)

    def shape(self, family: Family, gpu_resource: str) -> JobShape:
        name = f"JobSet {family.top['metadata']['name']}"
        return shape_of_set(family.top, name, RESTART_SETTING, gpu_resource)

    def restarts_left(self, family: Family, pods: Sequence[Object]) -> int | None:
        return restarts_left_of_set(family.top)

    def ended(self, family: Family) -> Ended | None:
        return ended_set(family.top)

    def suspended(self, family: Family) -> bool:
        return bool(spec_of(family.top).get("suspend"))

    def suspend(self, yes: bool) -> Object:
        return {"spec": {"suspend": yes}}

    def settled(self, family: Family) -> bool:
        return True

    def place(self, family: Family, placement: Placement) -> Object:
        """Its webhook lets node selector and tolerations of a suspended one change, and hands them to the Jobs at its start."""
        jobs = deepcopy(spec_of(family.top).get("replicatedJobs") or [])
        for job in jobs:
            spec = job["template"]["spec"]["template"]["spec"]
            spec.update(placement.on(spec))
        return {"spec": {"replicatedJobs": jobs}}

    def placed(self, family: Family, placement: Placement) -> bool:
        return templates_placed(self.templates(family), placement)


def templates_of_set(item: Object | None) -> list[Template]:
    """Return the pod templates of a JobSet's Jobs, by the names of its replicated jobs."""
    jobs = spec_of(item).get("replicatedJobs") or []
    return [job_template(job["name"], job["template"].get("spec") or {}, int(job.get("replicas", 1))) for job in jobs]


def pod_name_in_set(item: Object) -> re.Pattern[str]:
    """Return what names of a JobSet's pods look like: set, replicated job, job index, pod index."""
    jobs = "|".join(re.escape(one.name) for one in templates_of_set(item)) or "[a-z0-9-]+"
    return re.compile(rf"^{re.escape(item['metadata']['name'])}-({jobs})-[0-9]+(-[0-9]+)?-[a-z0-9]{{5}}$")


def shape_of_set(item: Object, controller: str, setting: str, gpu_resource: str) -> JobShape:
    """Return what a JobSet's definition says about faults; without a failure policy any failed Job fails it."""
    policy = spec_of(item).get("failurePolicy") or {}
    traps: list[Trap] = []
    for rule in policy.get("rules") or []:
        if rule.get("action") == "FailJobSet":
            when = ", ".join(rule.get("onJobFailureReasons") or []) or "any failure"
            traps.append(
                Trap(f"a failed Job ends the JobSet (FailJobSet on {when})", "narrow that rule of spec.failurePolicy.rules")
            )
    for job in spec_of(item).get("replicatedJobs") or []:
        for trap in traps_of_job(job["template"].get("spec") or {}, f"replicated job {job['name']}: spec"):
            if trap not in traps:
                traps.append(trap)
    return JobShape(
        controller=controller,
        restarts_allowed=None if _uncounted(policy) else int(policy.get("maxRestarts", 0)),
        restart_setting=setting,
        command=rank_commands([one for one in templates_of_set(item) if gpus_asked(one.spec, gpu_resource)], gpu_resource),
        traps=tuple(traps),
    )


def restarts_left_of_set(item: Object | None) -> int | None:
    """Return what is left of a JobSet's restarts; only those count that its rules let count."""
    policy, status = spec_of(item).get("failurePolicy") or {}, (item or {}).get("status", {})
    if item is None or _uncounted(policy):
        return None
    used = status.get("restartsCountTowardsMax", status.get("restarts", 0)) if policy.get("rules") else status.get("restarts", 0)
    return max(0, int(policy.get("maxRestarts", 0)) - int(used or 0))


def ended_set(item: Object) -> Ended | None:
    """Return how a JobSet ended."""
    return ended_by(item, Cause(complete=("Completed",)))


def _uncounted(policy: Object) -> bool:
    rules = policy.get("rules") or []
    return any(
        one.get("action") == UNCOUNTED and not one.get("onJobFailureReasons") and not one.get("targetReplicatedJobs")
        for one in rules
    )
