"""A lab in another process, as commands see it: found by its folder, asked over its control port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx

from infra.lab.faults import Fault
from infra.lab.processes import kill, marked_processes

LAB_FILE = "lab.json"
TOKEN_FILE = "control.token"
_TIMEOUT_S = 30.0
_DOWN_DEADLINE_S = 60.0


class NoLab(Exception):
    """No lab runs there; the text says what to type."""


class LabRefused(Exception):
    """The lab did not do what it was asked; the text says why."""


def default_folder() -> Path:
    """Where a lab lives unless told otherwise: under the user's state folder (XDG Base Directory Specification)."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "hotspare" / "lab"


class RemoteLab:
    """The lab of a folder. Every method raises NoLab when none runs there."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def about(self) -> dict[str, Any]:
        """Return what the lab wrote about itself when it came up: pid, control URL, addresses, config, nodes."""
        try:
            about: dict[str, Any] = json.loads((self.folder / LAB_FILE).read_text())
        except FileNotFoundError:
            raise NoLab(f"no lab runs in {self.folder}; start one with: hotspare lab up --folder {self.folder}") from None
        return about

    def environment(self) -> dict[str, str]:
        """Return the variables that a process needs to work with the lab."""
        environment: dict[str, str] = self.about()["environment"]
        return environment

    def status(self) -> dict[str, Any]:
        """Return the lab's state, as `Lab.status` does."""
        status: dict[str, Any] = self._ask("GET", "/status")
        return status

    def inject(self, node: str, fault: Fault) -> list[str]:
        """Give a node a fault; returns the kernel lines that were printed. Raises LabRefused."""
        lines: list[str] = self._ask("POST", "/inject", {"node": node, "fault": fault.to_json()})["lines"]
        return lines

    def cure(self, node: str) -> None:
        """Take every fault from a node. Raises LabRefused."""
        self._ask("POST", "/cure", {"node": node})

    def down(self) -> None:
        """Take the lab down and return when its process is gone. What a killed lab left behind is cleared away."""
        about = self.about()
        try:
            self._ask("POST", "/down")
        except NoLab:
            self._clear_after_crash(about)
            return
        deadline = time.monotonic() + _DOWN_DEADLINE_S
        while (self.folder / LAB_FILE).exists():
            if time.monotonic() > deadline:
                raise LabRefused(f"the lab (process {about['pid']}) does not end; see {self.folder / 'lab.log'}")
            time.sleep(0.05)

    def _clear_after_crash(self, about: dict[str, Any]) -> None:
        pid = about.get("temporal_pid")
        if pid and _is_our_temporal(pid, about["temporal_address"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for node in about["nodes"]:
            for left in marked_processes(Path(node["root"])):
                kill(left)
        (self.folder / LAB_FILE).unlink(missing_ok=True)

    def _ask(self, method: str, path: str, fields: dict[str, Any] | None = None) -> Any:
        about = self.about()
        token = (self.folder / TOKEN_FILE).read_text()
        try:
            with httpx.Client(trust_env=False, timeout=_TIMEOUT_S) as client:
                answer = client.request(
                    method, about["control_url"] + path, json=fields, headers={"Authorization": f"Bearer {token}"}
                )
        except httpx.TransportError as error:
            raise NoLab(
                f"the lab of {self.folder} (process {about['pid']}) does not answer ({error}); "
                f"clear it away with: hotspare lab down --folder {self.folder}"
            ) from error
        if answer.status_code >= 400:
            raise LabRefused(str(answer.json().get("error", answer.text)))
        return answer.json()


def _is_our_temporal(pid: int, address: str) -> bool:
    """Whether the process is still the Temporal server on that address, not another one with a reused id."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    return "start-dev" in words and address.rpartition(":")[2] in words
