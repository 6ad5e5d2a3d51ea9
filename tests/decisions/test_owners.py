"""What may be done to a node depends on who owns it: a rung that its owner does not have is refused, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.owners import OWNER_BY_HEALER, Owner, owner_by_tags, owner_of
from checks.model import Action
from tests.decisions.situations import NODE, out
from workflows.decisions.facts import StepKind
from workflows.decisions.ladder import rungs_for
from workflows.decisions.owners import OWNERS, RUNGS, GiveUp, give_up_by_hand, missing_rung, owners_table
from workflows.decisions.policy import next_step
from workflows.decisions.settings import Mode, PolicySettings

ALL_RUNGS = PolicySettings(
    mode=Mode.ACT,
    soft_reboot=True,
    reset_capable_types=["p5.48xlarge"],
    ladders={"gpu_lost": [Action.RESET_GPU, Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE]},
)

EXPECTED = {
    Owner.EC2: RUNGS,
    Owner.GROUP: RUNGS,
    Owner.NODE_GROUP: RUNGS,
    Owner.KARPENTER: (Action.RESET_GPU, Action.SOFT_REBOOT, Action.REBOOT_NODE, Action.REPLACE_NODE),
    Owner.AUTO_MODE: (),
    Owner.HYPERPOD: (Action.RESET_GPU, Action.REBOOT_NODE, Action.REPLACE_NODE),
    Owner.PARALLEL_CLUSTER: (Action.RESET_GPU, Action.REPLACE_NODE),
    Owner.PCS: (Action.RESET_GPU, Action.SOFT_REBOOT, Action.REBOOT_NODE, Action.REPLACE_NODE),
}


@pytest.mark.parametrize("owner", Owner)
@pytest.mark.parametrize("rung", RUNGS)
def test_each_rung_of_each_owner(owner: Owner, rung: Action) -> None:
    rungs = rungs_for(out(owned_by=owner), ALL_RUNGS)
    assert (rung in rungs.left) is (rung in EXPECTED[owner])
    refused = [line for line in rungs.refused if line.startswith(f"{rung.value}: ")]
    if rung in EXPECTED[owner]:
        assert refused == []
    else:
        assert refused == [f"{rung.value}: {missing_rung(owner, rung)}"]
        assert owner.value in refused[0]


def test_the_reason_of_a_missing_rung_is_in_the_decision() -> None:
    step = next_step(out(owned_by=Owner.PARALLEL_CLUSTER), ALL_RUNGS.model_copy(update={"reset_capable_types": []}))
    assert step.kind is StepKind.RETIRE
    assert sum("clustermgtd terminates its instance" in line for line in step.because) == 3


def test_a_rung_that_is_missing_is_passed_over_for_the_next() -> None:
    """Karpenter has no stop: what a reboot did not mend goes to the spare at once."""
    policy = ALL_RUNGS.model_copy(update={"ladders": {"gpu_lost": [Action.POWER_CYCLE, Action.REPLACE_NODE]}})
    step = next_step(out(owned_by=Owner.KARPENTER, job="train", job_told=True), policy)
    assert step.kind is StepKind.REPLACE
    assert any("Karpenter takes an instance that stops for lost" in line for line in step.because)


@pytest.mark.parametrize(
    ("tags", "operator", "owner"),
    [
        ({}, "", Owner.EC2),
        ({"Name": "node-1", "aws:autoscaling:groupName": "gpus"}, "", Owner.GROUP),
        ({"aws:autoscaling:groupName": "eks-gpus-1", "eks:nodegroup-name": "gpus"}, "", Owner.NODE_GROUP),
        ({"karpenter.sh/nodepool": "gpus", "eks:eks-cluster-name": "c"}, "", Owner.KARPENTER),
        ({"karpenter.sh/nodepool": "gpus"}, "eks.amazonaws.com", Owner.AUTO_MODE),
        ({}, "sagemaker.amazonaws.com", Owner.HYPERPOD),
        ({"parallelcluster:cluster-name": "c", "parallelcluster:node-type": "Compute"}, "", Owner.PARALLEL_CLUSTER),
        ({"aws:pcs:compute-node-group-id": "pcs_1", "aws:autoscaling:groupName": "x"}, "", Owner.PCS),
        ({"aws:autoscaling:groupName": ""}, "", Owner.EC2),
        ({}, "somebody.amazonaws.com", Owner.EC2),
    ],
)
def test_the_owner_is_read_from_the_tags_that_owners_write(tags: dict[str, str], operator: str, owner: Owner) -> None:
    assert owner_by_tags(tags, operator) is owner


def test_a_healer_that_was_found_names_an_owner_whose_tag_is_missing() -> None:
    assert {owner_of("", [kind]) for kind in OWNER_BY_HEALER} == set(OWNER_BY_HEALER.values())
    assert owner_of("", ["NVSentinel"]) is Owner.EC2
    assert owner_of("", ["Auto Scaling group", "Karpenter"]) is Owner.KARPENTER
    assert owner_of(Owner.GROUP.value, ["EKS node auto repair"]) is Owner.NODE_GROUP
    assert owner_of(Owner.PCS.value, ["Auto Scaling group"]) is Owner.PCS


def test_a_service_that_owns_the_whole_node_comes_before_its_tags() -> None:
    assert owner_of(Owner.KARPENTER.value, ["EKS Auto Mode"]) is Owner.AUTO_MODE


def test_every_owner_has_a_row_with_a_source_and_reasons_only_for_rungs_of_ours() -> None:
    assert set(OWNERS) == set(Owner)
    for rules in OWNERS.values():
        assert rules.source.startswith("https://")
        assert set(rules.missing) <= set(RUNGS)
        assert isinstance(rules.give_up, GiveUp)


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (Owner.EC2, "aws ec2 terminate-instances --instance-ids i-1"),
        (Owner.GROUP, "--auto-scaling-group-name gpus --instance-ids i-1; aws autoscaling terminate-instance"),
        (Owner.KARPENTER, "kubectl delete nodeclaim"),
        (Owner.HYPERPOD, "batch-replace-cluster-nodes --cluster-name CLUSTER --node-ids i-1"),
        (Owner.PARALLEL_CLUSTER, "scontrol update nodename=node-1 state=drain"),
        (Owner.AUTO_MODE, ""),
    ],
)
def test_a_person_is_told_what_to_type_to_give_a_slot_up(owner: Owner, words: str) -> None:
    told = give_up_by_hand(owner, NODE.model_copy(update={"group": "gpus"}))
    assert words in told
    assert bool(words) is bool(told)


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "owners.md").read_text()
    assert owners_table() in page, "put the output of workflows.decisions.owners.owners_table() into docs/owners.md"
