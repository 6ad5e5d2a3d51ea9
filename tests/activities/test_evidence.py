"""Evidence bundles: what is gathered from a node before anything is done to it, whole or with its holes told, once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from temporalio.exceptions import CancelledError
from temporalio.testing import ActivityEnvironment

from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import FakeFault
from activities.ec2 import InstanceStatus
from activities.errors import AccessRefused, DeadlinePassed, HotspareError, NodeUnreachable, ProviderBusy
from activities.evidence import CLOCK_MARGIN, KEEP_S, EvidenceActivities
from activities.evidence_bundle import Bundle, unpack
from activities.evidence_redaction import serial_key
from activities.host_memory import RungAttempt
from activities.node_messages import CollectEvidence, EvidenceBundle, Opinion, Report
from activities.probing import Probe
from activities.settings import EvidenceSettings
from checks.model import Action
from tests.activities.conftest import attempt

INCIDENT = "incident/lab/i-1"
NVML = ("topology.txt", "nvidia-smi.txt", "dcgm-health.json", "dcgm-fields.txt", "nvidia-bug-report.log")


@pytest.fixture
def activities(fleet: FakeFleet, probe: Probe, tmp_path: Path) -> EvidenceActivities:
    return EvidenceActivities(fleet.evidence(probe, tmp_path))


@pytest.fixture
def collect(fleet: FakeFleet, activities: EvidenceActivities) -> Callable[..., EvidenceBundle]:
    def run(number: int = 1, **changes: Any) -> EvidenceBundle:
        request = CollectEvidence(node=fleet.node("node-1"), incident=INCIDENT, token="t1", no_nvml=False)
        made: EvidenceBundle = attempt(number).run(activities.collect_evidence, request.model_copy(update=changes))
        return made

    return run


def opened(bundle: EvidenceBundle) -> Bundle:
    read = unpack(Path(urlsplit(bundle.uri).path).read_bytes())
    assert read.broken == ()
    return read


def entry(bundle: EvidenceBundle, name: str) -> Any:
    return entry_of(opened(bundle), name)


def entry_of(bundle: Bundle, name: str) -> Any:
    return next(part for part in bundle.parts if part["name"] == name)


def test_a_bundle_has_the_kernel_log_the_probe_the_job_and_what_ec2_says(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle]
) -> None:
    fleet.inject("node-1", FakeFault(xid=64))
    bundle = collect()
    held = opened(bundle)
    assert "All reserved rows for bank are remapped" in held.texts["dmesg.txt"]
    assert '"row_remap_failure"' in held.texts["probe.json"]
    assert json.loads(held.texts["job.json"])["job"] == "train"
    assert json.loads(held.texts["instance.json"])["instance_id"] == fleet.node("node-1").instance_id
    assert json.loads(held.texts["status-checks.json"])["state"] == "running"
    assert "nvidia-smi.txt" in held.items
    assert bundle.items == held.items
    assert (bundle.size_bytes, bundle.sha256) == (
        len(content := Path(urlsplit(bundle.uri).path).read_bytes()),
        sha256(content).hexdigest(),
    )


def test_every_part_is_in_the_manifest_with_its_state_and_digest(collect: Callable[..., EvidenceBundle]) -> None:
    bundle = collect()
    states = {part["name"]: part["state"] for part in opened(bundle).parts}
    assert {name for name, state in states.items() if state in ("taken", "truncated")} == set(bundle.items)
    assert states["nccl-logs.txt"] == "skipped"
    assert entry(bundle, "nccl-logs.txt")["why"] == "evidence.nccl_logs names no file"
    assert states["pci.txt"] == "missing"
    assert any(line.startswith("pci.txt: no such command") for line in bundle.missing)
    assert states["dcgm-health.json"] == "skipped"


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("code", [79, 119])
def test_nothing_that_opens_nvml_is_started_after_79_or_119_whether_the_incident_or_only_the_log_says_so(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle], told: bool, code: int
) -> None:
    fleet.inject("node-1", FakeFault(xid=code))
    bundle = collect(no_nvml=told)
    assert [fleet.count(f"run.{command}") for command in ("nvidia-smi", "dcgmi", "sh")] == [0, 0, 0]
    for name in NVML:
        assert re.match("NVML is not touched after XID", entry(bundle, name)["why"]), name
    assert {"dmesg.txt", "probe.json"} <= set(bundle.items)


def test_nvml_is_left_alone_where_no_log_can_be_read(fleet: FakeFleet, collect: Callable[..., EvidenceBundle]) -> None:
    fleet.fail_next("run.dmesg", ProviderBusy("dmesg: too many sessions"))
    bundle = collect()
    assert fleet.count("run.nvidia-smi") == 0
    assert "the kernel log cannot be read" in entry(bundle, "nvidia-smi.txt")["why"]
    assert "probe.json" in bundle.items


def test_an_nvml_command_that_hangs_is_the_last_one_that_is_tried(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle]
) -> None:
    fleet.fail_next("run.nvidia-smi", DeadlinePassed("no end of nvidia-smi within 10 s"))
    bundle = collect()
    assert fleet.count("run.nvidia-smi") == 0
    assert entry(bundle, "topology.txt")["state"] == "missing"
    assert "what opens NVML is left alone" in entry(bundle, "nvidia-smi.txt")["why"]


def test_the_same_token_gives_the_same_bundle_and_another_token_another(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle], tmp_path: Path
) -> None:
    first = collect()
    fleet.inject("node-1", FakeFault(unreachable=True))
    assert collect(2) == first
    assert fleet.count("run.dmesg", "node-1") == 1
    assert collect(token="t2").uri != first.uri
    assert len(list((tmp_path / "evidence").glob("*.tar.gz"))) == 2
    assert not any((tmp_path / "evidence/.spool").iterdir())


def test_a_silent_node_has_a_bundle_with_what_others_know_of_it(fleet: FakeFleet, collect: Callable[..., EvidenceBundle]) -> None:
    fleet.inject("node-1", FakeFault(unreachable=True))
    bundle = collect()
    assert {"console.txt", "instance.json", "status-checks.json", "job.json", "host-record.json", "support-case.txt"} <= set(
        bundle.items
    )
    assert "dmesg.txt" not in bundle.items
    assert any(line.startswith("dmesg.txt: node-1: no answer") for line in bundle.missing)
    assert opened(bundle).manifest["node_stopped_answering"]
    assert "missing: dmesg.txt (node-1: no answer on port 22)" in bundle.summary


def test_a_node_that_dies_half_way_leaves_what_it_said_before(fleet: FakeFleet, collect: Callable[..., EvidenceBundle]) -> None:
    fleet.fail_next("run.uptime", NodeUnreachable("node-1: the connection broke while uptime ran"))
    fleet.fail_next("run.uname", NodeUnreachable("node-1: connection refused"))
    bundle = collect()
    assert {"dmesg.txt", "probe.json", "job.json", "support-case.txt"} <= set(bundle.items)
    assert entry(bundle, "uptime.txt")["why"] == "node-1: the connection broke while uptime ran"
    assert entry(bundle, "processes.txt")["why"] == "not tried, the node does not answer any more"
    assert fleet.count("run.ps") == 0
    assert opened(bundle).manifest["node_stopped_answering"]


def test_a_connection_that_breaks_once_costs_one_part(fleet: FakeFleet, collect: Callable[..., EvidenceBundle]) -> None:
    fleet.fail_next("run.uptime", NodeUnreachable("node-1: the connection broke while uptime ran"))
    bundle = collect()
    assert "uname.txt" in bundle.items
    assert not opened(bundle).manifest["node_stopped_answering"]


@pytest.mark.parametrize("error", [AccessRefused("host key has changed"), ValueError("a bug of ours")])
def test_whatever_is_wrong_with_one_look_the_bundle_is_made(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle], error: Exception
) -> None:
    for point in ("run.dmesg", "describe", "status", "job.find", "memory.recall"):
        fleet.fail_next(point, error, times=5)
    bundle = collect()
    for name in ("dmesg.txt", "instance.json", "status-checks.json", "job.json", "host-record.json"):
        assert entry(bundle, name) == {**entry(bundle, name), "state": "missing", "why": str(error)}
    assert {"support-case.txt", "console.txt"} <= set(bundle.items)


def test_parts_for_which_no_time_is_left_are_named(fleet: FakeFleet, collect: Callable[..., EvidenceBundle]) -> None:
    bundle = collect(deadline_s=0.0)
    assert entry(bundle, "dmesg.txt")["why"] == "no time left of 0 s"
    assert {"instance.json", "job.json"} <= set(bundle.items)
    assert fleet.count("run.dmesg") == 0


def test_the_journal_is_read_from_the_end_of_the_last_incident(fleet: FakeFleet, collect: Callable[..., EvidenceBundle]) -> None:
    closed = datetime(2026, 5, 5, 1, 0, 0, tzinfo=UTC)
    record = fleet.memory.recall(fleet.node("node-1").instance_id)
    fleet.memory.save(record.model_copy(update={"last_incident_closed_at": closed}))
    since = (closed - CLOCK_MARGIN).timestamp()
    assert f"_TRANSPORT=kernel --since @{since:.0f} " in entry(collect(), "kernel-journal.txt")["what"]


def test_an_attempt_that_nears_its_end_keeps_what_it_has_instead_of_asking_on(
    fleet: FakeFleet, activities: EvidenceActivities
) -> None:
    request = CollectEvidence(node=fleet.node("node-1"), incident=INCIDENT, token="t1", no_nvml=False, deadline_s=600.0)
    bundle = attempt(left=timedelta(seconds=KEEP_S)).run(activities.collect_evidence, request)
    assert "no time left" in entry(bundle, "dmesg.txt")["why"]
    assert "support-case.txt" in bundle.items


def test_an_attempt_that_dies_leaves_what_it_has_read_to_the_next_one(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle], tmp_path: Path
) -> None:
    fleet.inject("node-1", FakeFault(xid=64))
    fleet.fail_next("run.ps", CancelledError("the worker goes down"))
    with pytest.raises(CancelledError):
        collect()
    assert not list((tmp_path / "evidence").glob("*.tar.gz"))
    fleet.inject("node-1", FakeFault(unreachable=True))
    bundle = collect(2)
    assert {"dmesg.txt", "probe.json", "uptime.txt"} <= set(bundle.items)
    assert "All reserved rows" in opened(bundle).texts["dmesg.txt"]
    assert entry(bundle, "processes.txt")["state"] == "missing"
    assert fleet.count("run.dmesg", "node-1") == 1
    assert not any((tmp_path / "evidence/.spool").iterdir())


def test_a_place_that_takes_no_bundle_costs_no_bundle(fleet: FakeFleet, probe: Probe, tmp_path: Path) -> None:
    collector = fleet.evidence(probe, tmp_path)
    collector._store = Refuses()
    request = CollectEvidence(node=fleet.node("node-1"), incident=INCIDENT, token="t1", no_nvml=False)
    first = attempt().run(EvidenceActivities(collector).collect_evidence, request)
    assert first.uri.startswith("file:///")
    assert "kept in the folder instead: S3: AccessDenied" in first.summary
    again = attempt(2).run(EvidenceActivities(collector).collect_evidence, request)
    assert (again.uri, again.sha256) == (first.uri, first.sha256)


class Refuses:
    """An `EvidenceStore` that refuses everything."""

    def keep(self, name: str, content: bytes) -> Any:
        raise AccessRefused("S3: AccessDenied")

    def find(self, name: str) -> Any:
        raise AccessRefused("S3: AccessDenied")

    def names(self, prefix: str) -> list[str]:
        raise HotspareError("never asked")


def test_serial_numbers_become_marks_by_which_the_same_board_is_known_again(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle]
) -> None:
    serial = fleet.machine("node-1").serial_of(3)
    fleet.machine("node-1").kernel_log.append(f"[   12.000000] NVRM: GPU Board Serial Number: {serial}")
    fleet.machine("node-1").kernel_log.append(f"[   13.000000] board {serial} again, and {fleet.machine('node-1').uuid_of(3)}")
    first, second = opened(collect()), opened(collect(token="t2"))
    assert serial not in json.dumps([first.texts, first.manifest], default=str)
    marks = re.findall(r"\[board [0-9a-f]{12}\]", first.texts["dmesg.txt"])
    assert len(marks) == 2
    assert marks[0] == marks[1]
    assert marks[0] in first.texts["probe.json"]
    assert marks[0] in second.texts["probe.json"]
    assert fleet.machine("node-1").uuid_of(3) in first.texts["dmesg.txt"]
    assert json.loads(first.texts["probe.json"])["gpus"][3]["serial"] == marks[0]


def test_a_serial_that_only_a_later_part_gives_away_is_marked_in_the_earlier_ones(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle]
) -> None:
    serial = fleet.machine("node-1").serial_of(3)
    fleet.machine("node-1").kernel_log.append(f"[   13.000000] row {serial}, OK")
    held = opened(collect())
    assert re.search(r"row \[board [0-9a-f]{12}\], OK", held.texts["dmesg.txt"])
    assert entry_of(held, "dmesg.txt")["serials"] == 1


def test_the_serial_that_host_memory_knows_is_marked_where_no_label_gives_it_away(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle]
) -> None:
    fleet.memory.save(fleet.memory.recall(fleet.node("node-1").instance_id).model_copy(update={"gpu_serials": ["1650777000111"]}))
    fleet.machine("node-1").kernel_log.append("[   12.000000] row: 1650777000111, OK")
    assert "1650777000111" not in json.dumps(dict(opened(collect()).texts))


def test_secrets_are_taken_out_of_parts_and_of_reasons(fleet: FakeFleet, collect: Callable[..., EvidenceBundle]) -> None:
    fleet.machine("node-1").kernel_log.append("[   12.000000] app: AWS_SECRET_ACCESS_KEY=abc/def HF_TOKEN=hf_qwerty")
    fleet.fail_next("run.uptime", ProviderBusy("sudo: password=hunter2 was wrong"))
    bundle = collect(reports=[Report(source="alertmanager", what="token: qwertyuiop")])
    held = opened(bundle)
    everything = json.dumps([dict(held.texts), held.manifest, bundle.model_dump()], default=str)
    for secret in ("abc/def", "hf_qwerty", "hunter2", "qwertyuiop"):
        assert secret not in everything
    assert entry(bundle, "dmesg.txt")["secrets"] == 2
    assert held.manifest["taken_out"]["secrets"] >= 3


def test_the_text_for_a_support_case_has_what_aws_asks_for(fleet: FakeFleet, collect: Callable[..., EvidenceBundle]) -> None:
    node = fleet.node("node-1")
    fleet.inject("node-1", FakeFault(xid=79, gpu=5))
    fleet.ec2.statuses[node.instance_id] = InstanceStatus(state="running", system="impaired", instance="ok")
    tried = RungAttempt(
        rung=Action.REBOOT_NODE, at=datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC), fault_class="gpu_lost", code=79, helped=False
    )
    fleet.memory.save(fleet.memory.recall(node.instance_id).model_copy(update={"attempts": [tried], "strikes": 1}))
    opinion = Opinion(fault_class="gpu_lost", action=Action.REPLACE_NODE, because=["XID 79 and NVML agree"], code=79)
    opened_at = datetime(2026, 5, 5, 1, 0, 0, tzinfo=UTC)
    reports = [Report(source="watcher", xid=79, seen_at=opened_at - timedelta(seconds=30))]
    text = opened(collect(opinion=opinion, reports=reports, opened_at=opened_at)).texts["support-case.txt"]
    for said in (
        f"p5.48xlarge {node.instance_id}: XID 79",
        f"Instance id: {node.instance_id}",
        "Availability Zone: us-east-1a",
        "Capacity reservation: none, says EC2",
        "First report: 2026-05-05 00:59:30Z",
        "Incident opened: 2026-05-05 01:00:00Z",
        "GPU has fallen off the bus",
        "system status impaired",
        "2026-05-04 03:02:01Z REBOOT_NODE for gpu_lost (XID 79): did not help",
        "take the host out of service",
        "because XID 79 and NVML agree",
    ):
        assert said in text, said
    stamped = next(line for line in text.splitlines() if "fallen off the bus" in line)
    assert re.match(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \[", stamped)


def test_outside_of_an_incident_the_text_says_what_the_probe_sees_and_claims_no_more(
    fleet: FakeFleet, collect: Callable[..., EvidenceBundle]
) -> None:
    fleet.inject("node-1", FakeFault(xid=79, gpu=5))
    fleet.fail_next("describe", ProviderBusy("EC2 is busy"))
    text = opened(collect()).texts["support-case.txt"]
    assert f"{fleet.node('node-1').instance_id}: XID 79" in text
    assert "Diagnosis: gpu_lost" in text
    assert "Capacity reservation: not known" in text
    assert "no repair of this host is on record" in text


def test_logs_of_nccl_are_looked_for_under_the_names_of_node_and_job(
    fleet: FakeFleet, probe: Probe, tmp_path: Path, surroundings: ActivityEnvironment
) -> None:
    settings = EvidenceSettings(
        serial_key=tmp_path / "key", nccl_logs=["/var/log/nccl/{job}.{node}.*"], nccl_logs_on_head=["/fsx/{job}/*.log"]
    )
    activities = EvidenceActivities(fleet.evidence(probe, tmp_path, settings))
    request = CollectEvidence(node=fleet.node("node-1"), incident=INCIDENT, token="t1", no_nvml=False)
    fleet.job.nodes.clear()
    alone = surroundings.run(activities.collect_evidence, request)
    assert entry(alone, "nccl-logs.txt")["why"] == "evidence.nccl_logs needs {job}, and no job is known"
    assert entry(alone, "nccl-logs-on-head.txt")["state"] == "skipped"


def test_the_key_of_the_marks_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    key, remark = serial_key(tmp_path / "keys/serial.key")
    assert (serial_key(tmp_path / "keys/serial.key"), remark) == ((key, ""), "")
    assert len(key) == 64
    assert (tmp_path / "keys/serial.key").stat().st_mode & 0o077 == 0
    (tmp_path / "empty").touch()
    assert "this bundle alone" in serial_key(tmp_path / "empty")[1]
