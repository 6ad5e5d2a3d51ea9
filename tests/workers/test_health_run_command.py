"""What doctor asks of AWS for nodes that are reached by Run Command, and the hints where nobody logs in by SSH."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.errors import BadInput
from activities.inventory import Node
from activities.permissions import Identity
from workers.cli.health_aws import resource_of, wanted_by
from workers.cli.health_nodes import _by_hand
from workers.cli.words import after_take_over
from workers.demo.stories import Setting
from workers.settings import Settings, parse_settings

NODE = Node(instance_id="i-0abc", name="node-1", ip="10.0.0.1", instance_type="p5.48xlarge")


def settings(mode: str) -> Settings:
    tables = {"cluster": {"name": "blue"}, "policy": {"mode": mode}, "access": {"kind": "ssm"}}
    return parse_settings(tables, Path("hotspare.toml"))


def wanted(mode: str) -> dict[str, tuple[str, ...]]:
    return {one.action: one.roles for one in wanted_by(settings(mode), "", [NODE]) if one.action.startswith("ssm:")}


def test_who_acts_needs_to_send_and_to_cancel() -> None:
    assert wanted("act") == {
        "ssm:CancelCommand": ("aws", "ssh"),
        "ssm:DescribeInstanceInformation": ("aws", "ssh", "intake"),
        "ssm:GetCommandInvocation": ("aws", "ssh", "intake"),
        "ssm:SendCommand": ("aws", "ssh", "intake"),
    }


def test_who_observes_needs_no_more_than_the_document_that_looks() -> None:
    assert set(wanted("observe")) == {"ssm:DescribeInstanceInformation", "ssm:GetCommandInvocation", "ssm:SendCommand"}
    who = Identity(arn="arn:aws-us-gov:sts::111122223333:assumed-role/x/y", region="us-gov-west-1")
    found = resource_of("ssm:SendCommand", who, settings("observe"), [NODE])
    assert found == "arn:aws-us-gov:ssm:us-gov-west-1:111122223333:document/hotspare-node-look"


def test_nodes_of_hyperpod_are_not_reached_so() -> None:
    tables = {"cluster": {"name": "blue"}, "aws": {"provider": "hyperpod", "hyperpod_cluster": "x"}, "access": {"kind": "ssm"}}
    with pytest.raises(BadInput, match=r'access\.kind: "ssm" reaches instances of EC2'):
        parse_settings(tables, Path("hotspare.toml"))


@pytest.mark.parametrize(("orchestrator", "allowed"), [("command", True), ("slurm", True), ("kubernetes", False)])
def test_the_demonstration_takes_it_where_the_lab_does(orchestrator: str, allowed: bool) -> None:
    if allowed:
        assert "Run Command" in Setting(orchestrator, access="ssm").protocols
        return
    with pytest.raises(ValueError, match="not by ssm"):
        Setting(orchestrator, access="ssm")


def test_hints_name_no_ssh() -> None:
    assert _by_hand(settings("act"), NODE) == (
        "look for its agent: aws ssm describe-instance-information --filters Key=InstanceIds,Values=i-0abc"
    )
    commands = [command for command, _ in after_take_over(NODE, settings("act"))]
    assert commands[0] == "aws ssm start-session --target i-0abc"
    assert [command for command in commands if command.startswith("ssh")] == []
