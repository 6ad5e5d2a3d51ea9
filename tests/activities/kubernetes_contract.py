"""What holds for Kubernetes in memory and for a real API server alike: the verbs, the quarantine, the drain."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.draining import Drained, DrainNode
from activities.errors import CapabilityMissing, DeadlinePassed, NotOurs, PreconditionFailed, ProviderBusy, UnknownNode
from activities.inventory import Node
from activities.kubernetes import JOB_SET, NODE, POD, KubernetesApi, Object, annotations_of, labels_of
from activities.kubernetes_drain import KubernetesDrainer
from activities.kubernetes_marks import KubernetesMarks
from activities.kubernetes_nodes import KubernetesNodes
from activities.kubernetes_taints import leased_to, released, taint_value, taints_of
from activities.names import KUBE_LEASE, KUBE_QUARANTINE, KUBE_SPARE
from activities.quarantine import Mark
from activities.settings_jobs import KubernetesSettings
from tests.activities.conftest import attempt
from tests.activities.kubernetes_world import GPU, NAMESPACE, KubeletClock, ListedNodes, World
from tests.activities.test_host_memory import NOON

OURS = Mark(owner="incident/lab/i-n1", reason="XID 79", since=NOON)
RANK = {"job": "train"}


def seen(api: KubernetesApi, name: str) -> Object:
    """Return a Node that must be there."""
    found = api.get(NODE, name)
    assert found is not None
    return found


class Meddler:
    """Passes everything on, and changes the Node just before our first change of it, as another controller might."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self.left = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def patch(self, kind: Any, name: str, body: Object, namespace: str = "", *, subresource: str = "") -> Object:
        if self.left:
            self.left -= 1
            self._api.patch(NODE, name, {"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}})
        return self._api.patch(kind, name, body, namespace, subresource=subresource)


class VerbsContract:
    """The verbs."""

    def test_a_change_made_from_an_old_look_is_refused(self, world: World) -> None:
        world.node("n1")
        before = seen(world.api, "ip-n1")
        world.api.patch(NODE, "ip-n1", {"metadata": {"labels": {"a": "1"}}})
        stale = {"metadata": {"resourceVersion": before["metadata"]["resourceVersion"], "labels": {"a": "2"}}}
        with pytest.raises(PreconditionFailed, match="modified"):
            world.api.patch(NODE, "ip-n1", stale)
        assert labels_of(seen(world.api, "ip-n1"))["a"] == "1"

    def test_null_removes_and_a_list_is_replaced_whole(self, world: World) -> None:
        world.node("n1")
        world.api.patch(
            NODE,
            "ip-n1",
            {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}},
        )
        world.api.patch(
            NODE, "ip-n1", {"metadata": {"labels": {"a": None}}, "spec": {"taints": [{"key": "y", "effect": "NoSchedule"}]}}
        )
        after = seen(world.api, "ip-n1")
        assert "a" not in labels_of(after)
        assert labels_of(after)["b"] == "2"
        assert "x" not in [taint["key"] for taint in taints_of(after)]

    def test_selectors_choose_by_label_and_by_node(self, world: World) -> None:
        world.node("n1")
        world.pod("p1", "ip-n1", labels={"job": "a"})
        world.pod("p2", "ip-n1", labels={"job": "b"})

        def names(labels: str = "", fields: str = "") -> list[str]:
            return [pod["metadata"]["name"] for pod in world.api.list(POD, NAMESPACE, labels=labels, fields=fields)]

        assert names(labels="job=a") == ["p1"]
        assert names(labels="job in (a,b)", fields="spec.nodeName=ip-n1") == ["p1", "p2"]
        assert names(labels="job!=a,job") == ["p2"]
        assert names(fields="spec.nodeName=other") == []

    def test_what_is_not_there_is_none_and_deleting_it_is_no_error(self, world: World) -> None:
        world.node("n1")
        pod = world.pod("p1", "ip-n1")
        assert world.api.get(POD, "other", NAMESPACE) is None
        world.api.delete(POD, "other", NAMESPACE)
        world.api.delete(POD, "p1", NAMESPACE, uid="00000000-0000-0000-0000-00000000dead")
        assert world.api.evict("p1", NAMESPACE, uid="00000000-0000-0000-0000-00000000dead") is None
        assert world.api.evict("other", NAMESPACE) is None
        assert world.api.get(POD, "p1", NAMESPACE)["metadata"]["uid"] == pod["metadata"]["uid"]  # type: ignore[index]

    def test_a_name_is_given_once(self, world: World) -> None:
        world.node("n1")
        with pytest.raises(PreconditionFailed, match="already exists"):
            world.node("n1")

    def test_a_kind_that_is_not_installed_is_a_missing_capability(self, world: World) -> None:
        with pytest.raises(CapabilityMissing, match="CRD"):
            world.api.list(JOB_SET, NAMESPACE)
        with pytest.raises(CapabilityMissing, match="CRD"):
            world.api.get(JOB_SET, "x", NAMESPACE)

    def test_a_watch_shows_what_is_there_and_then_what_changes(self, world: World) -> None:
        world.node("n1")
        world.pod("p1", "ip-n1")
        events = ((kind, item) for kind, item in world.api.watch(POD, NAMESPACE, deadline_s=30) if kind)
        assert (kind_and_name := next(events))[0] == "ADDED"
        assert kind_and_name[1]["metadata"]["name"] == "p1"
        world.api.patch(POD, "p1", {"metadata": {"labels": {"a": "1"}}}, NAMESPACE)
        assert next((kind, labels_of(item)) for kind, item in events if labels_of(item).get("a")) == ("MODIFIED", {"a": "1"})
        world.api.delete(POD, "p1", NAMESPACE, grace_s=0)
        assert next(item["metadata"]["name"] for kind, item in events if kind == "DELETED") == "p1"
        events.close()

    def test_a_watch_lets_its_caller_look_up_and_ends_at_its_deadline(self, world: World) -> None:
        assert {kind for kind, _ in world.api.watch(POD, NAMESPACE, deadline_s=1)} == {""}

    def test_a_budget_forbids_an_eviction_by_its_name(self, world: World) -> None:
        world.node("n1")
        world.pod("p1", "ip-n1", labels=RANK)
        world.pod("p2", "ip-n1")
        world.budget("keep-all", RANK)
        blocked = world.api.evict("p1", NAMESPACE)
        assert blocked is not None
        assert (blocked.budget, "needs 1 healthy pods" in blocked.message) == ("keep-all", True)
        assert world.api.evict("p2", NAMESPACE) is None
        assert [pod["metadata"]["name"] for pod in world.api.list(POD, NAMESPACE) if "deletionTimestamp" in pod["metadata"]] == [
            "p2"
        ]


class MarksContract:
    """The quarantine."""

    def marks(self, world: World, *nodes: Node, api: Any = None) -> KubernetesMarks:
        return KubernetesMarks(KubernetesNodes(api or world.api), ListedNodes(*nodes), GPU)

    def test_a_quarantine_is_a_cordon_a_taint_and_an_annotation_that_names_its_owner(self, world: World) -> None:
        node, other = world.node("n1"), world.node("n2")
        world.api.patch(NODE, "ip-n1", {"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}})
        marks = self.marks(world, node, other)
        assert marks.read(node) is None
        marks.write(node, OURS)
        marks.write(node, OURS.model_copy(update={"owner": "incident/lab/other"}))
        found = seen(world.api, "ip-n1")
        assert found["spec"]["unschedulable"] is True
        assert taint_value(found, KUBE_QUARANTINE) == ""
        assert taint_value(found, "gpu") == "yes"
        assert marks.read(node) == OURS
        assert marks.marked() == {"n1"}
        marks.remove(node)
        marks.remove(node)
        found = seen(world.api, "ip-n1")
        assert "unschedulable" not in found["spec"]
        assert taint_value(found, KUBE_QUARANTINE) is None
        assert taint_value(found, "gpu") == "yes"
        assert KUBE_QUARANTINE not in annotations_of(found)
        assert marks.marked() == set()

    def test_who_changes_the_node_at_the_same_time_loses_nothing(self, world: World) -> None:
        node = world.node("n1")
        meddler = Meddler(world.api)
        self.marks(world, node, api=meddler).write(node, OURS)
        found = seen(world.api, "ip-n1")
        assert meddler.left == 0
        assert taint_value(found, "theirs") == ""
        assert taint_value(found, KUBE_QUARANTINE) == ""

    def test_the_cordon_of_another_is_neither_taken_over_nor_lifted(self, world: World) -> None:
        node = world.node("n1")
        world.api.patch(NODE, "ip-n1", {"spec": {"unschedulable": True}})
        marks = self.marks(world, node)
        with pytest.raises(NotOurs, match="kubectl uncordon ip-n1"):
            marks.read(node)
        with pytest.raises(NotOurs):
            marks.write(node, OURS)
        marks.remove(node)
        found = seen(world.api, "ip-n1")
        assert found["spec"]["unschedulable"] is True
        assert KUBE_QUARANTINE not in annotations_of(found)
        assert marks.marked() == {"n1"}

    def test_a_node_that_karpenter_takes_away_is_left_to_it(self, world: World) -> None:
        node = world.node("n1")
        world.api.patch(NODE, "ip-n1", {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}})
        with pytest.raises(NotOurs, match="Karpenter"):
            self.marks(world, node).write(node, OURS)

    def test_a_second_healer_that_came_in_addition_keeps_its_cordon(self, world: World) -> None:
        node = world.node("n1")
        marks = self.marks(world, node)
        marks.write(node, OURS)
        world.api.patch(NODE, "ip-n1", {"metadata": {"annotations": {"quarantineHealthEventIsCordoned": "True"}}})
        assert "NVSentinel" in str(marks.remove(node))
        found = seen(world.api, "ip-n1")
        assert found["spec"]["unschedulable"] is True
        assert taint_value(found, KUBE_QUARANTINE) is None
        with pytest.raises(NotOurs, match="NVSentinel"):
            marks.read(node)

    @pytest.mark.parametrize(("gpus", "ready", "word"), [(8, False, "not Ready"), (7, True, "7 of 8"), (0, True, "0 of 8")])
    def test_a_node_is_uncordoned_only_when_pods_with_gpus_can_run_there(
        self, world: World, gpus: int, ready: bool, word: str
    ) -> None:
        node = world.node("n1")
        marks = self.marks(world, node)
        marks.write(node, OURS)
        world.status("ip-n1", gpus=gpus, ready=ready)
        with pytest.raises(ProviderBusy, match=word):
            marks.remove(node)
        assert marks.read(node) == OURS
        world.status("ip-n1")
        marks.remove(node)
        assert marks.read(node) is None

    def test_a_node_that_kubernetes_does_not_know_is_told_with_where_to_look(self, world: World) -> None:
        node = Node(instance_id="i-nobody", name="n9")
        marks = self.marks(world, node)
        assert marks.read(node) is None
        with pytest.raises(UnknownNode, match="providerID"):
            marks.write(node, OURS)
        with pytest.raises(ProviderBusy, match="not joined"):
            marks.remove(node)

    def test_a_node_of_hyperpod_is_found_by_the_id_in_its_name(self, world: World) -> None:
        world.nodes.append("hyperpod-i-0abc")
        world.api.create(NODE, {"metadata": {"name": "hyperpod-i-0abc"}, "spec": {}})
        assert KubernetesNodes(world.api).name(Node(instance_id="i-0abc", name="n1")) == "hyperpod-i-0abc"

    def test_a_lease_takes_the_place_of_the_taint_of_a_free_spare_and_gives_it_back(self, world: World) -> None:
        node = world.node("n1")
        nodes = KubernetesNodes(world.api)
        nodes.change(node, lambda found: released(found, into_pool=True))
        assert taint_value(seen(world.api, "ip-n1"), KUBE_SPARE) == ""
        job = "default/jobset/" + "a-very-long-name-" * 5
        nodes.change(node, lambda found: leased_to(found, job))
        found = seen(world.api, "ip-n1")
        assert taint_value(found, KUBE_SPARE) is None
        assert str(taint_value(found, KUBE_LEASE)).startswith("default.jobset.a-very-long-name")
        version = found["metadata"]["resourceVersion"]
        assert nodes.change(node, lambda found: leased_to(found, job))["metadata"]["resourceVersion"] == version
        nodes.change(node, lambda found: released(found, into_pool=False))
        assert {KUBE_LEASE, KUBE_SPARE} & {taint["key"] for taint in taints_of(seen(world.api, "ip-n1"))} == set()


class DrainContract:
    """The drain."""

    drains_as: KubernetesApi | None = None
    """Who drains, where that is not who makes the world."""

    def drain(
        self,
        world: World,
        node: Node,
        clock: KubeletClock,
        mode: str = "immediate",
        deadline_s: float = 20.0,
        owner: str = OURS.owner,
    ) -> Drained:
        api = self.drains_as or world.api
        settings = KubernetesSettings(source="kubeconfig", drain_mode=mode, drain_deadline_s=deadline_s)  # type: ignore[arg-type]
        drainer = KubernetesDrainer(api, KubernetesNodes(api), settings, clock)
        environment: ActivityEnvironment = attempt()
        return environment.run(drainer.drain, DrainNode(node=node, incident=owner, reason="XID 79"))

    def quarantined(self, world: World) -> Node:
        node = world.node("n1")
        KubernetesMarks(KubernetesNodes(world.api), ListedNodes(node), GPU).write(node, OURS)
        return node

    def test_pods_leave_and_those_of_daemonsets_stay(self, world: World) -> None:
        node = self.quarantined(world)
        world.node("n2")
        world.pod("rank-0", "ip-n1")
        world.pod("rank-1", "ip-n2")
        world.pod("agent", "ip-n1", daemon=True)
        world.pod("done", "ip-n1", phase="Succeeded")
        drained = self.drain(world, node, KubeletClock(world))
        assert world.pods() == ["agent", "done", "rank-1"]
        assert drained.left == ["default/agent"]
        assert "1 pod moved off n1" in drained.said
        assert self.drain(world, node, KubeletClock(world)).blocked == []

    def test_a_pod_that_a_budget_holds_is_named_at_the_deadline_with_its_budget(self, world: World) -> None:
        node = self.quarantined(world)
        world.pod("rank-0", "ip-n1", labels=RANK)
        world.pod("other", "ip-n1")
        world.budget("keep-all", RANK)
        with pytest.raises(
            DeadlinePassed, match=r"default/rank-0 \(disruption budget keep-all.*kubectl -n default delete pod rank-0"
        ):
            self.drain(world, node, KubeletClock(world))
        assert world.pods() == ["rank-0"]
        assert seen(world.api, "ip-n1")["spec"]["unschedulable"] is True

    def test_delete_after_timeout_deletes_what_a_budget_still_holds(self, world: World) -> None:
        node = self.quarantined(world)
        world.pod("rank-0", "ip-n1", labels=RANK)
        world.budget("keep-all", RANK)
        clock = KubeletClock(world)
        drained = self.drain(world, node, clock, mode="delete_after_timeout")
        assert world.pods() == []
        assert clock.at >= 20.0
        assert drained.blocked == []

    def test_allow_completion_waits_and_evicts_nothing(self, world: World) -> None:
        node = self.quarantined(world)
        world.pod("rank-0", "ip-n1")
        with pytest.raises(DeadlinePassed, match=r"allow_completion evicts nothing"):
            self.drain(world, node, KubeletClock(world), mode="allow_completion")
        assert world.pods() == ["rank-0"]
        clock = KubeletClock(world)

        def finish() -> None:
            world.api.patch(POD, "rank-0", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")

        clock.meanwhile = finish
        assert "1 pod moved" in self.drain(world, node, clock, mode="allow_completion").said

    def test_nothing_is_drained_without_the_incidents_own_quarantine(self, world: World) -> None:
        node = world.node("n1")
        world.pod("rank-0", "ip-n1")
        with pytest.raises(PreconditionFailed, match="not quarantined"):
            self.drain(world, node, KubeletClock(world))
        KubernetesMarks(KubernetesNodes(world.api), ListedNodes(node), GPU).write(node, OURS)
        with pytest.raises(PreconditionFailed, match=OURS.owner):
            self.drain(world, node, KubeletClock(world), owner="incident/lab/other")
        assert "deletionTimestamp" not in world.api.list(POD, NAMESPACE)[0]["metadata"]

    def test_pods_of_a_node_that_does_not_answer_are_told_and_never_force_deleted(self, world: World) -> None:
        node = self.quarantined(world)
        world.pod("rank-0", "ip-n1")
        world.status("ip-n1", ready=False)
        drained = self.drain(world, node, KubeletClock(world, alive=False), deadline_s=600.0)
        assert drained.blocked == ["default/rank-0: its node does not answer, so it cannot end there"]
        assert world.pods() == ["rank-0"]
