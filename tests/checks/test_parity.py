"""Nodes are compared with each other: who differs is told, and nobody is accused without a reference or by what was not read."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.parity import FACTS, Configuration, Fact, Parity, compare, fits, own_differences
from checks.parity.configuration import UNREADABLE, known, not_applicable, unreadable

TYPE = "p5.48xlarge"
HEALTHY = {
    "kernel": "6.8.0-1029-aws",
    "driver": "580.95.05",
    "fabric_manager": "580.95.05",
    "nccl": "2.26.2",
    "efa_devices": "32",
    "ecc_mode": "on",
}


def node(instance_type: str = TYPE, **changed: str | Fact) -> Configuration:
    facts = {**HEALTHY, **changed}
    return Configuration(instance_type, {name: known(one) if isinstance(one, str) else one for name, one in facts.items()})


def fleet(*nodes: Configuration) -> dict[str, Configuration]:
    return {f"node-{position}": one for position, one in enumerate(nodes, 1)}


def accused(found: dict[str, Parity]) -> dict[str, list[str]]:
    return {name: [one.fact for one in parity.differences] for name, parity in found.items() if parity.differences}


def test_equal_nodes_differ_in_nothing() -> None:
    found = compare(fleet(*[node()] * 4))
    assert accused(found) == {}
    assert {parity.peers for parity in found.values()} == {3}


@pytest.mark.parametrize("fact", sorted(set(FACTS) - {"driver", "fabric_manager"}))
def test_every_fact_can_tell_one_node_from_its_peers(fact: str) -> None:
    most, one = node(**{fact: "as most"}), node(**{fact: "otherwise"})
    found = compare(fleet(most, one, most, most))
    assert accused(found) == {"node-2": [fact]}
    assert found["node-2"].differences[0].words == f"{FACTS[fact]} otherwise here, as most on all 3 of its peers"


def test_of_two_halves_neither_is_accused_and_both_are_told() -> None:
    found = compare(fleet(node(), node(), node(kernel="6.5"), node(kernel="6.5")))
    assert accused(found) == {}
    assert found["node-1"].undecided == found["node-3"].undecided
    assert "6.5 on 2, 6.8.0-1029-aws on 2" in found["node-1"].undecided[0]


def test_of_two_nodes_that_differ_neither_is_accused() -> None:
    assert accused(compare(fleet(node(), node(nccl="2.27")))) == {}


def test_two_against_one_is_a_majority() -> None:
    assert accused(compare(fleet(node(), node(), node(nccl="2.27")))) == {"node-3": ["nccl"]}


def test_three_that_agree_are_a_reference_among_many_values() -> None:
    others = [node(kernel=f"6.{minor}") for minor in range(4)]
    assert set(accused(compare(fleet(node(), node(), node(), *others)))) == {"node-4", "node-5", "node-6", "node-7"}


def test_two_that_agree_among_many_values_are_none() -> None:
    others = [node(kernel=f"6.{minor}") for minor in range(4)]
    assert accused(compare(fleet(node(), node(), *others))) == {}


def test_a_lone_node_has_nobody_to_differ_from() -> None:
    found = compare(fleet(node(kernel="1.0")))
    assert found["node-1"] == Parity()


def test_nodes_of_other_types_and_pools_are_no_peers() -> None:
    nodes = fleet(*[node()] * 3, *[node(instance_type="p4d.24xlarge", kernel="5.15")] * 2, node(kernel="6.1"))
    assert accused(compare(nodes)) == {"node-6": ["kernel"]}
    assert accused(compare(nodes, pools={"node-6": "research"})) == {}


def test_what_could_not_be_read_is_unknown_and_no_difference() -> None:
    found = compare(fleet(node(), node(), node(), node(ecc_mode=unreadable("NVML: hung"))))
    assert accused(found) == {}
    assert found["node-4"].unread == ("ECC mode: NVML: hung",)
    assert found["node-1"].unread == ()


def test_what_nobody_could_read_is_not_missed_on_one() -> None:
    gone = unreadable("no such command")
    assert compare(fleet(*[node(fabric_manager=gone)] * 4))["node-1"].unread == ()


def test_what_a_node_does_not_have_is_neither_a_difference_nor_a_gap() -> None:
    found = compare(fleet(node(), node(), node(ecc_mode=not_applicable("no ECC")), node()))
    assert found["node-3"] == Parity(peers=3)


def test_a_fact_that_is_ignored_accuses_nobody() -> None:
    nodes = fleet(node(), node(), node(), node(kernel="6.1", fabric_manager="570.1"))
    assert accused(compare(nodes, ignored=("kernel", "fabric_manager"))) == {}


def test_fabric_manager_must_be_as_the_driver_without_any_peer() -> None:
    odd = node(fabric_manager="570.172.08")
    assert own_differences(node()) == ()
    assert own_differences(node(fabric_manager=unreadable("?"))) == ()
    assert [one.words for one in own_differences(odd)] == [
        "Fabric Manager 570.172.08 here, 580.95.05 is the driver's version, and the two must be the same"
    ]
    assert accused(compare(fleet(odd, odd, odd))) == {f"node-{number}": ["fabric_manager"] for number in (1, 2, 3)}


def test_pinned_values_go_before_the_majority_and_may_be_patterns() -> None:
    golden = {"*": {"driver": "580.95.*", "fabric_manager": "*"}, TYPE: {"kernel": "6.8.*"}}
    drifted = node(driver="580.105.08", fabric_manager="580.105.08")
    found = compare(fleet(node(), drifted, drifted, drifted), golden)
    assert accused(found) == {f"node-{number}": ["driver"] for number in (2, 3, 4)}
    assert found["node-2"].differences[0].words == "driver 580.105.08 here, 580.95.* is pinned in the settings"


def test_what_is_not_pinned_is_still_compared_with_the_peers() -> None:
    found = compare(fleet(node(), node(nccl="2.27"), node()), {TYPE: {"driver": "580.95.05"}})
    assert accused(found) == {"node-2": ["nccl"]}


def test_a_pinned_value_that_cannot_be_read_is_told_even_alone() -> None:
    assert compare(fleet(node(cuda=unreadable("gone"))), {"*": {"cuda": "12.8*"}})["node-1"].unread == ("CUDA toolkit: gone",)


def test_a_newcomer_has_no_vote_on_what_is_right() -> None:
    assert [one.fact for one in fits(node(driver="580.1", fabric_manager="580.1"), [node()]).differences] == [
        "driver",
        "fabric_manager",
    ]
    assert fits(node(), [node(), node()]) == Parity(peers=2)


def test_a_newcomer_is_not_accused_where_the_others_disagree_or_are_none() -> None:
    parity = fits(node(kernel="6.9"), [node(kernel="6.7"), node(kernel="6.8")])
    assert (parity.differences, len(parity.undecided)) == ((), 1)
    assert fits(node(), []) == Parity()
    assert fits(node(), [node(instance_type="p4d.24xlarge", kernel="5")]).peers == 0


FACT = st.one_of(
    st.sampled_from(["a", "b", "c"]).map(known), st.just(unreadable("no answer")), st.just(not_applicable("none of its own"))
)
NODE = st.builds(
    Configuration, st.sampled_from([TYPE, "p4d.24xlarge"]), st.dictionaries(st.sampled_from(["kernel", "nccl"]), FACT)
)
NODES = st.lists(NODE, max_size=9).map(lambda nodes: fleet(*nodes))


@given(nodes=NODES)
@settings(deadline=None, derandomize=True)
def test_a_value_that_most_have_never_accuses_and_neither_does_what_was_not_read(nodes: dict[str, Configuration]) -> None:
    for name, parity in compare(nodes).items():
        for difference in parity.differences:
            peers = [one.value(difference.fact) for one in nodes.values() if one.instance_type == nodes[name].instance_type]
            votes = Counter(value for value in peers if value is not None)
            assert nodes[name].value(difference.fact) == difference.here
            assert 2 * votes[difference.here] <= sum(votes.values())
            assert votes[difference.there] > votes[difference.here]
        for fact in ("kernel", "nccl"):
            told = any(line.startswith(f"{FACTS[fact]}: ") for line in parity.unread)
            assert not told or nodes[name].get(fact).state == UNREADABLE


@given(nodes=NODES, seed=st.integers(0, 1000))
@settings(deadline=None, derandomize=True)
def test_the_order_of_the_nodes_and_their_names_change_nothing(nodes: dict[str, Configuration], seed: int) -> None:
    shuffled = list(nodes.items())
    random.Random(seed).shuffle(shuffled)
    assert compare(dict(shuffled)) == compare(nodes)
    renamed = compare({f"x{seed}-{name[::-1]}": one for name, one in shuffled})
    assert {name: renamed[f"x{seed}-{name[::-1]}"] for name in nodes} == compare(nodes)


@given(nodes=NODES)
@settings(deadline=None, derandomize=True)
def test_a_node_that_could_not_be_read_changes_no_verdict_on_the_others(nodes: dict[str, Configuration]) -> None:
    before, after = compare(nodes), compare({**nodes, "silent": Configuration(TYPE)})
    assert {name: parity.differences for name, parity in before.items()} == {name: after[name].differences for name in nodes}
    assert after["silent"].differences == ()
