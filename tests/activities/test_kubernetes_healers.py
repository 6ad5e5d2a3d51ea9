"""Healers of Kubernetes stand back by their own switch, on record, and find everything afterwards as it was before."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import names
from activities.all_healers import UNKNOWN, AllHealers
from activities.auto_scaling import AutoScalingHealers
from activities.briefing import BriefingActivities
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.errors import AccessRefused, PreconditionFailed
from activities.healers import HealerActivities, ReleaseHealers, StandBack
from activities.inventory import ResolveNode
from activities.karpenter import DEPLOYMENT, KarpenterHealers
from activities.kubernetes import NODE, Object, annotations_of, labels_of
from activities.kubernetes_healers import NodeObjects
from activities.nvsentinel import OPT_OUT, REBOOT_NODE, STATE, NvSentinelHealers
from activities.owned_nodes import OwnedNodes
from activities.settings import HealerSettings
from activities.stood_back import StoodBack

OURS, OTHERS = "incident/lab/i-2", "incident/lab/i-9"
DO_NOT_REPAIR, DO_NOT_DISRUPT = "karpenter.sh/do-not-repair", "karpenter.sh/do-not-disrupt"
POOL = {"karpenter.sh/nodepool": "gpus"}


class Cluster:
    """A fleet in a Kubernetes in memory, and the healers over both."""

    def __init__(self, fleet: FakeFleet) -> None:
        self.fleet = fleet
        self.api = FakeKubernetes()
        self.api.missing.add(REBOOT_NODE)
        self.node = fleet.node("node-2")
        self.settings = HealerSettings()

    def label(self, **labels: str) -> None:
        gpus, ready = 8, True
        self.api.add_node("ip-10-0-0-12", self.node.instance_id, gpus=gpus, ready=ready, **labels)

    def karpenter(self, version: str = "1.15.0", gates: str = "NodeRepair=true") -> None:
        container = {
            "image": f"public.ecr.aws/karpenter/controller:{version}@sha256:0",
            "env": [{"name": "FEATURE_GATES", "value": gates}],
        }
        meta = {"name": "karpenter", "labels": {"app.kubernetes.io/name": "karpenter"}}
        self.api.put(DEPLOYMENT, {"metadata": meta, "spec": {"template": {"spec": {"containers": [container]}}}}, "kube-system")

    def healers(self) -> AllHealers:
        record, nodes = StoodBack(self.fleet.ec2), NodeObjects(self.api)
        return AllHealers(
            [
                AutoScalingHealers(self.fleet.auto_scaling, self.fleet.ec2, self.fleet.clock),
                OwnedNodes(nodes),
                NvSentinelHealers(self.api, nodes, record),
                KarpenterHealers(self.api, nodes, record, self.settings),
            ],
            record,
        )

    @property
    def item(self) -> Object:
        item = self.api.get(NODE, "ip-10-0-0-12")
        assert item is not None
        return item

    @property
    def record(self) -> str:
        return self.fleet.ec2.tags[self.node.instance_id].get(names.TAG_STOOD_BACK, "")

    def change(self, **meta: Any) -> None:
        self.api.patch(NODE, "ip-10-0-0-12", {"metadata": meta})


@pytest.fixture
def cluster(fleet: FakeFleet) -> Cluster:
    return Cluster(fleet)


def stand_back(cluster: Cluster, surroundings: ActivityEnvironment, incident: str = OURS) -> str:
    activities = HealerActivities(cluster.healers())
    return surroundings.run(activities.stand_back, StandBack(node=cluster.node, incident=incident)).said


def release(cluster: Cluster, surroundings: ActivityEnvironment, incident: str = OURS) -> str:
    activities = HealerActivities(cluster.healers())
    return surroundings.run(activities.release_healers, ReleaseHealers(node=cluster.node, incident=incident)).said


def failure(call: Callable[[], object]) -> ApplicationError:
    with pytest.raises(ApplicationError) as raised:
        call()
    return raised.value


def written(cluster: Cluster) -> set[str]:
    """Annotations and labels that a healer's switch or our record of it is."""
    return {
        key
        for key in {**annotations_of(cluster.item), **labels_of(cluster.item)}
        if "do-not" in key or "tood" in key or "Managed" in key
    }


def test_healers_are_found_by_labels_and_a_plain_node_has_none(cluster: Cluster) -> None:
    cluster.label()
    assert cluster.healers().found(cluster.node) == []
    cluster.label(**POOL, **{"nvsentinel.dgxc.nvidia.com/driver.installed": "true"})
    assert [one.words for one in cluster.healers().found(cluster.node)] == ["NVSentinel", "Karpenter node pool gpus"]
    cluster.label(**{"eks.amazonaws.com/compute-type": "auto"})
    assert [one.words for one in cluster.healers().found(cluster.node)] == ["EKS Auto Mode"]


def test_karpenter_is_vetoed_by_its_annotations_and_released_to_what_was_before(
    cluster: Cluster, surroundings: ActivityEnvironment
) -> None:
    cluster.karpenter()
    cluster.label(**POOL)
    cluster.change(annotations={DO_NOT_DISRUPT: "30m"})
    before = annotations_of(cluster.item)
    for _ in range(3):
        assert "neither repairs nor consolidates" in stand_back(cluster, surroundings)
    marks = annotations_of(cluster.item)
    assert (marks[DO_NOT_REPAIR], marks[DO_NOT_DISRUPT]) == ("true", "true")
    assert json.loads(marks[f"{names.KUBE_STOOD_BACK}-karpenter"])["incident"] == OURS
    assert cluster.record == f"{OURS} Karpenter"
    assert cluster.api.points.count("patch nodes") == 2  # one was ours
    for _ in range(2):
        release(cluster, surroundings)
    assert annotations_of(cluster.item) == before
    assert cluster.record == ""


def test_a_veto_that_a_person_had_set_stays_after_the_release(cluster: Cluster, surroundings: ActivityEnvironment) -> None:
    cluster.karpenter()
    cluster.label(**POOL)
    cluster.change(annotations={DO_NOT_REPAIR: "true"})
    stand_back(cluster, surroundings)
    release(cluster, surroundings)
    assert annotations_of(cluster.item)[DO_NOT_REPAIR] == "true"
    assert DO_NOT_DISRUPT not in annotations_of(cluster.item)


def test_what_somebody_has_changed_meanwhile_is_theirs(cluster: Cluster, surroundings: ActivityEnvironment) -> None:
    cluster.karpenter()
    cluster.label(**POOL)
    stand_back(cluster, surroundings)
    cluster.change(annotations={DO_NOT_DISRUPT: "2h", DO_NOT_REPAIR: None})
    release(cluster, surroundings)
    marks = annotations_of(cluster.item)
    assert (marks.get(DO_NOT_REPAIR), marks[DO_NOT_DISRUPT]) == (None, "2h")
    assert written(cluster) == {DO_NOT_DISRUPT}


@pytest.mark.parametrize(
    ("version", "gates", "told"),
    [
        ("1.15.0", "NodeRepair=true", True),
        ("v2.0.1", "SpotToSpot=false,NodeRepair=true", True),
        ("1.14.2", "NodeRepair=false", True),
        ("1.14.2", "", True),
        ("1.14.2", "NodeOverlay=false, NodeRepair=true", False),
        ("latest", "NodeRepair=true", False),
    ],
)
def test_a_karpenter_that_repairs_and_knows_no_veto_leaves_no_restart(
    cluster: Cluster, surroundings: ActivityEnvironment, version: str, gates: str, told: bool
) -> None:
    cluster.karpenter(version, gates)
    cluster.label(**POOL)
    if told:
        stand_back(cluster, surroundings)
        assert written(cluster) == {DO_NOT_REPAIR, DO_NOT_DISRUPT, f"{names.KUBE_STOOD_BACK}-karpenter"}
        return
    refused = failure(lambda: stand_back(cluster, surroundings))
    assert (refused.type, refused.non_retryable) == ("CapabilityMissing", True)
    assert "turn NodeRepair off" in refused.message
    assert (written(cluster), cluster.record) == (set(), "")


def test_a_karpenter_whose_version_is_not_known_is_not_trusted_until_the_settings_say_so(
    cluster: Cluster, surroundings: ActivityEnvironment
) -> None:
    cluster.label(**POOL)
    assert 'healers.karpenter = "obeys"' in failure(lambda: stand_back(cluster, surroundings)).message
    cluster.api.points.fail_next("list deployments", AccessRefused("forbidden"))
    assert "forbidden" in failure(lambda: stand_back(cluster, surroundings)).message
    cluster.settings = HealerSettings(karpenter="obeys")
    assert "healers.karpenter says" in stand_back(cluster, surroundings)


@pytest.mark.parametrize("gone", [False, True])
def test_a_node_that_karpenter_has_taken_is_left_to_it(cluster: Cluster, surroundings: ActivityEnvironment, gone: bool) -> None:
    cluster.karpenter()
    cluster.label(**POOL)
    taken: Object = cluster.item
    if gone:
        taken["metadata"]["deletionTimestamp"] = "2026-10-01T00:00:00Z"
    else:
        taken["spec"]["taints"] = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    cluster.api.put(NODE, taken)
    refused = failure(lambda: stand_back(cluster, surroundings))
    assert (refused.type, "left alone" in refused.message) == ("NotOurs", True)
    assert (written(cluster), cluster.record) == (set(), "")


@pytest.mark.parametrize("before", [None, "true", "false"])
def test_nvsentinel_gets_its_opt_out_and_back_exactly_what_it_had(
    cluster: Cluster, surroundings: ActivityEnvironment, before: str | None
) -> None:
    cluster.label(**({OPT_OUT.key: before} if before else {}), **{"nvsentinel.dgxc.nvidia.com/dcgm.version": "4.x"})
    stand_back(cluster, surroundings)
    assert labels_of(cluster.item)[OPT_OUT.key] == "false"
    assert cluster.record == f"{OURS} NVSentinel"
    release(cluster, surroundings)
    assert labels_of(cluster.item).get(OPT_OUT.key) == before
    assert written(cluster) == ({OPT_OUT.key} if before else set())


@pytest.mark.parametrize(
    "mark",
    [
        {"labels": {STATE: "draining"}},
        {"labels": {STATE: "remediation-failed"}},
        {"annotations": {"quarantineHealthEvent": "{}"}},
    ],
)
def test_a_node_in_the_quarantine_of_nvsentinel_is_not_ours(
    cluster: Cluster, surroundings: ActivityEnvironment, mark: dict[str, Any]
) -> None:
    cluster.label()
    cluster.change(**mark)
    refused = failure(lambda: stand_back(cluster, surroundings))
    assert (refused.type, "its own quarantine" in refused.message) == ("NotOurs", True)
    assert (written(cluster), cluster.record) == (set(), "")


CANNOT_TELL = "cannot tell whether NVSentinel is installed: forbidden"


def test_where_it_may_not_be_read_whether_nvsentinel_is_there_this_is_said_and_it_is_told(
    cluster: Cluster, surroundings: ActivityEnvironment
) -> None:
    cluster.label()
    cluster.api.missing.clear()
    cluster.api.points.fail_next("list rebootnodes", AccessRefused("forbidden"), times=9)
    briefing = BriefingActivities(cluster.fleet.inventory, cluster.fleet.memory, cluster.healers())
    brief = surroundings.run(briefing.brief, ResolveNode(cluster="lab", alias="node-2"))
    assert (brief.healers, brief.doubts) == (["NVSentinel (if it is there)"], [CANNOT_TELL])
    said = stand_back(cluster, surroundings)
    assert said.startswith(CANNOT_TELL)
    assert labels_of(cluster.item)[OPT_OUT.key] == "false"
    release(cluster, surroundings)
    assert (written(cluster), cluster.record) == (set(), "")


def test_where_neither_may_be_looked_nor_told_the_node_is_not_restarted_and_both_reasons_are_said(
    cluster: Cluster, surroundings: ActivityEnvironment
) -> None:
    cluster.label()
    cluster.api.missing.clear()
    cluster.api.points.fail_next("list rebootnodes", AccessRefused("forbidden"), times=9)
    cluster.api.points.fail_next("patch nodes", AccessRefused("may not patch nodes"))
    refused = failure(lambda: stand_back(cluster, surroundings))
    assert (refused.type, refused.non_retryable) == ("AccessRefused", True)
    assert CANNOT_TELL in refused.message
    assert "may not patch nodes" in refused.message
    assert (written(cluster), cluster.record) == (set(), "")


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ({"eks.amazonaws.com/compute-type": "auto"}, "EKS Auto Mode"),
        ({"sagemaker.amazonaws.com/node-health-status": "Schedulable"}, "HyperPod"),
    ],
)
def test_a_node_without_a_switch_is_its_owners_and_the_briefing_says_so(
    cluster: Cluster, surroundings: ActivityEnvironment, label: dict[str, str], words: str
) -> None:
    cluster.label(**label)
    refused = failure(lambda: stand_back(cluster, surroundings))
    assert (refused.type, words in refused.message, "resumes jobs" in refused.message) == ("CapabilityMissing", True, True)
    briefing = BriefingActivities(cluster.fleet.inventory, cluster.fleet.memory, cluster.healers())
    brief = surroundings.run(briefing.brief, ResolveNode(cluster="lab", alias="node-2"))
    assert words in brief.owner
    assert words in brief.healers[0]


def test_an_api_that_does_not_answer_is_never_taken_for_nobody(cluster: Cluster, surroundings: ActivityEnvironment) -> None:
    cluster.karpenter()
    cluster.label(**POOL)
    cluster.fleet.join_group("gpus", "node-1", "node-2")
    cluster.api.down = True
    node = cluster.fleet.node("node-2")
    found = cluster.healers().found(node)
    assert [one.kind for one in found] == ["Auto Scaling group", UNKNOWN.kind]
    assert "the Kubernetes API server does not answer" in found[1].doubt
    failed = failure(lambda: stand_back(cluster, surroundings))
    assert (failed.type, failed.non_retryable) == ("NodeUnreachable", False)
    assert (cluster.fleet.count("enter_standby"), cluster.record) == (0, "")
    cluster.api.down = False
    stand_back(cluster, surroundings)
    assert cluster.record == f"{OURS} Auto Scaling group + Karpenter"


def test_where_one_cannot_be_told_those_told_in_this_call_are_released(
    cluster: Cluster, surroundings: ActivityEnvironment
) -> None:
    cluster.fleet.join_group("gpus", "node-1", "node-2")
    cluster.label(**POOL, **{OPT_OUT.key: "true"})
    cluster.karpenter("1.14.0")
    refused = failure(lambda: stand_back(cluster, surroundings))
    assert "turn NodeRepair off" in refused.message
    assert (cluster.fleet.count("enter_standby"), cluster.fleet.count("exit_standby")) == (1, 1)
    assert labels_of(cluster.item)[OPT_OUT.key] == "true"
    assert (written(cluster), cluster.record) == ({OPT_OUT.key}, "")


def test_one_that_stood_back_before_the_call_is_not_released_by_it(cluster: Cluster, surroundings: ActivityEnvironment) -> None:
    cluster.fleet.join_group("gpus", "node-1", "node-2")
    cluster.label()
    stand_back(cluster, surroundings)
    cluster.label(**POOL)
    cluster.karpenter("1.14.0")
    failure(lambda: stand_back(cluster, surroundings))
    assert (cluster.fleet.count("exit_standby"), cluster.record) == (0, f"{OURS} Auto Scaling group")


def test_one_release_that_fails_keeps_no_other_from_being_released(cluster: Cluster, surroundings: ActivityEnvironment) -> None:
    cluster.fleet.join_group("gpus", "node-1", "node-2")
    cluster.label(**POOL)
    cluster.karpenter()
    stand_back(cluster, surroundings)
    cluster.fleet.fail_next("exit_standby", PreconditionFailed("the group may not grow"))
    assert "may not grow" in failure(lambda: release(cluster, surroundings)).message
    assert (written(cluster), cluster.record) == (set(), f"{OURS} Auto Scaling group")
    release(cluster, surroundings)
    assert cluster.record == ""


def test_a_standby_of_somebody_else_stays_theirs_though_another_kind_has_the_record(
    cluster: Cluster, surroundings: ActivityEnvironment
) -> None:
    cluster.fleet.join_group("gpus", "node-1", "node-2")
    cluster.fleet.auto_scaling.enter_standby("gpus", cluster.node.instance_id)
    cluster.label(**POOL)
    cluster.karpenter()
    for _ in range(2):
        assert "somebody else" in stand_back(cluster, surroundings)
    release(cluster, surroundings)
    assert (cluster.fleet.count("exit_standby"), cluster.record) == (0, "")


def test_what_stands_back_for_another_incident_is_not_ours(cluster: Cluster, surroundings: ActivityEnvironment) -> None:
    cluster.label(**POOL)
    cluster.karpenter()
    stand_back(cluster, surroundings, OTHERS)
    for call in (stand_back, release):
        error = failure(lambda call=call: call(cluster, surroundings))  # type: ignore[misc]
        assert (error.type, OTHERS in error.message) == ("NotOurs", True)
    assert annotations_of(cluster.item)[DO_NOT_REPAIR] == "true"


def test_a_lost_race_against_another_writer_is_run_again_on_what_they_wrote(
    cluster: Cluster, surroundings: ActivityEnvironment
) -> None:
    cluster.label(**POOL)
    cluster.karpenter()
    cluster.api.points.fail_next("patch nodes", PreconditionFailed("the object has been modified"), times=2)
    stand_back(cluster, surroundings)
    assert annotations_of(cluster.item)[DO_NOT_REPAIR] == "true"
    cluster.api.points.fail_next("patch nodes", PreconditionFailed("the object has been modified"), times=9)
    lost = failure(lambda: release(cluster, surroundings))
    assert (lost.type, lost.non_retryable) == ("ProviderBusy", False)
    assert cluster.record == f"{OURS} Karpenter"


def test_a_node_that_is_gone_from_kubernetes_is_released(cluster: Cluster, surroundings: ActivityEnvironment) -> None:
    cluster.label(**POOL)
    cluster.karpenter()
    stand_back(cluster, surroundings)
    cluster.api.delete(NODE, "ip-10-0-0-12")
    release(cluster, surroundings)
    assert cluster.record == ""
