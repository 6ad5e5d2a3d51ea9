"""Evidence from a node over SSH: real commands, logs and reports, and a connection that is cut while a part is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from temporalio.testing import ActivityEnvironment

from activities.clients.evidence_store_folder import FolderEvidenceStore
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_memory import FakeMemory
from activities.clients.ssh_paramiko import SshAccessTo
from activities.evidence import EvidenceActivities, EvidenceCollector
from activities.evidence_asides import EvidenceSources
from activities.evidence_bundle import Bundle, unpack
from activities.node_messages import CollectEvidence, EvidenceBundle
from activities.probing import ChecksArchive, Probe
from activities.settings import EvidenceSettings, StoreSettings
from activities.settings_access import AccessSettings
from checks.archive import build_archive
from tests.activities.conftest import attempt
from tests.activities.loopback_node import LoopbackNode

BUG_REPORT = """#!/bin/sh
[ "$1" = --safe-mode ] && [ "$2" = --output-file ] || exit 9
pwd > "$HOME/report-folder"
{ echo 'Start of NVIDIA bug report log file.'; echo 'Serial Number : 1650123456789'; echo 'HF_TOKEN=hf_secret'; } | gzip > "$3.gz"
"""

HANGS = '#!/bin/sh\necho $$ > "$HOME/here"\nexec sleep 1000\n'


@pytest.fixture(params=[10.0])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> EvidenceSettings:
    logs = ["/var/log/nccl/{node}.*.log"]
    return EvidenceSettings(serial_key=tmp_path / "serial.key", nccl_logs=logs, part_deadline_s=request.param)


@pytest.fixture(params=[False])
def access(request: pytest.FixtureRequest, loopback: LoopbackNode) -> AccessSettings:
    return AccessSettings(ssh_config=loopback.configuration, connect_timeout_s=2.0, sudo=request.param)


@pytest.fixture
def activities(access: AccessSettings, settings: EvidenceSettings, tmp_path: Path) -> Iterator[EvidenceActivities]:
    archive = build_archive()
    file = tmp_path / "checks.tar.gz"
    file.write_bytes(archive.content)
    access_to = SshAccessTo(access)
    fleet = FakeFleet()
    probe = Probe(ChecksArchive(file, archive.digest), access)
    store = FolderEvidenceStore(tmp_path / "evidence")
    sources = EvidenceSources(access_to, probe, FakeMemory(), fleet.ec2, fleet.job)
    places = StoreSettings(evidence_dir=tmp_path / "evidence")
    yield EvidenceActivities(EvidenceCollector(sources, store, store, access, settings, places))
    access_to.close()


def ask(loopback: LoopbackNode, *, no_nvml: bool = False) -> CollectEvidence:
    return CollectEvidence(node=loopback.node, incident="incident/lab/i-0abc", token="t1", no_nvml=no_nvml)


def opened(bundle: EvidenceBundle) -> Bundle:
    return unpack(Path(urlsplit(bundle.uri).path).read_bytes())


def entry(bundle: Bundle, name: str) -> Any:
    return next(part for part in bundle.parts if part["name"] == name)


def test_logs_reports_and_health_of_a_node_are_in_its_bundle(
    loopback: LoopbackNode, activities: EvidenceActivities, surroundings: ActivityEnvironment
) -> None:
    logs = loopback.root / "var/log/nccl"
    logs.mkdir(parents=True)
    (logs / "node-1.7.log").write_text("NCCL WARN Call to ibv_modify_qp failed, WANDB_API_KEY=0123456789\n")
    (logs / "node-2.7.log").write_text("of another node\n")
    loopback.script("nvidia-bug-report.sh", BUG_REPORT)
    loopback.script("dcgmi", '#!/bin/sh\necho "$@" >> "$HOME/dcgmi"\necho "{}"\n')
    loopback.script("nvidia-smi", '#!/bin/sh\necho "smi $*"\n')
    loopback.script("journalctl", '#!/bin/sh\necho "journal $*"\n')
    held = opened(surroundings.run(activities.collect_evidence, ask(loopback)))
    assert "ibv_modify_qp failed, WANDB_API_KEY=[redacted]" in held.texts["nccl-logs.txt"]
    assert "==> /var/log/nccl/node-1.7.log, 65 bytes <==" in held.texts["nccl-logs.txt"]
    assert "of another node" not in held.texts["nccl-logs.txt"]
    report = held.texts["nvidia-bug-report.log"]
    assert report.startswith("Start of NVIDIA bug report log file.\nSerial Number : [board ")
    assert "hf_secret" not in report
    assert not Path((loopback.home / "report-folder").read_text().strip()).exists()
    assert (loopback.home / "dcgmi").read_text().splitlines()[0] == "health -c -j"
    assert "diag" not in (loopback.home / "dcgmi").read_text()
    assert held.texts["topology.txt"] == "smi topo -m\n"
    assert "_TRANSPORT=kernel --since @" in held.texts["kernel-journal.txt"]
    assert "Linux version 6.1.0" in held.texts["dmesg.txt"]


def test_nothing_that_opens_nvml_runs_on_a_node_whose_log_forbids_it(
    loopback: LoopbackNode, activities: EvidenceActivities, surroundings: ActivityEnvironment
) -> None:
    for command in ("nvidia-smi", "dcgmi", "nvidia-bug-report.sh"):
        loopback.script(command, '#!/bin/sh\necho "$0 $*" >> "$HOME/opened-nvml"\n')
    with loopback.kernel_log.open("a") as log:
        log.write("[  490.000000] NVRM: Xid (PCI:0000:86:00): 119, pid=1, name=python3, Timeout after 6s of waiting for RPC\n")
    held = opened(surroundings.run(activities.collect_evidence, ask(loopback)))
    assert not (loopback.home / "opened-nvml").exists()
    assert entry(held, "nvidia-bug-report.log")["state"] == "skipped"
    assert any("--no-nvml" in command for command in loopback.commands)


def test_what_is_not_installed_is_skipped_and_what_fails_is_missing_with_its_own_words(
    loopback: LoopbackNode, activities: EvidenceActivities, surroundings: ActivityEnvironment
) -> None:
    loopback.script("ps", "#!/bin/sh\necho 'ps: cannot read /proc' >&2\nexit 1\n")
    loopback.script("uname", "#!/bin/sh\necho 'Linux half'\necho 'and a warning' >&2\nexit 3\n")
    held = opened(surroundings.run(activities.collect_evidence, ask(loopback)))
    assert entry(held, "service-logs.txt")["state"] == "skipped"
    report, dcgm = entry(held, "nvidia-bug-report.log"), entry(held, "dcgm-health.json")
    assert (report["state"], report["why"]) == ("skipped", "no such command on the node: nvidia-bug-report.sh")
    assert (dcgm["state"], dcgm["why"]) == ("skipped", "no such command on the node: dcgmi")
    assert entry(held, "processes.txt") == {**entry(held, "processes.txt"), "state": "missing", "why": "ps: cannot read /proc"}
    assert entry(held, "uname.txt")["why"] == "ended with status 3"
    assert "and a warning" in held.texts["uname.txt"]


SUDO = """#!/bin/sh
shift
case "$1" in dmesg|nvidia-bug-report.sh|sh) ROOT=yes exec "$@" ;; esac
echo "sudo: a password is required" >&2
exit 1
"""
NEEDS_ROOT = "#!/bin/sh\n[ -n \"$ROOT\" ] || { echo 'read kernel buffer failed: Operation not permitted' >&2; exit 1; }\n"


@pytest.mark.parametrize("access", [False, True], indirect=True, ids=["sudo not set", "sudo set"])
def test_sudo_is_used_for_what_needs_it_and_not_needed_for_the_rest(
    loopback: LoopbackNode, activities: EvidenceActivities, surroundings: ActivityEnvironment
) -> None:
    loopback.script("sudo", SUDO)
    loopback.script("dmesg", f"{NEEDS_ROOT}echo '[    0.000000] read by root'\n")
    held = opened(surroundings.run(activities.collect_evidence, ask(loopback)))
    assert held.texts["dmesg.txt"] == "[    0.000000] read by root\n"
    assert {"uptime.txt", "uname.txt", "processes.txt"} <= set(held.items)


def test_a_connection_that_is_cut_while_a_part_is_read_leaves_the_bundle_with_what_came_before(
    loopback: LoopbackNode, activities: EvidenceActivities, surroundings: ActivityEnvironment
) -> None:
    loopback.script("uptime", HANGS)
    cut = threading.Thread(target=cut_after, args=(loopback, loopback.home / "here"))
    cut.start()
    bundle = surroundings.run(activities.collect_evidence, ask(loopback))
    cut.join()
    held = opened(bundle)
    assert {"dmesg.txt", "probe.json", "job.json", "support-case.txt"} <= set(held.items)
    assert entry(held, "uptime.txt")["state"] == "missing"
    assert "broke while" in entry(held, "uptime.txt")["why"]
    assert entry(held, "processes.txt")["why"] == "not tried, the node does not answer any more"
    assert held.manifest["node_stopped_answering"]
    missing = [part for part in held.parts if part["state"] == "missing"]
    assert bundle.summary.startswith(f"{len(held.items)} of {len(held.items) + len(missing)} parts; missing: ")
    loopback.script("uptime", "#!/bin/sh\necho up\n")
    loopback.up()
    again = attempt(2).run(activities.collect_evidence, ask(loopback))
    assert (again.uri, again.sha256) == (bundle.uri, bundle.sha256)


@pytest.mark.parametrize("settings", [0.5], indirect=True)
def test_a_command_that_hangs_costs_its_own_time_and_no_more(
    loopback: LoopbackNode, activities: EvidenceActivities, surroundings: ActivityEnvironment
) -> None:
    loopback.script("uptime", HANGS)
    held = opened(surroundings.run(activities.collect_evidence, ask(loopback)))
    assert "no end of uptime within" in entry(held, "uptime.txt")["why"]
    assert "probe.json" in held.items


def cut_after(loopback: LoopbackNode, file: Path) -> None:
    """Cut the node off as soon as the file is there: the command has started."""
    while not file.exists():
        threading.Event().wait(0.02)
    loopback.down()
