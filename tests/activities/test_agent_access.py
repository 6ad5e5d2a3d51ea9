"""Node access by agent, on Kubernetes in memory: what its Jobs ask for, and what becomes of those that cannot run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.clients.agent_access import AgentAccessTo
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.errors import CapabilityMissing, DeadlinePassed, NodeUnreachable
from activities.kubernetes import CONFIG_MAP, JOB, LEASE, Object
from activities.node_access import LOST, NodeAccess
from activities.probing import ChecksArchive, Probe, ProbeWish
from activities.settings_access import AccessSettings, PodSettings
from activities.settings_jobs import KubernetesSettings
from checks.archive import build_archive
from tests.activities.loopback_node import LoopbackNode
from tests.activities.pod_runner import NAMESPACE, PodRunner
from tests.activities.rbac import RUN, GuardedKubernetes, grants_of

SETTINGS = AccessSettings(kind="agent", agent_image="checks:1", agent_start_s=30.0)


@pytest.fixture
def api() -> FakeKubernetes:
    """Kubernetes with one node."""
    made = FakeKubernetes()
    made.add_node("kube-1", "i-0abc")
    return made


@pytest.fixture
def runner(api: FakeKubernetes, loopback: LoopbackNode, tmp_path: Path) -> Iterator[PodRunner]:
    """Runs pods in the loopback node's root."""
    made = PodRunner(api, "kube-1", {"PATH": f"{loopback.bin}:{os.environ['PATH']}"}, loopback.root, tmp_path)
    yield made
    made.close()


def access_of(api: FakeKubernetes, loopback: LoopbackNode, settings: AccessSettings = SETTINGS) -> NodeAccess:
    """The access to the loopback node."""
    heads = AgentAccessTo(api, settings, KubernetesSettings(namespace=NAMESPACE), lambda: pytest.fail("no head is asked"))
    return heads(loopback.node)


def pod_of(job: Object) -> Object:
    """The pod's specification in a Job."""
    spec: Object = job["spec"]["template"]["spec"]
    return spec


def test_a_run_is_pinned_to_its_node_and_starts_there_whatever_keeps_other_pods_away(
    api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode
) -> None:
    access_of(api, loopback).run(["true"], 10.0)
    pod = pod_of(runner.started[0])
    assert (pod["nodeName"], pod["tolerations"], pod["restartPolicy"]) == ("kube-1", [{"operator": "Exists"}], "Never")
    assert runner.started[0]["spec"]["backoffLimit"] == 0


def test_a_command_leaves_nothing_behind(api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode) -> None:
    access_of(api, loopback).run(["true"], 10.0)
    assert api.list(JOB) == []


def test_what_the_settings_say_of_pods_reaches_the_run_and_its_job(
    api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode
) -> None:
    pods = PodSettings(term_grace_s=0.1, write_for_s=7.0, shown_bytes=10, keep_s=11, keep_once_s=12, backstop_s=13)
    access = access_of(api, loopback, SETTINGS.model_copy(update={"pods": pods}))
    with pytest.raises(DeadlinePassed):
        access.run(["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"], 1.0)  # ends only by what follows the grace
    access.start("deep-test/1", ["true"], 60.0)
    while access.poll("deep-test/1").exit_status is None:
        pass
    once, kept = runner.started
    assert (once["spec"]["ttlSecondsAfterFinished"], kept["spec"]["ttlSecondsAfterFinished"]) == (12, 11)
    assert kept["spec"]["activeDeadlineSeconds"] == 60 + 30 + 13
    pace = json.loads(pod_of(kept)["containers"][0]["command"][-1])["pace"]
    assert pace == {"term_grace_s": 0.1, "write_for_s": 7.0, "shown_bytes": 10, "shown_every_s": 2.0, "ready_after_s": 1.0}


def test_an_answer_larger_than_a_config_map_arrives_whole(api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode) -> None:
    many = "import random; print(random.Random(1).randbytes(1_500_000).hex())"
    answer = access_of(api, loopback).run(["python3", "-c", many], 60.0, 4_000_000)
    assert len(answer.stdout) == 3_000_001


@pytest.mark.parametrize("verb", ["", "get", "create", "patch"])
def test_a_run_needs_each_grant_of_its_service_account_and_no_other(
    api: FakeKubernetes, loopback: LoopbackNode, tmp_path: Path, verb: str
) -> None:
    """It reads a file that was put, and writes an answer larger than one ConfigMap."""
    granted = GuardedKubernetes(api, {grant for grant in grants_of(RUN) if grant.verb != verb})
    environment = {"PATH": f"{loopback.bin}:{os.environ['PATH']}"}
    runner = PodRunner(api, "kube-1", environment, loopback.root, tmp_path, granted)
    (tmp_path / "much.py").write_text("import random; print(random.Random(1).randbytes(1_000_000).hex())")
    access = access_of(api, loopback)
    try:
        command = ["python3", access.put(tmp_path / "much.py", "digest")]
        if verb:
            with pytest.raises(NodeUnreachable, match="the pod that ran python3 is gone"):
                access.run(command, 60.0, 4_000_000)
            assert granted.refused == {("configmaps", verb)}
        else:
            assert len(access.run(command, 60.0, 4_000_000).stdout) == 2_000_001
    finally:
        runner.close()


def test_a_cut_answer_keeps_its_end(api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode) -> None:
    answer = access_of(api, loopback).run(["sh", "-c", "seq 1000; echo the end"], 10.0, 20)
    assert answer.stdout.endswith("the end\n")
    assert len(answer.stdout) == 20


def test_a_command_that_takes_too_long_is_ended_and_said_so(
    api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode
) -> None:
    with pytest.raises(DeadlinePassed, match="no end of sleep 600 within 1 s"):
        access_of(api, loopback).run(["sleep", "600"], 1.0)


def test_a_pod_that_cannot_start_makes_the_node_unreachable_in_kubernetes_words(
    api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode
) -> None:
    runner.refuses_pods = True
    access = access_of(api, loopback, SETTINGS.model_copy(update={"agent_start_s": 0.5}))
    with pytest.raises(NodeUnreachable, match="no pod could be started there: its Job has made no pod"):
        access.run(["true"], 10.0)


def test_a_known_run_is_not_started_twice(api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode) -> None:
    access = access_of(api, loopback)
    access.start("deep-test/1", ["all_reduce_perf"], 60.0)
    access.start("deep-test/1", ["all_reduce_perf"], 60.0)
    while access.poll("deep-test/1").exit_status is None:
        pass
    access.start("deep-test/1", ["all_reduce_perf"], 60.0)
    assert (loopback.root / "var/lib/hotspare/starts").read_text() == "started\n"


def test_a_run_whose_result_was_never_made_is_lost(api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode) -> None:
    (loopback.root / "var/lib/hotspare").mkdir(parents=True)
    (loopback.root / "var/lib/hotspare/keep-running").touch()
    access = access_of(api, loopback)
    access.start("deep-test/1", ["all_reduce_perf"], 60.0)
    runner.go_down()
    runner.come_up("another boot")
    assert access.poll("deep-test/1").exit_status == LOST


def test_a_node_is_not_asked_to_restart_itself(api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode) -> None:
    with pytest.raises(CapabilityMissing, match="restarted through EC2"):
        access_of(api, loopback).run(["sudo", "-n", "reboot"], 10.0)
    assert runner.started == []


def test_a_kubelet_that_was_not_heard_of_lately_does_not_count_as_an_answer(api: FakeKubernetes, loopback: LoopbackNode) -> None:
    old = (datetime.now(UTC) - timedelta(seconds=40)).isoformat()
    api.put(LEASE, {"metadata": {"name": "kube-1"}, "spec": {"renewTime": old}}, "kube-node-lease")
    with pytest.raises(NodeUnreachable, match="last heard of 4"):
        access_of(api, loopback).boot_id(10.0)


def test_an_instance_that_is_no_node_of_kubernetes_is_unreachable(api: FakeKubernetes, loopback: LoopbackNode) -> None:
    stranger = loopback.node.model_copy(update={"instance_id": "i-0fff"})
    access_to = AgentAccessTo(api, SETTINGS, KubernetesSettings(), lambda: pytest.fail("no head is asked"))
    with pytest.raises(NodeUnreachable, match="no node of Kubernetes has the instance id i-0fff"):
        access_to(stranger).boot_id(10.0)


def test_the_checks_travel_to_the_node_once_and_answer_there(
    api: FakeKubernetes, runner: PodRunner, loopback: LoopbackNode, tmp_path: Path
) -> None:
    archive = build_archive()
    file = tmp_path / "checks.tar.gz"
    file.write_bytes(archive.content)
    probe = Probe(ChecksArchive(file, archive.digest), SETTINGS)
    access = access_of(api, loopback)
    first = probe.run(access, loopback.node, ProbeWish(no_nvml=True))
    runs = len(runner.started)
    second = probe.run(access, loopback.node, ProbeWish(no_nvml=True))
    assert first.boot_id == second.boot_id == loopback.boot_id
    assert len(runner.started) == runs + 1
    assert len(api.list(CONFIG_MAP, NAMESPACE, labels="hotspare.dev/managed=file")) == 1
