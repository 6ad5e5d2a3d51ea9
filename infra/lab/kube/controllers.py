"""The real job controllers, started against a control plane: JobSet, Kubeflow's training operator, Trainer and Kueue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.lab.kube.control_plane import ControlPlane


class Controllers:
    """What runs beside the control plane and makes pods of jobs."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
