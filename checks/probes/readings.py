"""What NVML says, value by value, each tagged: a value that could not be read is never zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

OK = "ok"
NOT_SUPPORTED = "not_supported"
ERROR = "error"
LOST = "lost"

NO_PERMISSION = "this user may not ask for it"
"""Detail of an error that says nothing of the GPU: only root may ask."""


@dataclass(frozen=True)
class Reading:
    """One value: `state` is ok, not_supported, error or lost; `value` is None unless ok; `detail` says why not."""

    state: str
    value: Any = None
    detail: str = ""

    def number(self) -> Optional[int]:
        """The value as a whole number, None unless it was read."""
        return int(self.value) if self.state == OK and isinstance(self.value, (int, float)) else None

    def text(self) -> str:
        """The value as text, empty unless it was read."""
        return str(self.value) if self.state == OK else ""


@dataclass(frozen=True)
class GpuReadings:
    """All readings of one GPU by name; see `checks.probes.nvml` for the names."""

    index: int
    values: dict[str, Reading]

    def get(self, name: str) -> Reading:
        """Return a reading; one that was never taken reads as an error."""
        return self.values.get(name) or Reading(ERROR, detail="not read")


@dataclass(frozen=True)
class NvmlState:
    """One look at NVML.

    `outcome` is "read", "no_library", "no_driver", "mismatch" (library and driver differ), "hung", "error" or "skipped"; `detail`
    says more. `gpus` has one entry per GPU that NVML counts, and is empty unless the outcome is "read".
    """

    outcome: str
    detail: str = ""
    driver_version: str = ""
    gpus: tuple[GpuReadings, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a pipe or a document."""
        return {
            "outcome": self.outcome,
            "detail": self.detail,
            "driver_version": self.driver_version,
            "gpus": [
                {"index": gpu.index, "values": {name: _parts(one) for name, one in gpu.values.items()}} for gpu in self.gpus
            ],
        }


def state_from_json(document: dict[str, Any]) -> NvmlState:
    """Rebuild what `NvmlState.to_json` gave."""
    return NvmlState(
        document["outcome"],
        document["detail"],
        document["driver_version"],
        tuple(
            GpuReadings(gpu["index"], {name: Reading(*parts) for name, parts in gpu["values"].items()})
            for gpu in document["gpus"]
        ),
    )


def _parts(reading: Reading) -> list[Any]:
    """Without a detail that says nothing: there are hundreds of readings on a node."""
    return [reading.state, reading.value, reading.detail] if reading.detail else [reading.state, reading.value]
