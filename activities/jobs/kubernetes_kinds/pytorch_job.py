"""PyTorchJob of Kubeflow's training operator: a failed pod is made again, or restarts its container, by `restartPolicy`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from activities.jobs.kubernetes_kinds.workload import (
    Cause,
    Ended,
    Family,
    Placement,
    Template,
    ended_by,
    rank_commands,
    spec_of,
    templates_placed,
)
from activities.jobs.lint import JobShape, Trap
from activities.kubernetes import PYTORCH_JOB, Object, annotations_of

AUTO_RESUME = "sagemaker.amazonaws.com/enable-job-auto-resume"
"""Annotation by which HyperPod restarts the job itself after it has replaced a node. Source: SageMaker Developer Guide,
"Running jobs using kubectl"."""

RESTART_SETTING = "spec.pytorchReplicaSpecs.*.restartPolicy=OnFailure and spec.runPolicy.backoffLimit=10"


class PyTorchJobKind:
    """A PyTorchJob."""

    kind = PYTORCH_JOB
    child = None
    movable_since: tuple[int, int] | None = None

    def pod_selector(self, name: str) -> str:
        return f"training.kubeflow.org/job-name={name}"

    def pod_name(self, family: Family) -> re.Pattern[str]:
        return re.compile(rf"^{re.escape(family.top['metadata']['name'])}-(master|worker)-[0-9]+$")

    def templates(self, family: Family) -> list[Template]:
        return [
            Template(name, int(one.get("replicas", 1)), (one.get("template") or {}).get("spec") or {})
            for name, one in sorted(_replicas(family).items())
        ]

    def shape(self, family: Family, gpu_resource: str) -> JobShape:
        traps = tuple(
            Trap(
                f"a {name} that ends with status 1 to 127 fails the job (restartPolicy ExitCode)",
                f"set spec.pytorchReplicaSpecs.{name}.restartPolicy=OnFailure",
            )
            for name, one in sorted(_replicas(family).items())
            if one.get("restartPolicy") == "ExitCode"
        )
        return JobShape(
            controller=f"PyTorchJob {family.top['metadata']['name']}",
            restarts_allowed=_allowed(family),
            restart_setting=RESTART_SETTING,
            command=rank_commands(self.templates(family), gpu_resource),
            traps=traps,
        )

    def restarts_left(self, family: Family, pods: Sequence[Object]) -> int | None:
        """The operator keeps no count: it adds up the restarts of the containers in running pods, and so do we."""
        allowed = _allowed(family)
        if allowed is None:
            return None
        used = sum(
            int(one.get("restartCount") or 0) for pod in pods for one in pod.get("status", {}).get("containerStatuses") or []
        )
        return max(0, allowed - used)

    def ended(self, family: Family) -> Ended | None:
        return ended_by(family.top, Cause(complete=("Succeeded",)))

    def suspended(self, family: Family) -> bool:
        return bool((spec_of(family.top).get("runPolicy") or {}).get("suspend"))

    def suspend(self, yes: bool) -> Object:
        return {"spec": {"runPolicy": {"suspend": yes}}}

    def settled(self, family: Family) -> bool:
        return True

    def place(self, family: Family, placement: Placement) -> Object:
        """Its templates may change at any time; pods made from then on follow them."""
        changed = {one.name: {"template": {"spec": placement.on(one.spec)}} for one in self.templates(family)}
        return {"spec": {"pytorchReplicaSpecs": changed}}

    def placed(self, family: Family, placement: Placement) -> bool:
        return templates_placed(self.templates(family), placement)


def _replicas(family: Family) -> dict[str, Object]:
    return dict(spec_of(family.top).get("pytorchReplicaSpecs") or {})


def _allowed(family: Family) -> int | None:
    """How often the operator starts a failed rank again; a policy that is left out is OnFailure, without a bound."""
    policies = {one.get("restartPolicy") or "OnFailure" for one in _replicas(family).values()}
    limit = (spec_of(family.top).get("runPolicy") or {}).get("backoffLimit")
    if "Never" in policies:
        return 0
    return None if limit is None else int(limit)


def auto_resumes(family: Family) -> bool:
    """Whether HyperPod restarts the job."""
    return annotations_of(family.top).get(AUTO_RESUME, "").lower() == "true"
