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
from activities.names import KUBE

RESTART_SETTING = "spec.template.spec.failurePolicy.maxRestarts=10 in its (Cluster)TrainingRuntime"

OVERRIDES = ("podSpecOverrides", "podTemplateOverrides", "runtimePatches")
"""Where a TrainJob changes the pods of its runtime: Trainer 2.0, 2.1 and 2.2. Source: trainjob_types.go of each."""


class TrainJobKind:
    """A TrainJob with its JobSet, which is absent until the operator has made it."""

    kind = TRAIN_JOB
    child = JOB_SET
    movable_since: tuple[int, int] | None = None

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
        """Each release of Trainer has its own field for this, and the API drops those that it does not know."""
        names = [one.name for one in self.templates(family)]
        targets, part = [{"name": name} for name in names], placement.on({})
        jobs = [{"name": name, "template": {"spec": {"template": {"spec": part}}}} for name in names]
        ours = {
            "podSpecOverrides": {"targetJobs": targets, **part},
            "podTemplateOverrides": {"targetJobs": targets, "spec": part},
            "runtimePatches": {"manager": KUBE, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}},
        }
        return {"spec": {key: [*_of_others(family.top, key, placement), one] for key, one in ours.items()}}

    def placed(self, family: Family, placement: Placement) -> bool:
        return any(_asks(one, placement) for key in OVERRIDES for one in spec_of(family.top).get(key) or [])


def _of_others(top: Object, key: str, placement: Placement) -> list[dict[str, Any]]:
    return [one for one in spec_of(top).get(key) or [] if not _asks(one, placement)]


def _asks(override: Object, placement: Placement) -> bool:
    """Whether an override, whatever its form, asks for the label of a placement."""
    template = ((override.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
    jobs = [((one.get("template") or {}).get("spec") or {}).get("template") or {} for one in template.get("replicatedJobs") or []]
    specs = [override, override.get("spec") or {}, *((one.get("spec") or {}) for one in jobs)]
    return any(placement.asked_by(one) for one in specs)
