"""Runs the checks on a node over its access and reads their one JSON document back into the words of `checks.model`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from activities.inventory import Node
from activities.node_access import NodeAccess
from activities.settings_access import AccessSettings
from checks.catalog import read_overrides
from checks.model import Action, Confidence, Diagnosis, Finding, GpuRef, KernelEvent, Verdict
from checks.parity import Configuration, configuration_from_json
from checks.probes.leftovers import Leftover

DOCUMENT_LIMIT = 4_000_000
"""Characters of a probe's answer. Hotspare default: 200 events and 16 GPUs are about 150,000."""

UNPACK = """import compileall, os, shutil, sys, tarfile, tempfile
archive, target = sys.argv[1:3]
if not os.path.exists(os.path.join(target, "run_checks.py")):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    folder = tempfile.mkdtemp(dir=os.path.dirname(target))
    with tarfile.open(archive) as file:
        file.extractall(folder)
    compileall.compile_dir(folder, quiet=2)
    os.chmod(folder, 0o755)
    try:
        os.rename(folder, target)
    except OSError:
        if os.path.exists(os.path.join(target, "run_checks.py")):
            shutil.rmtree(folder)
        else:
            shutil.rmtree(target)
            os.rename(folder, target)
"""
"""Python for the node: unpack the archive once per digest, byte code included; of two at the same time one wins."""


class ProbeCrashed(Exception):
    """The node answered, but the probe did not end with its document: the monitor is broken, not the node."""


@dataclass(frozen=True)
class ChecksArchive:
    """The archive of `checks/` as it travels to nodes."""

    file: Path
    digest: str


@dataclass(frozen=True)
class ProbeAnswer:
    """One probe of one node. `gpu_processes` is None where they could not be read; `raw` is the document as it came."""

    verdict: Verdict
    boot_id: str
    uptime_s: float | None
    taken_at: datetime
    instance_type: str
    gpus: tuple[GpuRef, ...]
    gpu_processes: int | None
    findings: tuple[Finding, ...]
    events: tuple[KernelEvent, ...]
    diagnosis: Diagnosis
    raw: str = field(repr=False, default="")
    driver_version: str = ""
    configuration: Configuration | None = None
    leftovers: tuple[Leftover, ...] = ()


PAST_S = 60.0
"""For a node's log of days to be read, seconds. Hotspare default: the reader on the node gives up after 45."""


@dataclass(frozen=True)
class PastLog:
    """What a node's log of the days before says. `lines` are fault lines with their Unix time, `boots` the times of its boots.

    `begins` is how far back it goes; `left_out` counts older fault lines that were too many to hand on.
    """

    source: str
    begins: float | None
    boots: tuple[float, ...]
    lines: tuple[tuple[float | None, str], ...]
    left_out: int = 0
    truncated: bool = False


@dataclass(frozen=True)
class ProbeWish:
    """How to look: as the options of `run_checks.py probe` of the same names.

    With `deadline_s` it may take so long at most, where that is shorter than the setting access.probe_deadline_s.
    """

    depth: str = "quick"
    settling_s: float = 0.0
    handled_until: datetime | None = None
    no_nvml: bool = False
    leftovers: bool = False
    deadline_s: float | None = None


class Probe:
    """The checks archive, ready to be run on any node."""

    def __init__(
        self,
        archive: ChecksArchive,
        settings: AccessSettings,
        thresholds: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`overrides` are the settings' own meanings of single codes; raises BadOverride for wrong ones."""
        self._archive = archive
        self._settings = settings
        self._thresholds = dict(thresholds or {})
        self._overrides = {code: dict(said) for code, said in (overrides or {}).items()}
        self.overrides = read_overrides(self._overrides)

    def run(self, access: NodeAccess, node: Node, options: ProbeWish) -> ProbeAnswer:
        """Run the probe; raises NodeUnreachable, DeadlinePassed, ProbeCrashed."""
        command = self._command(node, options)
        limit_s = min(self._settings.probe_deadline_s, options.deadline_s or self._settings.probe_deadline_s)
        answer = access.run(command, limit_s, DOCUMENT_LIMIT)
        if not answer.stdout.strip() and "can't open file" in answer.stderr:
            self._install(access)
            answer = access.run(command, limit_s, DOCUMENT_LIMIT)
        try:
            return read_document(answer.stdout)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            said = (answer.stderr or answer.stdout).strip()[-500:]
            raise ProbeCrashed(
                f"the probe ended with status {answer.exit_status} and no readable document ({error}): {said}"
            ) from error

    def past(self, access: NodeAccess, since: datetime) -> PastLog:
        """Read the fault lines that the node's log has since then; raises as `run`."""
        sudo = ["sudo", "-n"] if self._settings.sudo else []
        command = [*sudo, self._settings.python, f"{self._folder()}/run_checks.py", "past", "--since", f"{since.timestamp():.0f}"]
        answer = access.run(command, PAST_S, DOCUMENT_LIMIT)
        if not answer.stdout.strip() and "can't open file" in answer.stderr:
            self._install(access)
            answer = access.run(command, PAST_S, DOCUMENT_LIMIT)
        try:
            return read_past(answer.stdout)
        except (ValueError, KeyError, TypeError) as error:
            said = (answer.stderr or answer.stdout).strip()[-500:]
            raise ProbeCrashed(f"the log was not read (status {answer.exit_status}, {error}): {said}") from error

    def _command(self, node: Node, wish: ProbeWish) -> list[str]:
        sudo = ["sudo", "-n"] if self._settings.sudo else []
        command = [*sudo, self._settings.python, f"{self._folder()}/run_checks.py", "probe", "--depth", wish.depth]
        command += ["--settling-s", str(wish.settling_s)]
        command += ["--handled-until", str(wish.handled_until.timestamp())] if wish.handled_until else []
        command += ["--asked-at", f"{time.time():.3f}", *(["--no-nvml"] if wish.no_nvml else [])]
        command += ["--leftovers"] if wish.leftovers else []
        command += ["--instance-type", node.instance_type] if node.instance_type else []
        command += ["--thresholds", json.dumps(self._thresholds, sort_keys=True)] if self._thresholds else []
        return command + (["--overrides", json.dumps(self._overrides, sort_keys=True)] if self._overrides else [])

    def _folder(self) -> str:
        return f"{self._settings.cache_dir}/{self._archive.digest}"

    def _install(self, access: NodeAccess) -> None:
        remote = access.put(self._archive.file, self._archive.digest)
        answer = access.run([self._settings.python, "-c", UNPACK, remote, self._folder()], self._settings.command_deadline_s)
        if answer.exit_status != 0:
            raise ProbeCrashed(f"the checks could not be unpacked: {answer.stderr.strip()[-500:]}")


def read_document(text: str) -> ProbeAnswer:
    """Read a probe's document; raises ValueError, KeyError or TypeError for one that is cut, foreign or of another schema."""
    document = json.loads(text)
    if document["schema"] != 1:
        raise ValueError(f"schema {document['schema']!r}, expected 1")
    processes = document["gpu_processes"]
    return ProbeAnswer(
        verdict=Verdict(document["verdict"]),
        boot_id=str(document["boot_id"]),
        uptime_s=float(document["uptime_s"]) if document["uptime_s"] else None,
        taken_at=datetime.fromtimestamp(float(document["taken_at"]), UTC),
        instance_type=str(document.get("instance_type") or ""),
        gpus=tuple(_gpu(entry) for entry in document["gpus"]),
        gpu_processes=None if processes is None else len(processes),
        findings=tuple(_finding(entry) for entry in document["findings"]),
        events=tuple(KernelEvent(**_known(KernelEvent, entry)) for entry in document["events"]),
        diagnosis=_diagnosis(document["diagnosis"]),
        raw=text,
        driver_version=str(document.get("driver_version") or ""),
        configuration=_configuration(document.get("configuration")),
        leftovers=tuple(_leftover(entry) for entry in document.get("leftovers") or ()),
    )


def _leftover(entry: dict[str, Any]) -> Leftover:
    gpus = tuple(int(gpu) for gpu in entry.get("gpus", ()))
    return Leftover(int(entry["pid"]), str(entry["name"]), str(entry.get("run", "")), gpus)


def read_past(text: str) -> PastLog:
    """Read the document of `run_checks.py past`; raises ValueError, KeyError or TypeError for any other."""
    document = json.loads(text)
    if document["schema"] != 1 or document["error"]:
        raise ValueError(document["error"] or f"schema {document['schema']!r}, expected 1")
    return PastLog(
        source=str(document["source"]),
        begins=None if document["begins"] is None else float(document["begins"]),
        boots=tuple(float(at) for at in document["boots"]),
        lines=tuple((None if at is None else float(at), str(line)) for at, line in document["lines"]),
        left_out=int(document["left_out"]),
        truncated=bool(document["truncated"]),
    )


def _configuration(document: Any) -> Configuration | None:
    """How the node is set up; None where this release cannot read it, which spoils nothing else."""
    try:
        return configuration_from_json(document)
    except (KeyError, TypeError, AttributeError):
        return None


def _known(kind: type, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the fields that this release knows: a node may still have a newer archive in its cache."""
    return {name: entry[name] for name in kind.__dataclass_fields__ if name in entry}  # type: ignore[attr-defined]


def _gpu(entry: Mapping[str, Any] | None) -> GpuRef:
    return GpuRef(**_known(GpuRef, entry or {}))


def _finding(entry: Mapping[str, Any]) -> Finding:
    gpu = _gpu(entry["gpu"]) if entry.get("gpu") else None
    return Finding(
        **{
            **_known(Finding, entry),
            "verdict": Verdict(entry["verdict"]),
            "action": Action(entry.get("action", "NONE")),
            "gpu": gpu,
        }
    )


def _diagnosis(entry: Mapping[str, Any]) -> Diagnosis:
    return Diagnosis(
        fault_class=str(entry["fault_class"]),
        action=Action(entry["action"]),
        confidence=Confidence(entry["confidence"]),
        because=tuple(str(reason) for reason in entry["because"]),
        code=entry.get("code"),
        gpu=_gpu(entry["gpu"]) if entry.get("gpu") else None,
        at_boundary=bool(entry.get("at_boundary", False)),
    )
