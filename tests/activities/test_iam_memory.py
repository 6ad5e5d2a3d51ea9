"""Host memory in DynamoDB under IAM: each activity works with the policy of its role, and no permission of a policy is idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from temporalio.exceptions import ApplicationError

from activities import names
from activities.burn_in import GroupTest
from activities.capacity import StartNode
from activities.clients.dynamo_client import dynamo_client
from activities.clients.dynamo_memory import DynamoMemory
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import FakeFault
from activities.ec2 import DisruptNode, TagNode
from activities.errors import AccessRefused, Throttled
from activities.host_memory import (
    ClosedIncident,
    CloseHostIncident,
    HostMemory,
    HostRecord,
    LoadFreezes,
    RungAttempt,
    SaveFreezes,
)
from activities.host_records import SpareTest
from activities.inventory import ListNodes, ResolveNode
from activities.learned_bandwidth import CleanGroupRun, NoteCleanRuns
from activities.memory_table import create
from activities.node import DeepTest, Examine, Gpu, ResetGpu
from activities.node_messages import CollectEvidence
from activities.parity import CompareFleet, DifferencesTold
from activities.provisioning import TerminateNode
from activities.reconcile import FindTraces
from activities.settings import AwsRole, AwsSettings, StoreSettings
from activities.spare_records import NoteSpareTest
from checks.model import Action, Verdict
from infra.iam.host_memory import GET, PERMISSIONS, READ_LEDGER, ROLES, WATCH_FOR_WEDGED, actions_of, file_of, policy_of, text_of
from infra.lab.options import REGION
from tests.activities.conftest import attempt
from tests.activities.iam_endpoint import IamEndpoint, enforced, unenforced, without

ROLE = "hotspare-memory-under-test"
TABLE = "memory-under-iam"
INCIDENT = "incident/c/i-1"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ROWS = [(role, activity) for role, rows in PERMISSIONS.items() for activity in rows]
NEEDS = [(role, activity, action) for role, rows in PERMISSIONS.items() for activity in rows for action in rows[activity]]
TRIED = RungAttempt(rung=Action.REBOOT_NODE, at=NOW, fault_class="gpu_lost", incident=INCIDENT)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[IamEndpoint]:
    with unenforced():
        running = IamEndpoint()
        key, secret = running.person("memory-worker")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            running.role(ROLE)
            aws = AwsSettings(region=REGION, endpoint_url=running.url)
            create(dynamo_client(aws, StoreSettings(table=TABLE), "", Config()), TABLE)
            yield running
        running.stop()


@pytest.fixture(scope="module")
def store(endpoint: IamEndpoint) -> DynamoMemory:
    """The product's client, as the role under test."""
    who = AwsRole(role_arn=f"arn:aws:iam::123456789012:role/{ROLE}")
    aws = AwsSettings(region=REGION, endpoint_url=endpoint.url, roles={"ssh": who})
    return DynamoMemory(aws, StoreSettings(memory="dynamodb", table=TABLE), "ssh")


class Rig:
    """A fleet's activities over that memory; all else is in memory and needs no permission."""

    def __init__(self, memory: HostMemory, folder: Path) -> None:
        self.fleet = FakeFleet(nodes=2)
        self.memory = memory
        fleet: Any = self.fleet
        fleet.memory = memory
        nobody: Any = None
        self._activities = {activity.__name__: activity for activity in self.fleet.activities(nobody, folder)}

    def run(self, activity: str, request: Any) -> Any:
        """Run an activity as an attempt of its own."""
        return attempt().run(self._activities[activity], request)

    def disrupt(self, token: str) -> DisruptNode:
        node = self.fleet.node("node-2")
        return DisruptNode(node=node, boot_id=self.fleet.machines["node-2"].boot_id, token=token, attempt=TRIED)


def refused_at_first(rig: Rig, point: str, activity: str, request: Any) -> None:
    """An effect that EC2 throttles, and the attempt after it, which sees that it was not made."""
    rig.fleet.fail_next(point, Throttled("told to"))
    with pytest.raises(Exception, match="told to"):
        rig.run(activity, request)
    rig.run(activity, request)


def effect_seen_again(rig: Rig, activity: str, request: Any, lost: str) -> None:
    """An effect whose answer is lost, and the attempt after it, which asks how old the intent is."""
    rig.fleet.fail_next(lost, Throttled("told to"))
    with pytest.raises(Exception, match="told to"):
        rig.run(activity, request)
    rig.memory.note_intent(request.token, "an attempt whose answer was lost")
    rig.run(activity, request)


def closing() -> CloseHostIncident:
    closed = ClosedIncident(
        incident=INCIDENT,
        run_id="r",
        cluster="c",
        instance_id="i-1",
        opened_at=NOW,
        closed_at=NOW,
        fault_class="gpu_lost",
        outcome="retired",
    )
    return CloseHostIncident(closed=closed, strike=True, fate=names.FATE_RETIRED, gpu_serial="1653")


def soft_reboot(rig: Rig) -> None:
    rig.fleet.machines["node-2"].faults.clear()
    rig.run("soft_reboot_node", rig.disrupt("t/soft"))


def start(rig: Rig) -> None:
    rig.fleet.machines["node-2"].state = "stopped"
    effect_seen_again(rig, "start_node", StartNode(node=rig.fleet.node("node-2"), token="t/start"), "start_instance")


def terminate(rig: Rig) -> None:
    node = rig.fleet.node("node-2")
    rig.fleet.ec2.tags[node.instance_id] |= {names.TAG_QUARANTINE: INCIDENT, names.TAG_FATE: names.FATE_RETIRED}
    request = TerminateNode(node=node, quarantined_by=INCIDENT, token="t/end")
    effect_seen_again(rig, "terminate_node", request, "terminate")


def tag(rig: Rig) -> None:
    request = TagNode(instance_id=rig.fleet.node("node-1").instance_id, set={names.TAG_FATE: "probation"}, token="t/tag")
    effect_seen_again(rig, "tag_node", request, "set_tags")


def examine(rig: Rig) -> None:
    rig.fleet.inject("node-1", FakeFault(xid=94))
    seen = rig.run("examine", Examine(node=rig.fleet.node("node-1"), incident=INCIDENT))
    told = [line for line in seen.opinion.because if "not known" in line]
    if told:
        raise AccessRefused(told[0])


def deep_test(rig: Rig) -> None:
    result = rig.run("deep_test", DeepTest(node=rig.fleet.node("spare-1"), run_id="deep", joins=True))
    assert result.verdict is Verdict.OK, result


def group_test(rig: Rig) -> None:
    rig.fleet.job.hold("train", "burn-in")
    nodes = [rig.fleet.node("node-1"), rig.fleet.node("node-2")]
    result = rig.run("group_test", GroupTest(cluster="lab", run_id="burn/1", nodes=nodes))
    if not result.kind:
        raise AccessRefused("what clean runs gave could not be read")


def note_clean_runs(rig: Rig) -> None:
    runs = [CleanGroupRun(key="lab p5.48xlarge x2", run_id="burn/1", busbw_gbs=470.0)]
    rig.run("note_clean_runs", NoteCleanRuns(runs=runs, at=datetime.now(UTC)))


def collect(rig: Rig) -> None:
    ask = CollectEvidence(node=rig.fleet.node("node-1"), incident=INCIDENT, token="t/evidence", no_nvml=False)
    rig.run("collect_evidence", ask)


def reset(rig: Rig) -> None:
    ask = ResetGpu(node=rig.fleet.node("spare-1"), gpu=Gpu(index=1, pci="0000:00:00"), attempt=TRIED)
    rig.run("reset_gpu", ask)


def traces(rig: Rig) -> None:
    rig.fleet.ec2.tags[rig.fleet.node("node-1").instance_id][names.TAG_QUARANTINE] = INCIDENT
    assert rig.run("find_traces", FindTraces(cluster="lab")).nodes


def watch_for_wedged(rig: Rig) -> None:
    if rig.memory.intent_age_s("wedged/w") is None:
        rig.memory.note_intent("wedged/w", "page")


def list_nodes(rig: Rig) -> None:
    known = rig.run("list_nodes", ListNodes(cluster="lab", spares=True)).spares
    assert [one.instance_id for one in known] == [rig.fleet.node("spare-1").instance_id]


def compare(rig: Rig) -> None:
    rig.run("compare_fleet", CompareFleet(cluster="lab", instance_ids=[rig.fleet.node("node-1").instance_id]))


def read_ledger(rig: Rig) -> None:
    rig.memory.records()
    rig.memory.gpus()
    rig.memory.gpus(["1653"])
    rig.memory.recall("i-1")
    rig.memory.bandwidths()
    rig.memory.note_intent("doctor", "look")
    rig.memory.withdraw_intent("doctor")


CASES: dict[str, Callable[[Rig], Any]] = {
    "brief": lambda rig: rig.run("brief", ResolveNode(cluster="lab", alias="node-1")),
    "list_nodes": list_nodes,
    "compare_fleet": compare,
    "differences_told": lambda rig: rig.run("differences_told", DifferencesTold(token="t/told")),
    "close_host_incident": lambda rig: rig.run("close_host_incident", closing()),
    "note_spare_test": lambda rig: rig.run(
        "note_spare_test", NoteSpareTest(instance_id="i-1", test=SpareTest(at=datetime.now(UTC), verdict=Verdict.OK))
    ),
    "note_clean_runs": note_clean_runs,
    "load_freezes": lambda rig: rig.run("load_freezes", LoadFreezes(cluster="lab")),
    "save_freezes": lambda rig: rig.run("save_freezes", SaveFreezes(cluster="lab")),
    "reboot_node": lambda rig: effect_seen_again(rig, "reboot_node", rig.disrupt("t/reboot"), "reboot"),
    "soft_reboot_node": soft_reboot,
    "power_cycle_node": lambda rig: refused_at_first(rig, "stop", "power_cycle_node", rig.disrupt("t/cycle")),
    "start_node": start,
    "terminate_node": terminate,
    "tag_node": tag,
    "examine": examine,
    "deep_test": deep_test,
    "group_test": group_test,
    "reset_gpu": reset,
    "collect_evidence": collect,
    "find_traces": traces,
    WATCH_FOR_WEDGED: watch_for_wedged,
    READ_LEDGER: read_ledger,
}


@pytest.fixture
def rig(endpoint: IamEndpoint, store: DynamoMemory, tmp_path: Path) -> Rig:
    """A fleet, and a table in which only the spare is known."""
    with unenforced():
        admin = endpoint.client("dynamodb", "admin", "admin")
        for item in admin.scan(TableName=TABLE)["Items"]:
            admin.delete_item(TableName=TABLE, Key={"pk": item["pk"], "sk": item["sk"]})
        made = Rig(store, tmp_path)
        store.save(HostRecord(instance_id=made.fleet.node("spare-1").instance_id, gpu_serials=["1653"]))
    return made


def play(endpoint: IamEndpoint, rig: Rig, activity: str, policy: dict[str, Any]) -> None:
    endpoint.permit(ROLE, policy)
    with enforced():
        CASES[activity](rig)


def test_the_policies_are_those_of_the_table() -> None:
    for role in ROLES:
        assert file_of(role).read_text() == text_of(role), "write them anew: python -m infra.iam.host_memory"


@pytest.mark.parametrize(("role", "activity"), ROWS, ids=lambda word: word)
def test_an_activity_works_under_the_policy_of_its_role(endpoint: IamEndpoint, rig: Rig, role: str, activity: str) -> None:
    play(endpoint, rig, activity, policy_of(role))
    assert endpoint.denied == []
    used = {f"dynamodb:{operation}" for operation in endpoint.made if operation != "AssumeRole"}
    assert used == set(PERMISSIONS[role][activity]), "the table and what the activity does differ"


@pytest.mark.parametrize(("role", "activity", "action"), NEEDS, ids=lambda word: word)
def test_an_activity_is_denied_without_any_one_of_its_actions(
    endpoint: IamEndpoint, rig: Rig, role: str, activity: str, action: str
) -> None:
    with suppress(AccessRefused, ApplicationError, AssertionError):  # what a denial costs is each activity's own matter
        play(endpoint, rig, activity, without(policy_of(role), action))
    assert set(endpoint.denied) == {action.split(":")[1]}


def test_a_policy_names_one_table_and_only_people_list_it() -> None:
    for role in ROLES:
        [statement] = policy_of(role)["Statement"]
        assert all(one.startswith("arn:*:dynamodb:*:*:table/TABLE") for one in statement["Resource"])
        assert ("dynamodb:Query" in statement["Action"]) is (role == "people")
    assert set(actions_of("aws")) | set(actions_of("ssh")) == set(actions_of("observe"))


def test_a_denial_names_the_folder_of_the_policies(endpoint: IamEndpoint, rig: Rig) -> None:
    endpoint.permit(ROLE, without(policy_of("aws"), GET))
    with enforced(), pytest.raises(AccessRefused, match=r"not authorized.*infra/iam/memory"):
        rig.memory.recall("i-1")
