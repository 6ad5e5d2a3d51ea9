"""AWS that throttles, fails, lags, refuses or loses its answers: the right error, nothing done twice, nothing taken for well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import boto3
import pytest
from botocore.config import Config
from temporalio.exceptions import ApplicationError

from activities import names
from activities.clients import ec2_boto3
from activities.clients.ec2_boto3 import Ec2Boto3
from activities.clients.fake_fleet import FakeFleet
from activities.ec2 import DisruptNode, Ec2Activities, InspectInstance, TagNode
from activities.inventory import Node
from activities.node_access import NodeAccess
from activities.settings import AwsSettings, EffectSettings
from tests.activities.aws_faults import Fault, FaultyEndpoint
from tests.activities.conftest import attempt

OWNER = "incident/c1/i-1"
NO_ANSWER_S = 0.5


class BootOf:
    """The part of a node's access that tells its boot: another one for each reboot and stop that EC2 has carried out."""

    def __init__(self, endpoint: FaultyEndpoint) -> None:
        self._endpoint = endpoint

    def boot_id(self, deadline_s: float) -> str:
        return f"boot-{self._endpoint.carried_out['RebootInstances'] + self._endpoint.carried_out['StopInstances']}"


class Scene:
    """One quarantined instance, and the activities over an endpoint that misbehaves."""

    def __init__(self, endpoint: FaultyEndpoint) -> None:
        self.endpoint = endpoint
        fleet = FakeFleet()
        self.memory = fleet.memory
        past = boto3.client("ec2", region_name="us-east-1", endpoint_url=endpoint.moto_url)
        tags: Any = [{"Key": names.TAG_QUARANTINE, "Value": OWNER}]
        made = past.run_instances(
            ImageId="ami-12c6146b", MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]
        )
        self.id = str(made["Instances"][0]["InstanceId"])
        self.node = Node(instance_id=self.id, name="node-1")
        self.ec2 = Ec2Boto3(AwsSettings(region="us-east-1", endpoint_url=endpoint.url))
        self.activities = Ec2Activities(
            self.ec2, lambda of: cast(NodeAccess, BootOf(endpoint)), self.memory, EffectSettings(), fleet.clock
        )

    def disrupt(self) -> DisruptNode:
        return DisruptNode(node=self.node, boot_id="boot-0", token="incident/c1/i-1@run#1", quarantined_by=OWNER)

    def tag(self) -> TagNode:
        return TagNode(instance_id=self.id, set={names.TAG_LEASE: "replace/c1/i-9"}, token="replace/c1/i-9@run#2")

    def tags(self) -> dict[str, str]:
        return self.ec2.describe(self.id).tags


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    quick = Config(connect_timeout=5, read_timeout=NO_ANSWER_S, retries={"total_max_attempts": 1})
    monkeypatch.setattr(ec2_boto3, "ONCE", quick)
    endpoint = FaultyEndpoint()
    yield Scene(endpoint)
    endpoint.close()


def failure(call: Callable[[], object]) -> ApplicationError:
    with pytest.raises(ApplicationError) as raised:
        call()
    return raised.value


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"])
def test_a_throttled_reboot_was_not_made_and_is_made_once_by_the_next_attempt(scene: Scene, code: str) -> None:
    scene.endpoint.next(Fault("RebootInstances", "refused", code=code))
    error = failure(lambda: attempt().run(scene.activities.reboot_node, scene.disrupt()))
    assert (error.type, error.non_retryable) == ("Throttled", False)
    assert attempt(2).run(scene.activities.reboot_node, scene.disrupt()).made_now
    assert scene.endpoint.carried_out["RebootInstances"] == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault("RebootInstances", "failed", status=500, code="InternalError"),
        Fault("RebootInstances", "failed", status=503, code="Unavailable"),
        Fault("RebootInstances", "lost"),
        Fault("RebootInstances", "silent"),
        Fault("RebootInstances", "garbled", status=200),
    ],
    ids=["500", "503", "reset", "silence", "garbage"],
)
def test_a_reboot_without_a_clear_answer_may_have_been_made_and_is_not_made_again(scene: Scene, fault: Fault) -> None:
    scene.endpoint.next(fault)
    error = failure(lambda: attempt().run(scene.activities.reboot_node, scene.disrupt()))
    assert (error.type, error.non_retryable) == ("ProviderBusy", False)
    assert not attempt(2).run(scene.activities.reboot_node, scene.disrupt()).made_now
    assert scene.endpoint.asked["RebootInstances"] == 1


@pytest.mark.parametrize("kind", ["failed", "lost"])
def test_a_power_cycle_that_loses_its_answers_on_the_way_stops_and_starts_once(scene: Scene, kind: str) -> None:
    scene.endpoint.next(Fault("StopInstances", kind, status=500, code="InternalError"))
    scene.endpoint.next(Fault("StartInstances", kind, status=500, code="InternalError"))
    for number in (1, 2):
        error = failure(lambda number=number: attempt(number).run(scene.activities.power_cycle_node, scene.disrupt()))  # type: ignore[misc]
        assert (error.type, error.non_retryable) == ("ProviderBusy", False)
    attempt(3).run(scene.activities.power_cycle_node, scene.disrupt())
    assert (scene.endpoint.carried_out["StopInstances"], scene.endpoint.carried_out["StartInstances"]) == (1, 1)
    assert scene.ec2.describe(scene.id).state == "running"


@pytest.mark.parametrize("call", ["RebootInstances", "StopInstances", "CreateTags"])
@pytest.mark.parametrize("code", ["UnauthorizedOperation", "ExpiredToken", "AuthFailure"])
def test_a_refusal_of_aws_is_final_says_so_and_changes_nothing(scene: Scene, call: str, code: str) -> None:
    scene.endpoint.next(Fault(call, "refused", times=9, status=403, code=code))
    work: dict[str, Callable[[], object]] = {
        "RebootInstances": lambda: attempt().run(scene.activities.reboot_node, scene.disrupt()),
        "StopInstances": lambda: attempt().run(scene.activities.power_cycle_node, scene.disrupt()),
        "CreateTags": lambda: attempt().run(scene.activities.tag_node, scene.tag()),
    }
    error = failure(work[call])
    assert (error.type, error.non_retryable) == ("AccessRefused", True)
    assert code in error.message
    assert (scene.endpoint.asked[call], scene.endpoint.carried_out[call]) == (1, 0)
    assert scene.tags() == {names.TAG_QUARANTINE: OWNER}


def test_a_node_whose_owner_cannot_be_seen_is_not_rebooted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.endpoint.next(Fault("DescribeInstances", "refused", times=99, status=500, code="InternalError"))
    monkeypatch.setattr(ec2_boto3, "PATIENT", ec2_boto3.ONCE)
    blind = Ec2Boto3(AwsSettings(region="us-east-1", endpoint_url=scene.endpoint.url))
    activities = Ec2Activities(
        blind, lambda of: cast(NodeAccess, BootOf(scene.endpoint)), scene.memory, EffectSettings(), FakeFleet().clock
    )
    error = failure(lambda: attempt().run(activities.reboot_node, scene.disrupt()))
    assert (error.type, error.non_retryable) == ("ProviderBusy", False)
    assert scene.endpoint.asked["RebootInstances"] == 0


def test_a_look_is_tried_again_by_itself_when_aws_hiccups(scene: Scene) -> None:
    for fault in (Fault("DescribeInstances", "refused", code="RequestLimitExceeded"), Fault("DescribeInstances", "lost")):
        scene.endpoint.next(fault)
    assert scene.ec2.describe(scene.id).state == "running"
    assert scene.endpoint.asked["DescribeInstances"] == 3


def test_tags_that_show_late_are_not_written_twice_and_their_absence_is_no_proof(scene: Scene) -> None:
    scene.tags()  # this is what a lagging EC2 goes on showing
    scene.endpoint.next(Fault("CreateTags", "lost"))
    error = failure(lambda: attempt().run(scene.activities.tag_node, scene.tag()))
    assert (error.type, error.non_retryable) == ("ProviderBusy", False)
    scene.endpoint.next(Fault("DescribeInstances", "stale", times=5))
    attempt(2).run(scene.activities.tag_node, scene.tag())
    assert scene.endpoint.carried_out["CreateTags"] == 1
    assert scene.tags()[names.TAG_LEASE] == "replace/c1/i-9"


@pytest.mark.parametrize(
    "fault",
    [
        Fault("DescribeInstanceStatus", "refused", times=9, status=500, code="InternalError"),
        Fault("DescribeInstanceStatus", "refused", times=9, status=503, code="RequestLimitExceeded"),
        Fault("DescribeInstanceStatus", "garbled", times=9),
        Fault("DescribeInstanceStatus", "lost", times=9),
    ],
    ids=["500", "throttled", "garbage", "reset"],
)
def test_a_second_opinion_that_cannot_be_had_is_an_error_and_never_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(ec2_boto3, "PATIENT", ec2_boto3.ONCE)
    blind = Ec2Boto3(AwsSettings(region="us-east-1", endpoint_url=scene.endpoint.url))
    activities = Ec2Activities(blind, lambda of: cast(NodeAccess, BootOf(scene.endpoint)), scene.memory, EffectSettings())
    scene.endpoint.next(fault)
    error = failure(lambda: attempt().run(activities.instance_status, InspectInstance(node=scene.node)))
    assert error.type in ("ProviderBusy", "Throttled")
    assert not error.non_retryable


def test_a_status_that_lags_behind_the_instance_says_what_it_is_and_not_ok_by_default(scene: Scene) -> None:
    """Just after a start the checks have no result yet: that is no "ok"."""
    scene.ec2.stop(scene.id)
    seen = scene.ec2.status(scene.id)
    assert seen.state == "stopped"
    assert "ok" not in (seen.system, seen.instance)
