"""The probe's JSON document as a machine of FakeFleet would print it: its state as findings, diagnosed by the real rules."""

from __future__ import annotations

import time
from dataclasses import asdict
from enum import Enum
from typing import Any

from activities.clients.fake_machine import FakeMachine
from activities.clients.fake_text import bus_id
from checks.kernel_log import read_lines
from checks.model import Action, Finding, GpuRef, Verdict

NO_NVML_AFTER = frozenset({79, 119, 120})


def probe_document(machine: FakeMachine, instance_type: str, settling_s: float, *, no_nvml: bool) -> dict[str, Any]:
    """Build the document of one probe, in the schema of `checks/run_checks.py`."""
    raise NotImplementedError
