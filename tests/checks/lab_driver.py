"""Reads the GPUs of the lab's driver as a node does: NVML's own bindings in a process of their own, over a GPU state file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from infra.lab.hardware import fresh_gpus, hardware_of

REPOSITORY = Path(__file__).resolve().parents[2]
READ = "import json; from checks.probes.nvml import read_nvml; print(json.dumps(read_nvml(60, {deep}).to_json()))"

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, CORRUPTED_INFOROM, GPU_IS_LOST = 3, 4, 13, 14, 15
VERSION_MISMATCH, UNKNOWN = 25, 999

Gpus = list[dict[str, Any]]
Readings = list[dict[str, Any]]


def read_lab_gpus(
    folder: Path, change: Callable[[Gpus], None] | None = None, instance_type: str = "p5.48xlarge", deep: bool = False
) -> Readings:
    """The readings of every GPU, as [state, value, detail], after `change` has changed their state."""
    gpus = fresh_gpus(hardware_of(instance_type), "seed")
    if change:
        change(gpus)
    state = folder / "var/lib/lab/gpus.json"
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps({"driver": "580.95.05", "cuda": 13000, "gpus": gpus, "processes": []}))
    paths = (REPOSITORY / "infra/lab/nvidia", REPOSITORY, Path(pynvml.__file__).parent)
    environment = {
        "HOTSPARE_HOST_ROOT": str(folder),
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
    }
    command = [sys.executable, "-c", READ.format(deep=deep)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    document = json.loads(done.stdout)
    assert document["outcome"] == "read", document["detail"]
    return [gpu["values"] for gpu in document["gpus"]]
