"""TrainJob of Kubeflow Trainer v2: it makes a JobSet of its own name, and that one restarts the ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from activities.jobs.kubernetes_kinds.job_set import (
    ended_set,
    pod_name_in_set,
    restarts_left_of_set,
    shape_of_set,
    templates_of_set,
)
from activities.jobs.kubernetes_kinds.workload import Cause, Ended, Family, Placement, Template, ended_by, spec_of
from activities.jobs.lint import JobShape
from activities.kubernetes import JOB_SET, TRAIN_JOB, Object

RESTART_SETTING = "spec.template.spec.failurePolicy.maxRestarts=10 in its (Cluster)TrainingRuntime"


class TrainJobKind:
    """A TrainJob with its JobSet, which is absent until the operator has made it."""

    kind = TRAIN_JOB
    child = JOB_SET

    def pod_selector(self, name: str) -> str:
        return f"jobset.sigs.k8s.io/jobset-name={name}"

    def pod_name(self, family: Family) -> re.Pattern[str]:
        return pod_name_in_set(family.child or family.top)

    def templates(self, family: Family) -> list[Template]:
        return templates_of_set(family.child)

    def shape(self, family: Family, gpu_resource: str) -> JobShape:
        name = family.top["metadata"]["name"]
        if family.child is None:
            return JobShape(f"TrainJob {name}", None, RESTART_SETTING)
        return shape_of_set(family.child, f"JobSet {name} of TrainJob {name}", RESTART_SETTING, gpu_resource)

    def restarts_left(self, family: Family, pods: Sequence[Object]) -> int | None:
        return restarts_left_of_set(family.child)

    def ended(self, family: Family) -> Ended | None:
        return ended_by(family.top, Cause()) or (ended_set(family.child) if family.child else None)

    def suspended(self, family: Family) -> bool:
        return bool(spec_of(family.top).get("suspend"))

    def suspend(self, yes: bool) -> Object:
        return {"spec": {"suspend": yes}}

    def settled(self, family: Family) -> bool:
        """Trainer's webhook lets overrides change when the JobSet has no active Job left."""
        jobs = (family.child or {}).get("status", {}).get("replicatedJobsStatus") or []
        return not any(one.get("active") for one in jobs)

    def place(self, family: Family, placement: Placement) -> Object:
        """Trainer has an override of its pods for this; a release that calls it otherwise drops it, which shows afterwards."""
        targets = [{"name": one.name} for one in self.templates(family)]
        overrides: list[dict[str, Any]] = list(spec_of(family.top).get("podSpecOverrides") or [])
        others = [one for one in overrides if placement.key not in (one.get("nodeSelector") or {})]
        ours = {"targetJobs": targets, **placement.on({})}
        return {"spec": {"podSpecOverrides": [*others, ours]}}
