"""EFA devices: how many there are, what their counters tell, and what is no fault."""

from __future__ import annotations

import pytest

from checks.model import Action, Verdict
from checks.thresholds import Thresholds
from tests.checks.node import TestNode
from tests.checks.watching import Watch, add_efa, count, fault_class, set_port

HOUR = 3600.0


def test_32_efa_devices_that_are_up_are_in_order(watch: Watch, node: TestNode) -> None:
    add_efa(node)
    assert watch.ill() == []
    assert watch.only("efa_count", 60).summary == "32 EFA interfaces are there"
    assert watch.only("ib_link", 60).summary.startswith("32 RDMA ports")


@pytest.mark.parametrize(
    ("instance_type", "have", "verdict"),
    [
        ("p4d.24xlarge", 4, Verdict.OK),
        ("p4d.24xlarge", 3, Verdict.WARN),
        ("p4de.24xlarge", 4, Verdict.OK),
        ("p5.48xlarge", 31, Verdict.WARN),
        ("p5e.48xlarge", 32, Verdict.OK),
        ("p5en.48xlarge", 16, Verdict.OK),
        ("p5en.48xlarge", 15, Verdict.WARN),
        ("p6-b200.48xlarge", 8, Verdict.OK),
        ("p6-b200.48xlarge", 7, Verdict.WARN),
        ("p6-b300.48xlarge", 16, Verdict.OK),
        ("p6e-gb200.36xlarge", 3, Verdict.OK),
        ("own-metal", 2, Verdict.OK),
    ],
)
def test_efa_devices_are_counted_against_the_instance_type(
    watch: Watch, node: TestNode, instance_type: str, have: int, verdict: Verdict
) -> None:
    watch.instance_type = instance_type
    add_efa(node, have)
    seen = watch.only("efa_count")
    assert (seen.verdict, seen.action) == (verdict, Action.NONE)
    if verdict is Verdict.WARN:
        assert fault_class([seen]) == ("configuration", Action.NONE)


def test_efa_devices_without_a_driver_are_a_matter_of_configuration(watch: Watch, node: TestNode) -> None:
    add_efa(node, 32, driver=False)
    assert watch.only("efa_count").summary == "32 of 32 EFA devices have no driver"


def test_a_node_launched_without_efa_is_told_and_not_accused(watch: Watch) -> None:
    seen = watch.only("efa_count")
    assert (seen.verdict, seen.summary) == (Verdict.OK, "this node was launched without EFA interfaces")
    watch.limits = Thresholds(expected_efa=32)
    assert watch.only("efa_count").verdict is Verdict.WARN


def test_a_rise_of_efa_errors_is_told_and_never_accuses(watch: Watch, node: TestNode) -> None:
    (first, *_) = add_efa(node)
    watch.look()
    count(node, first, "unresponsive_remote_events", 3)
    (seen,) = watch.ill(60)
    assert (seen.check, seen.verdict, seen.action) == ("efa_errors", Verdict.WARN, Action.NONE)
    assert "unresponsive_remote_events +3 in 1 min" in seen.evidence
    assert fault_class([seen]) == ("none", Action.NONE)
    assert watch.ill(1200) == []


def test_retransmitted_packets_alone_are_the_normal_life_of_efa(watch: Watch, node: TestNode) -> None:
    (first, *_) = add_efa(node)
    watch.look()
    count(node, first, "retrans_pkts", 100_000)
    assert watch.ill(60) == []


def test_an_efa_device_that_is_down_is_a_fault_even_without_memory(watch: Watch, node: TestNode) -> None:
    names = add_efa(node)
    set_port(node, names[5], "1: DOWN", "3: Disabled")
    assert watch.ill() == []
    set_port(node, names[5], "1: DOWN", "2: Polling")
    assert watch.only("ib_link").verdict is Verdict.CRITICAL
