"""Kubernetes Job: its controller makes a new pod for one that failed, until `backoffLimit` is reached."""

from __future__ import annotations

import re
from collections.abc import Sequence

from activities.jobs.kubernetes_kinds.workload import (
    NODE_LOSS,
    Cause,
    Ended,
    Family,
    Placement,
    Template,
    condition,
    ended_by,
    job_template,
    rank_commands,
    spec_of,
    templates_placed,
)
from activities.jobs.lint import JobShape, Trap
from activities.kubernetes import JOB, Object

BACKOFF_LIMIT = 6
"""What `spec.backoffLimit` is where it is left out. Source: Kubernetes API reference, JobSpec."""

MOVABLE_SINCE = (1, 36)
"""From here on a Job that has started and is suspended may be told other nodes. Source: feature gate
MutableSchedulingDirectivesForSuspendedJobs, on by default since 1.36; before it only one that has never started."""


class JobKind:
    """A Job that nothing else owns."""

    kind = JOB
    child = None
    movable_since: tuple[int, int] | None = MOVABLE_SINCE

    def pod_selector(self, name: str) -> str:
        return f"batch.kubernetes.io/job-name={name}"

    def pod_name(self, family: Family) -> re.Pattern[str]:
        indexed = spec_of(family.top).get("completionMode") == "Indexed"
        return re.compile(rf"^{re.escape(family.top['metadata']['name'])}{'-[0-9]+' if indexed else ''}-[a-z0-9]{{5}}$")

    def templates(self, family: Family) -> list[Template]:
        return [job_template(family.top["metadata"]["name"], spec_of(family.top))]

    def shape(self, family: Family, gpu_resource: str) -> JobShape:
        spec = spec_of(family.top)
        per_index = spec.get("backoffLimitPerIndex")
        setting = "spec.backoffLimit=6" if per_index is None else "spec.backoffLimitPerIndex=6"
        return JobShape(
            controller=f"Job {family.top['metadata']['name']}",
            restarts_allowed=_limit(spec),
            restart_setting=setting,
            command=rank_commands(self.templates(family), gpu_resource),
            traps=traps_of_job(spec, "spec"),
        )

    def restarts_left(self, family: Family, pods: Sequence[Object]) -> int | None:
        """Failed pods count, and restarts inside a pod too where it restarts its containers itself."""
        spec, status = spec_of(family.top), family.top.get("status", {})
        if spec.get("backoffLimitPerIndex") is not None:
            return _left_of_worst_index(spec, pods)
        inside = sum(
            int(one.get("restartCount") or 0) for pod in pods for one in pod.get("status", {}).get("containerStatuses") or []
        )
        return max(0, _limit(spec) - int(status.get("failed") or 0) - inside)

    def ended(self, family: Family) -> Ended | None:
        return ended_by(family.top, Cause(failed=("Failed", "FailureTarget")))

    def suspended(self, family: Family) -> bool:
        return bool(spec_of(family.top).get("suspend"))

    def suspend(self, yes: bool) -> Object:
        return {"spec": {"suspend": yes}}

    def settled(self, family: Family) -> bool:
        """The API lets a template change when no pod is active and the controller has said that the Job is suspended."""
        status = family.top.get("status", {})
        return not status.get("active") and (not status.get("startTime") or condition(family.top, "Suspended") is not None)

    def place(self, family: Family, placement: Placement) -> Object:
        return {"spec": {"template": {"spec": placement.on(self.templates(family)[0].spec)}}}

    def placed(self, family: Family, placement: Placement) -> bool:
        return templates_placed(self.templates(family), placement)


def _limit(spec: Object) -> int:
    per_index = spec.get("backoffLimitPerIndex")
    return int(spec.get("backoffLimit", BACKOFF_LIMIT) if per_index is None else per_index)


def _left_of_worst_index(spec: Object, pods: Sequence[Object]) -> int:
    """The controller counts the failures of an index in an annotation of its newest pod."""
    key = "batch.kubernetes.io/job-index-failure-count"
    counts = [int((pod["metadata"].get("annotations") or {}).get(key) or 0) for pod in pods]
    return max(0, _limit(spec) - max(counts, default=0))


def traps_of_job(spec: Object, place: str) -> tuple[Trap, ...]:
    """Return what in a Job's spec ends it on a node fault, or keeps it on the bad node. `place` is the spec's own place."""
    found = []
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or []:
        kinds = [one.get("type") for one in rule.get("onPodConditions") or []]
        if rule.get("action") in ("FailJob", "FailIndex") and NODE_LOSS in kinds:
            found.append(
                Trap(
                    f"a pod that loses its node ends the Job ({rule['action']} on {NODE_LOSS} in {place}.podFailurePolicy)",
                    "make that rule's action Ignore",
                )
            )
    if ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") == "OnFailure":
        found.append(
            Trap(
                "a rank that fails is started again on the same node, also a bad one",
                f"set {place}.template.spec.restartPolicy=Never, so that a new pod is scheduled",
            )
        )
    return tuple(found)
