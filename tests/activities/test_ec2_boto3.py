"""The EC2 client against moto on loopback, and against an endpoint that refuses."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from activities import names
from activities.clients.ec2_boto3 import Ec2Boto3, mapped
from activities.clients.provision_boto3 import request_of
from activities.ec2 import InstanceStatus
from activities.errors import (
    AccessRefused,
    BadInput,
    HotspareError,
    NoCapacity,
    PreconditionFailed,
    ProviderBusy,
    Throttled,
    UnknownNode,
)
from activities.provisioning import Launch, client_token
from activities.settings import AwsSettings


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that are good nowhere else."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An EC2 endpoint on loopback."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def ec2(endpoint: str) -> Ec2Boto3:
    return Ec2Boto3(AwsSettings(region="us-east-1", endpoint_url=endpoint))


@pytest.fixture
def instance(endpoint: str) -> str:
    """A running instance of cluster c1."""
    client = boto3.client(
        "ec2", region_name="us-east-1", endpoint_url=endpoint, aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    tags: Any = [{"Key": names.TAG_CLUSTER, "Value": "c1"}, {"Key": "Name", "Value": "node-1"}]
    answer = client.run_instances(
        ImageId="ami-12c6146b",
        InstanceType="p4d.24xlarge",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return str(answer["Instances"][0]["InstanceId"])


def test_an_instance_is_described_with_its_state_place_and_tags(ec2: Ec2Boto3, instance: str) -> None:
    view = ec2.describe(instance)
    assert (view.state, view.instance_type) == ("running", "p4d.24xlarge")
    assert view.zone.startswith("us-east-1")
    assert view.private_ip
    assert view.image_id == "ami-12c6146b"
    assert view.tags["Name"] == "node-1"


def test_the_status_checks_of_an_instance_are_read_whether_it_runs_or_not(ec2: Ec2Boto3, instance: str) -> None:
    assert ec2.status(instance) == InstanceStatus(state="running", system="ok", instance="ok")
    ec2.stop(instance)
    seen = ec2.status(instance)
    assert seen.state == "stopped"
    assert "ok" not in (seen.system, seen.instance)
    with pytest.raises(UnknownNode, match="i-0123456789abcdef0"):
        ec2.status("i-0123456789abcdef0")


def test_a_cluster_is_its_tagged_instances_that_are_not_terminated(ec2: Ec2Boto3, instance: str) -> None:
    assert instance in [view.instance_id for view in ec2.describe_cluster("c1")]
    assert ec2.describe_cluster("another") == []


def test_an_instance_that_does_not_exist_is_an_unknown_node(ec2: Ec2Boto3) -> None:
    with pytest.raises(UnknownNode, match="i-0123456789abcdef0"):
        ec2.describe("i-0123456789abcdef0")


def test_stop_and_start_change_the_state(ec2: Ec2Boto3, instance: str) -> None:
    ec2.stop(instance)
    assert ec2.describe(instance).state == "stopped"
    ec2.start(instance)
    assert ec2.describe(instance).state == "running"
    ec2.reboot(instance)
    assert ec2.describe(instance).state == "running"


def test_tags_are_set_and_removed(ec2: Ec2Boto3, instance: str) -> None:
    ec2.set_tags(instance, {names.TAG_QUARANTINE: "incident/c1/x"})
    assert ec2.describe(instance).tags[names.TAG_QUARANTINE] == "incident/c1/x"
    ec2.remove_tags(instance, [names.TAG_QUARANTINE])
    assert names.TAG_QUARANTINE not in ec2.describe(instance).tags


class Refusing(ThreadingHTTPServer):
    """An endpoint that answers every call with one error, and counts the calls by name."""

    daemon_threads = True

    def __init__(self, status: int, code: str) -> None:
        super().__init__(("127.0.0.1", 0), _Refuse)
        self.calls: Counter[str] = Counter()
        self.status = status
        self.body = f"<Response><Errors><Error><Code>{code}</Code><Message>no</Message></Error></Errors></Response>".encode()


class _Refuse(BaseHTTPRequestHandler):
    server: Refusing

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.calls[parse_qs(body)["Action"][0]] += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def refusing(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    server = Refusing(*request.param)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def refused_by(server: Refusing) -> Ec2Boto3:
    return Ec2Boto3(AwsSettings(region="us-east-1", endpoint_url=f"http://127.0.0.1:{server.server_port}"))


@pytest.mark.parametrize(
    ("refusing", "kind"),
    [
        ((503, "RequestLimitExceeded"), Throttled),
        ((500, "InternalError"), ProviderBusy),
        ((400, "IncorrectInstanceState"), PreconditionFailed),
        ((403, "UnauthorizedOperation"), AccessRefused),
        ((400, "InvalidInstanceID.NotFound"), UnknownNode),
        ((400, "InvalidParameterValue"), BadInput),
        ((500, "InsufficientInstanceCapacity"), NoCapacity),
        ((400, "ReservationCapacityExceeded"), NoCapacity),
        ((500, "InsufficientHostCapacity"), PreconditionFailed),
        ((400, "InsufficientFreeAddressesInSubnet"), PreconditionFailed),
        ((400, "IdempotentParameterMismatch"), PreconditionFailed),
    ],
    indirect=["refusing"],
)
def test_an_error_of_ec2_becomes_ours_and_the_call_is_made_once(refusing: Refusing, kind: type[HotspareError]) -> None:
    with pytest.raises(HotspareError) as raised:
        refused_by(refusing).reboot("i-0abc")
    assert type(raised.value) is kind
    assert refusing.calls == {"RebootInstances": 1}


def test_a_spread_placement_group_that_is_full_stays_full() -> None:
    said = "You have reached the maximum number of instances in this spread placement group"
    answer: Any = {"Error": {"Code": "InsufficientInstanceCapacity", "Message": said}}
    with pytest.raises(PreconditionFailed), mapped("start i-0abc"):
        raise ClientError(answer, "StartInstances")


def test_a_launch_targets_the_reservation_and_names_its_token_and_template() -> None:
    wanted = Launch(
        template="lt-0abc", instance_type="p5.48xlarge", reservation="cr-1", capacity_block=True, tags={names.TAG_CLUSTER: "c"}
    )
    request = request_of(wanted, "t")
    assert (request["ClientToken"], request["LaunchTemplate"]) == ("t", {"LaunchTemplateId": "lt-0abc", "Version": "$Default"})
    target = request["CapacityReservationSpecification"]["CapacityReservationTarget"]
    assert (target, request["InstanceMarketOptions"]) == ({"CapacityReservationId": "cr-1"}, {"MarketType": "capacity-block"})
    assert {one["ResourceType"] for one in request["TagSpecifications"]} == {"instance", "volume", "network-interface"}
    plain = request_of(Launch(template="gpu"), "t")
    assert plain["LaunchTemplate"]["LaunchTemplateName"] == "gpu"
    assert not {"CapacityReservationSpecification", "InstanceMarketOptions", "InstanceType"} & set(plain)
    assert len(client_token("x" * 500)) <= 64


def test_an_endpoint_that_nobody_serves_may_have_been_reached_as_far_as_we_know() -> None:
    server = Refusing(500, "InternalError")
    client = refused_by(server)
    server.server_close()
    with pytest.raises(ProviderBusy) as raised:
        client.reboot("i-0abc")
    assert not isinstance(raised.value, Throttled)


def test_no_credentials_are_a_closed_door_and_no_fault_of_the_node(monkeypatch: pytest.MonkeyPatch, ec2: Ec2Boto3) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    client = Ec2Boto3(AwsSettings(region="us-east-1", endpoint_url="http://127.0.0.1:9"))
    with pytest.raises(AccessRefused, match="get-caller-identity"):
        client.reboot("i-0abc")
