"""RunInstances and TerminateInstances through boto3. They are never retried here: the client token makes a later try safe."""

from __future__ import annotations

from typing import Any

from activities import names
from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import ONCE, mapped
from activities.errors import BadInput
from activities.provisioning import Launch
from activities.settings import AwsSettings

MADE = ("instance", "volume", "network-interface")
"""What a launch makes and tags."""


class ProvisionBoto3:
    """`ProvisionClient` on AWS or on an endpoint that speaks its protocol, as the worker role that the settings say."""

    def __init__(self, settings: AwsSettings, role: str = "") -> None:
        session = session_of(settings, role)
        with mapped("open the EC2 client"):
            self._change: Any = session.client(
                "ec2", region_name=settings.region or None, endpoint_url=settings.endpoint_url or None, config=ONCE
            )

    def launch(self, wanted: Launch, token: str) -> str:
        with mapped(f"launch {wanted.instance_type} from {wanted.template}"):
            answer = self._change.run_instances(**request_of(wanted, token))
        if not answer["Instances"]:
            raise BadInput(f"EC2 answered a launch from {wanted.template} with no instance")
        return str(answer["Instances"][0]["InstanceId"])

    def terminate(self, instance_id: str) -> None:
        with mapped(f"terminate {instance_id}"):
            self._change.terminate_instances(InstanceIds=[instance_id])


def request_of(wanted: Launch, token: str) -> dict[str, Any]:
    """Build the parameters of RunInstances. A named reservation is targeted: "open" would fall back to on-demand in silence."""
    name = "LaunchTemplateId" if wanted.template.startswith("lt-") else "LaunchTemplateName"
    request: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": token,
        "LaunchTemplate": {name: wanted.template, "Version": wanted.version},
        "TagSpecifications": [{"ResourceType": kind, "Tags": _tags(wanted.tags, kind)} for kind in MADE],
    }
    if wanted.instance_type:
        request["InstanceType"] = wanted.instance_type
    if wanted.reservation:
        target = {"CapacityReservationId": wanted.reservation}
        request["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    if wanted.capacity_block:
        request["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    return request


def _tags(tags: dict[str, str], kind: str) -> list[dict[str, str]]:
    """Volumes and interfaces get the cluster's name alone: their policy asks for it."""
    chosen = tags if kind == "instance" else {key: value for key, value in tags.items() if key == names.TAG_CLUSTER}
    return [{"Key": key, "Value": value} for key, value in chosen.items()]
