"""`hotspare doctor` on a lab: all is well, then each part is broken in turn, named with its mend, and nothing else with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import pytest_asyncio
from temporalio.client import Client, ScheduleHandle, WorkflowHandle
from typer.testing import CliRunner

from activities.names import cluster_id, sweep_schedule_id, unresolved_id
from checks.model import Verdict
from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.options import REGION, LabOptions
from infra.lab.reservations import LabReservation
from workers.cli.app import app
from workers.cli.doctor import examine
from workers.cli.health import Line, overall
from workers.cli.init import prepare
from workers.cli.processes import Announce, Process, _intake, _worker
from workers.connection import connect
from workers.http_server import bind
from workers.intake.trial import alias_of
from workers.settings import Settings, load_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUEUE = "hotspare-lab-events"
RULE = "hotspare-lab-events-health"


@dataclass
class Clinic:
    """The lab under doctor's eyes. `settings_with` writes the settings anew, with other values."""

    lab: Lab
    client: Client
    events: Any
    config: Path

    async def lines(self, config: Path | None = None) -> list[Line]:
        """What doctor says."""
        return (await examine(config or self.config))[0]

    async def ill(self, config: Path | None = None) -> dict[str, Line]:
        """The lines that are not well, by part; of several of one part the first."""
        bad = [line for line in await self.lines(config) if line.verdict is not Verdict.OK and line.can_tell]
        assert all(line.do for line in bad), "every line that is not well says what to do"
        return {line.part: line for line in reversed(bad)}

    def settings_with(self, old: str, new: str) -> Path:
        """Write a settings file that differs, beside the lab's own."""
        text = self.config.read_text()
        assert old in text
        file = self.config.with_name("broken.toml")
        file.write_text(text.replace(old, new))
        return file


@asynccontextmanager
async def part_running(part: Process, settings: Settings) -> AsyncIterator[None]:
    """Run worker or intake in this process until the block ends."""
    stop, up = asyncio.Event(), asyncio.Event()

    class Heard(Announce):
        def __call__(self, part: str, text: str, **facts: object) -> None:
            up.set()

    task = asyncio.ensure_future(part(settings, await connect("test", codec=settings.codec), stop, Heard(True)))
    started = asyncio.ensure_future(up.wait())
    await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
    assert up.is_set(), "the part ended while it came up"
    try:
        yield
    finally:
        stop.set()
        await task


def healthy_settings(lab: Lab, queue_url: str, port: int) -> Path:
    """Give the lab what a real cluster has: a pager, a fixed port of the intake, the queue. Nothing repairs by itself."""
    config = lab.folder / "hotspare.toml"
    text = config.read_text()
    for old, new in (
        ('mode = "act"', 'mode = "approve"'),
        ("interval_s = 30.0", "interval_s = 86400.0"),
        ("connect_timeout_s = 5.0", "connect_timeout_s = 5.0\nprobe_deadline_s = 15.0\ntries = 1"),
        ("[notify]\n", '[notify]\nurls = ["http://127.0.0.1:9/pager"]\n'),
        ("[intake]\nport = 0\n", f'[intake]\nport = {port}\nevent_queue = "{queue_url}"\n'),
    ):
        assert old in text, old
        text = text.replace(old, new)
    config.write_text(text + "\n[worker]\nshutdown_grace_s = 0.5\n")
    return config


def make_queue() -> tuple[Any, str]:
    """The queue and one rule that fills it, as the Terraform module makes them."""
    sqs, events = boto3.client("sqs", region_name=REGION), boto3.client("events", region_name=REGION)
    url = sqs.create_queue(QueueName=QUEUE)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name=RULE, EventPattern='{"source": ["aws.health"]}', State="ENABLED")
    events.put_targets(Rule=RULE, Targets=[{"Id": "queue", "Arn": arn}])
    return events, url


def free_port() -> int:
    """A port that nobody uses now."""
    with bind("127.0.0.1", 0, "intake", "intake") as taken:
        port: int = taken.getsockname()[1]
    return port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clinic(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clinic]:
    """A lab that trains, its Temporal prepared, worker and intake running."""
    folder = tmp_path_factory.mktemp("doctor") / "lab"
    async with Lab(LabOptions(folder=folder, nodes=2, spares=1, boot_s=0.2)) as lab:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in lab.environment().items():
                patch.setenv(name, value)
            events, url = await asyncio.to_thread(make_queue)
            config = healthy_settings(lab, url, free_port())
            settings = load_settings(config)
            await lab.job.start()
            await lab.job.wait_for_checkpoint()
            await prepare(settings)
            async with part_running(_worker, settings), part_running(_intake, settings):
                yield Clinic(lab, await connect(), events, config)


async def test_a_healthy_lab_is_well_and_what_cannot_be_told_says_why(clinic: Clinic) -> None:
    lines = await clinic.lines()
    assert overall(lines) is Verdict.OK, [line for line in lines if line.verdict is not Verdict.OK]
    assert {line.part for line in lines if line.verdict is Verdict.UNKNOWN} <= {"AWS permissions"}
    parts = {line.part for line in lines}
    assert {"Temporal", "Temporal access", "retention", "search attributes", "workers", "Cluster", "sweep"} <= parts
    assert {"AWS", "AWS permissions", "clock", "host memory", "spare pool", "owners", "other healers"} <= parts
    assert {"alerts", "AWS events", "places", "head node", "job train", "node node-1", "node spare-1"} <= parts


async def test_a_test_event_is_one_observation_and_nothing_is_done_for_it(clinic: Clinic) -> None:
    before = list(clinic.lab.endpoint.calls)
    lines = [line for line in await clinic.lines() if "test event" in line.text]
    assert len(lines) == 2
    for line in lines:
        workflow_id = line.text.split(": ")[-1]
        assert workflow_id.startswith(unresolved_id("lab", alias_of("")))
        found = [one async for one in clinic.client.list_workflows(f'WorkflowId = "{workflow_id}"')]
        assert len(found) <= 1, "visibility may lag, and never shows two"
        report = await clinic.client.get_workflow_handle(workflow_id).result()
        assert report["outcome"] == "observed"
    done = [call.operation for call in clinic.lab.endpoint.calls[len(before) :] if call.service == "ec2"]
    assert done == []
    assert not (clinic.lab.folder / "pages.jsonl").exists()


@pytest.mark.parametrize(
    ("operation", "code", "part", "mend"),
    [
        ("GetCallerIdentity", "InvalidClientTokenId", "AWS", "AWS_PROFILE"),
        ("RebootInstances", "UnauthorizedOperation", "AWS permissions", "DIR/iam"),
    ],
)
async def test_aws_that_refuses_us_is_named_with_the_action(
    clinic: Clinic, operation: str, code: str, part: str, mend: str
) -> None:
    clinic.lab.endpoint.fail_next(operation, code, times=1)
    ill = await clinic.ill()
    assert set(ill) == {part}
    assert (ill[part].verdict, mend in ill[part].do) == (Verdict.CRITICAL, True)
    if code == "UnauthorizedOperation":
        assert f"ec2:{operation}" in ill[part].text


async def test_an_inventory_that_does_not_answer_is_named_and_what_hangs_on_it(clinic: Clinic) -> None:
    clinic.lab.endpoint.fail_next("DescribeInstances", "RequestLimitExceeded", times=1000)
    try:
        ill = await clinic.ill()
    finally:
        clinic.lab.endpoint._failures.clear()
    assert "RequestLimitExceeded" in ill["inventory"].text
    assert set(ill) <= {"inventory", "head node", "job", "other healers", "owners"}


async def break_key(clinic: Clinic) -> Mapping[str, str]:
    known = clinic.lab.folder / "ssh" / "known_hosts"
    lines = known.read_text().splitlines()
    port = clinic.lab.nodes["node-1"].ssh_port
    other = lines[0].split(" ", 1)[1] if f":{port} " not in lines[0] else lines[1].split(" ", 1)[1]
    known.write_text("\n".join(f"[127.0.0.1]:{port} {other}" if f":{port} " in line else line for line in lines) + "\n")
    return {"known_hosts": "\n".join(lines) + "\n"}


async def test_a_node_with_another_host_key_is_not_believed_and_the_mend_is_to_be_typed(clinic: Clinic) -> None:
    before = await break_key(clinic)
    try:
        ill = await clinic.ill()
    finally:
        (clinic.lab.folder / "ssh" / "known_hosts").write_text(before["known_hosts"])
    assert set(ill) == {"node node-1"}
    assert ill["node node-1"].verdict is Verdict.UNKNOWN
    assert "host key" in ill["node node-1"].text
    assert "hotspare trust node-1" in ill["node node-1"].text + ill["node node-1"].do


@pytest.mark.parametrize(
    ("fault", "verdict", "words"),
    [
        (Fault(hang=True, cure="never"), Verdict.UNKNOWN, "ssh -F"),
        (Fault(xid=48, cure="never"), Verdict.CRITICAL, "hotspare report spare-1"),
    ],
)
async def test_a_node_that_is_ill_is_named(clinic: Clinic, fault: Fault, verdict: Verdict, words: str) -> None:
    await clinic.lab.inject("spare-1", fault)
    try:
        ill = await clinic.ill()
    finally:
        await clinic.lab.cure("spare-1")
        if fault.xid is not None:  # its line stays in the kernel's log until the node restarts
            await clinic.lab.nodes["spare-1"].reboot()
    assert set(ill) == {"node spare-1"}
    assert (ill["node spare-1"].verdict, words in ill["node spare-1"].do) == (verdict, True)


@pytest.mark.parametrize(
    ("old", "new", "part", "verdict", "mend"),
    [
        ("urls = [", "# urls = [", "pages", Verdict.WARN, "notify.urls"),
        ("event_queue = ", "# event_queue = ", "AWS events", Verdict.WARN, "intake.event_queue"),
        (f"/{QUEUE}", f"/{QUEUE}-gone", "AWS events", Verdict.CRITICAL, "intake.event_queue"),
        ('"trainctl", "find"', '"trainctl", "fnd"', "job", Verdict.CRITICAL, "head node"),
        ('head = "head"', 'head = "haed"', "head node", Verdict.CRITICAL, "job.head"),
        ('"host-memory.sqlite3"', '"ssh"', "host memory", Verdict.CRITICAL, "docs/ledger.md"),
        ("intake.token", "other.token", "alerts", Verdict.CRITICAL, "hotspare init"),
    ],
)
async def test_a_setting_that_is_wrong_is_named_with_the_setting(
    clinic: Clinic, old: str, new: str, part: str, verdict: Verdict, mend: str
) -> None:
    folder = str(clinic.lab.folder)
    config = clinic.settings_with(old.replace('"host', f'"{folder}/host'), new.replace('"ssh', f'"{folder}/ssh'))
    ill = await clinic.ill(config)
    assert part in ill
    assert (ill[part].verdict, mend in ill[part].do) == (verdict, True), ill[part]
    nodes = {"node node-1", "node node-2", "node spare-1"}  # what is seen of a node is weighed with its past
    consequences = {"head node": {"job"}, "host memory": {"spare pool", *nodes}}
    assert set(ill) - {part} <= consequences.get(part, set())


async def test_an_intake_with_another_token_refuses_and_one_that_is_not_there_is_missed(clinic: Clinic) -> None:
    other = clinic.lab.folder / "other.token"
    other.touch(0o600)
    other.write_text("a token that the intake does not have\n")
    config = clinic.settings_with("intake.token", "other.token")
    ill = await clinic.ill(config)
    other.unlink()
    assert set(ill) == {"alerts"}
    assert "same token" in ill["alerts"].do
    config = clinic.settings_with("[intake]\nport = ", "[intake]\nport = 1 # ")
    ill = await clinic.ill(config)
    assert set(ill) == {"alerts"}
    assert "hotspare intake" in ill["alerts"].do


async def test_a_rule_that_is_off_and_a_queue_that_nothing_fills_are_named(clinic: Clinic) -> None:
    await asyncio.to_thread(clinic.events.disable_rule, Name=RULE)
    ill = await clinic.ill()
    await asyncio.to_thread(clinic.events.enable_rule, Name=RULE)
    assert set(ill) == {"AWS events"}
    assert f"enable-rule --name {RULE}" in ill["AWS events"].do


async def test_a_sweep_that_is_paused_and_books_that_nobody_keeps_are_named(clinic: Clinic) -> None:
    sweep: ScheduleHandle = clinic.client.get_schedule_handle(sweep_schedule_id("lab"))
    await sweep.pause(note="a demo")
    books: WorkflowHandle[Any, Any] = clinic.client.get_workflow_handle(cluster_id("lab"))
    await books.terminate("by mistake")
    ill = await clinic.ill()
    await sweep.unpause()
    await prepare(load_settings(clinic.config))
    assert set(ill) == {"sweep", "Cluster"}
    assert "unpause" in ill["sweep"].do
    assert ill["Cluster"].do == "start it: hotspare init"
    assert not await clinic.ill()


async def test_a_database_on_a_node_that_is_restarted_is_named(clinic: Clinic) -> None:
    address = clinic.lab.nodes["node-2"].ip
    config = clinic.settings_with("[temporal]\n", f'[temporal]\ndatabase_host = "{address}"\n')
    ill = await clinic.ill(config)
    assert set(ill) == {"places"}
    assert ill["places"].verdict is Verdict.CRITICAL
    assert "Temporal's database runs on node-2" in ill["places"].text


async def test_temporal_that_is_away_is_the_only_red_line(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    ill = await clinic.ill()
    assert set(ill) == {"Temporal"}, ill
    assert "TEMPORAL_ADDRESS" in ill["Temporal"].do


async def test_status_in_the_first_hour_says_who_is_read_and_what_would_have_been_done(clinic: Clinic) -> None:
    lab = clinic.lab
    reservation = LabReservation("cr-0a", total=4, kind="capacity-block", ends_at=datetime.now(UTC) + timedelta(hours=5))
    lab.endpoint.reservations.add(reservation, lab.nodes["node-1"].instance_id, lab.nodes["node-2"].instance_id)
    await lab.inject("spare-1", Fault(xid=79, cure="reboot"))
    await lab.nodes["spare-1"].reboot()
    answer = await asyncio.to_thread(
        CliRunner().invoke, app, ["status", "--look", "--days", "7", "--json", "-c", str(clinic.config)]
    )
    told = json.loads(answer.stdout)
    assert (told["seen"]["expected"], told["seen"]["read"], told["seen"]["unreadable"]) == (3, 3, {})
    [held] = told["reservations"]
    assert (held["reservation_id"], held["available"], held["total"], held["ends_at"][:4]) == (
        "cr-0a",
        2,
        4,
        f"{reservation.ends_at:%Y}",
    )
    [one] = [one for one in told["past"]["found"] if one["node"] == "spare-1" and one["code"] == 79]
    assert one["what"].startswith("would quarantine spare-1 and try REBOOT_NODE")
    assert told["past"]["read"] == 3
