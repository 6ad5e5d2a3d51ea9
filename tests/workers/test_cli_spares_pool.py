"""`hotspare spares list`, `test`, `drain`, `retire`, `restore` over a fleet in memory and the real workflows."""

from __future__ import annotations

from datetime import timedelta

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.host_records import SpareRecord, SpareTest
from activities.inventory import Node
from checks.model import Verdict
from tests.decisions.situations import NOW
from tests.workers.test_cli import Shell, shell
from workers.cli.spares_pool import in_a_tag
from workflows.cluster_messages import AskKind, Grant
from workflows.decisions.spares_listed import list_pool, verdict_on
from workflows.decisions.spares_settings import SpareSettings

__all__ = ["shell"]


def spare(number: int, **more: str) -> Node:
    return Node.model_validate({"instance_id": f"i-{number}", "name": f"spare-{number}", "role": "spare", **more})


def passed(number: int) -> SpareRecord:
    test = SpareTest(at=NOW - timedelta(hours=2), verdict=Verdict.OK)
    return SpareRecord(instance_id=f"i-{number}", test=test, qualified_at=test.at)


def grant(kind: AskKind, spare_id: str = "", partners: tuple[str, ...] = ()) -> Grant:
    return Grant(
        request_id="r",
        asker="replace/lab/i-9",
        kind=kind,
        instance_id="i-9",
        spare_id=spare_id,
        partners=[*partners],
        granted_at=NOW,
    )


def test_a_spare_counts_when_it_is_free_and_has_passed() -> None:
    nodes = [
        spare(1),
        spare(2),
        spare(3),
        spare(4, fate="drained by ann: fan"),
        spare(5, quarantine="ops-7"),
        spare(6),
        Node(instance_id="i-8", name="node-1"),
    ]
    grants = [grant(AskKind.SPARE, "i-2"), grant(AskKind.PARTNER, partners=("i-3",)), grant(AskKind.NODE_OUT)]
    pool = list_pool(nodes, [passed(number) for number in range(1, 6)], grants, SpareSettings(), 168.0, NOW)
    assert {one.name: one.use for one in pool} == {
        "spare-1": "free",
        "spare-2": "leased to replace/lab/i-9",
        "spare-3": "lent to replace/lab/i-9",
        "spare-4": "drained by ann: fan",
        "spare-5": "quarantined by ops-7",
        "spare-6": "free",
    }
    assert [one.name for one in pool if one.counts] == ["spare-1"]
    assert pool[0].name == "spare-1"
    assert verdict_on(pool) is Verdict.WARN
    assert verdict_on(pool[:1]) is Verdict.OK
    assert verdict_on(pool[1:]) is verdict_on([]) is Verdict.CRITICAL


def test_a_tag_holds_what_a_person_says_as_far_as_a_tag_can() -> None:
    assert in_a_tag("drained by ann: fan (bay 3), see #7") == "drained by ann: fan  bay 3   see  7"
    assert len(in_a_tag("x" * 400)) == 256


async def test_a_spare_is_tested_by_hand_and_counts_from_then_on(shell: Shell) -> None:
    status, out, _ = await shell.type("spares", "list")
    assert (status, "was never tested" in out) == (2, True)
    tested = await shell.ask("spares", "test", "spare-1")
    assert (tested["spare"], tested["verdict"]) == ("spare-1", "OK")
    (listed,) = (await shell.ask("spares", "list"))["spares"]
    assert (listed["use"], listed["counts"]) == ("free", True)


async def test_a_spare_that_is_ill_fails_its_test_by_hand_with_the_status_of_a_judgement(shell: Shell) -> None:
    shell.healing.fleet.inject("spare-1", FakeFault(slow=0.5, slow_kind="intra", cure=Cure.NEVER))
    status, out, _ = await shell.type("spares", "test", "spare-1")
    assert (status, "CRITICAL" in out) == (2, True)


async def test_a_drained_spare_is_leased_to_nobody_until_it_is_restored(shell: Shell) -> None:
    fleet = shell.healing.fleet
    said = await shell.ask("spares", "drain", "spare-1", "-r", "fan (bay 3)")
    assert said["fate"].startswith("drained by ")
    assert shell.healing.tags("spare-1")[names.TAG_FATE].endswith("fan  bay 3 ")
    (listed,) = (await shell.type("spares", "list", "--json"))[1:2]
    assert '"counts": false' in listed
    fleet.inject("node-3", FakeFault(xid=79, cure=Cure.REBOOT))
    await shell.ask("report", "node-3", "--xid", "79")
    await shell.waits_for_person("node-3")
    why = await shell.ask("why", "node-3")
    assert any("REBOOT_NODE" in line["text"] for line in why["incident"]["story"])
    assert (await shell.ask("spares", "restore", "spare-1"))["was"].startswith("drained by ")
    assert names.TAG_FATE not in shell.healing.tags("spare-1")
    status, _, err = await shell.type("spares", "restore", "spare-1")
    assert (status, "neither drained nor retired" in err) == (3, True)


async def test_a_retired_spare_stays_out_and_the_command_that_ends_it_is_told(shell: Shell) -> None:
    instance_id = shell.healing.fleet.node("spare-1").instance_id
    await shell.healing.gateway.ensure_cluster("lab")
    said = await shell.ask("spares", "retire", "spare-1", "-r", "lease ends")
    assert said["next"] == f"aws ec2 terminate-instances --instance-ids {instance_id}"
    assert shell.healing.tags("spare-1")[names.TAG_FATE] == names.FATE_RETIRED


async def test_a_spare_in_use_is_not_retired_and_a_node_that_trains_is_no_spare(shell: Shell) -> None:
    held = shell.healing.fleet.hold("start", "spare-1")
    testing = shell.healing.client.start_workflow(
        names.WORKFLOW_QUALIFY_SPARE,
        {"node": "spare-1"},
        id=names.qualify_id("lab", shell.healing.fleet.node("spare-1").instance_id),
        task_queue=names.QUEUE_WORKFLOWS,
    )
    handle = await testing
    await held.reached()
    status, _, err = await shell.type("spares", "retire", "spare-1", "-r", "lease ends")
    assert status == 3
    assert "hotspare spares drain spare-1" in err
    assert names.TAG_FATE not in shell.healing.tags("spare-1")
    held.release()
    await handle.result()
    status, _, err = await shell.type("spares", "drain", "node-1", "-r", "x")
    assert (status, "is no spare" in err) == (3, True)
