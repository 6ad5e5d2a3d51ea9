"""Nodes without machines: kwok keeps bare Node objects Ready, so that a thousand of them cost one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.lab.kube.control_plane import ControlPlane


class Kwok:
    """kwok against a control plane."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane

    async def start(self) -> None:
        """Start it."""
