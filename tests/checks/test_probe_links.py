"""RDMA ports: what is down, what rises, what has no cable, and what only looks like it."""

from __future__ import annotations

import pytest

from checks.model import Action, Verdict
from checks.thresholds import Thresholds
from tests.checks.node import TestNode
from tests.checks.watching import Watch, add_efa, add_port, count, fault_class, gpus, set_port

HOUR = 3600.0


def test_a_node_without_rdma_says_nothing_of_it(watch: Watch) -> None:
    watch.instance_type = "g5.xlarge"
    assert {one.check for one in watch.look()}.isdisjoint({"ib_link", "ib_errors", "efa_errors", "efa_count"})


def test_a_first_look_accuses_no_counter_however_high(watch: Watch, node: TestNode) -> None:
    add_port(node, "mlx5_0")
    count(node, "mlx5_0", "link_downed", 9)
    count(node, "mlx5_0", "symbol_error", 65535)
    assert watch.ill() == []


@pytest.mark.parametrize(
    ("counter", "to", "verdict", "action"),
    [
        ("link_downed", 1, Verdict.CRITICAL, Action.RUN_DIAGNOSTICS),
        ("link_downed", 2, Verdict.CRITICAL, Action.REPLACE_NODE),
        ("rnr_nak_retry_err", 1, Verdict.CRITICAL, Action.RUN_DIAGNOSTICS),
        ("rnr_nak_retry_err", 3, Verdict.CRITICAL, Action.REPLACE_NODE),
        ("symbol_error", 121, Verdict.CRITICAL, Action.RUN_DIAGNOSTICS),
        ("port_rcv_errors", 601, Verdict.WARN, Action.RUN_DIAGNOSTICS),
        ("link_error_recovery", 6, Verdict.WARN, Action.RUN_DIAGNOSTICS),
        ("local_ack_timeout_err", 61, Verdict.WARN, Action.RUN_DIAGNOSTICS),
        ("port_xmit_discards", 6001, Verdict.WARN, Action.RUN_DIAGNOSTICS),
        ("roce_slow_restart", 601, Verdict.WARN, Action.RUN_DIAGNOSTICS),
    ],
)
def test_a_counter_that_rises_within_a_minute(
    watch: Watch, node: TestNode, counter: str, to: int, verdict: Verdict, action: Action
) -> None:
    add_port(node, "mlx5_0")
    watch.look()
    count(node, "mlx5_0", counter, to)
    (seen,) = watch.ill(60)
    assert (seen.check, seen.verdict, seen.action) == ("ib_errors", verdict, action)
    assert counter in seen.summary
    assert "NVSentinel" in seen.evidence
    accused = {Action.REPLACE_NODE: "host", Action.RUN_DIAGNOSTICS: "unknown_code"}[action]
    assert fault_class([seen]) == ((accused, action) if verdict is Verdict.CRITICAL else ("none", Action.NONE))


@pytest.mark.parametrize(
    ("counter", "to"),
    [
        ("symbol_error", 120),
        ("port_rcv_errors", 599),
        ("link_error_recovery", 5),
        ("local_ack_timeout_err", 59),
        ("port_xmit_discards", 5999),
    ],
)
def test_a_counter_that_rises_as_links_under_load_do_is_in_order(watch: Watch, node: TestNode, counter: str, to: int) -> None:
    add_port(node, "mlx5_0")
    watch.look()
    count(node, "mlx5_0", counter, to)
    assert watch.ill(60) == []


def test_a_rate_that_was_too_high_must_fall_to_half_before_it_is_in_order(watch: Watch, node: TestNode) -> None:
    add_port(node, "mlx5_0")
    watch.look()
    errors = 0
    judged = []
    for per_second in (11, 9, 9, 9, 4, 4, 4):
        errors += per_second * 600
        count(node, "mlx5_0", "port_rcv_errors", errors)
        judged.append(bool(watch.ill(600)))
    assert judged == [True, True, True, True, False, False, False]


def test_a_counter_that_was_reset_has_not_risen(watch: Watch, node: TestNode) -> None:
    add_port(node, "mlx5_0")
    count(node, "mlx5_0", "link_downed", 7)
    watch.look()
    count(node, "mlx5_0", "link_downed", 1)
    assert watch.ill(60) == []


def test_what_links_count_while_they_train_after_a_boot_is_no_fault(watch: Watch, node: TestNode) -> None:
    add_port(node, "mlx5_0")
    node.write("proc/uptime", "40.00 9.00\n")
    watch.look()
    node.write("proc/uptime", "400.00 9.00\n")
    count(node, "mlx5_0", "link_downed", 2)
    assert watch.ill(360) == []


def test_a_cable_that_comes_loose_is_a_fault_after_five_minutes(watch: Watch, node: TestNode) -> None:
    add_port(node, "mlx5_0")
    add_port(node, "mlx5_1")
    watch.look()
    set_port(node, "mlx5_1", "1: DOWN", "2: Polling")
    first = watch.only("ib_link", 60)
    assert (first.verdict, first.action) == (Verdict.WARN, Action.RUN_DIAGNOSTICS)
    assert fault_class([first]) == ("none", Action.NONE)
    later = watch.only("ib_link", 300)
    assert (later.verdict, later.action) == (Verdict.CRITICAL, Action.REPLACE_NODE)
    assert fault_class([later]) == ("host", Action.REPLACE_NODE)
    assert watch.only("ib_link", 6 * HOUR).summary == "RDMA port mlx5_1/1 is down for 366 min"
    set_port(node, "mlx5_1", "4: ACTIVE", "5: LinkUp")
    assert watch.ill(60) == []


def test_a_port_that_is_down_since_the_boot_but_was_up_before_is_a_fault(watch: Watch, node: TestNode) -> None:
    add_port(node, "mlx5_0")
    watch.look()
    node.write("proc/sys/kernel/random/boot_id", "0f5bd0b2-0000-4000-8000-000000000002\n")
    set_port(node, "mlx5_0", "1: DOWN", "2: Polling")
    assert watch.only("ib_link", HOUR).verdict is Verdict.CRITICAL


def test_a_port_that_never_was_up_is_told_and_not_accused(watch: Watch, node: TestNode) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        add_port(node, name)
    set_port(node, "mlx5_1", "1: DOWN", "2: Polling")
    seen = watch.only("ib_link")
    assert (seen.verdict, fault_class([seen])) == (Verdict.WARN, ("none", Action.NONE))
    watch.limits = Thresholds(expected_ib_ports=1)
    assert watch.ill(60) == []


@pytest.mark.parametrize(
    ("instance_type", "ports", "rate", "ill"),
    [
        ("p5.48xlarge", 8, "400 Gb/sec (4X NDR)", False),
        ("p5.48xlarge", 7, "400 Gb/sec (4X NDR)", True),
        ("p5.48xlarge", 8, "200 Gb/sec (4X HDR)", True),
        ("p4d.24xlarge", 1, "200 Gb/sec (4X HDR)", False),
        ("another cloud's", 1, "100 Gb/sec (4X EDR)", False),
        ("another cloud's", 0, "", True),
    ],
)
def test_a_port_without_a_cable_is_in_order_beside_as_many_as_the_gpus_need(
    watch: Watch, node: TestNode, instance_type: str, ports: int, rate: str, ill: bool
) -> None:
    watch.instance_type = instance_type
    for number in range(ports):
        add_port(node, f"mlx5_{number}", rate=rate)
    add_port(node, "mlx5_8")
    set_port(node, "mlx5_8", "1: DOWN", "2: Polling")
    assert {one.verdict for one in watch.ill() if one.check == "ib_link"} == ({Verdict.WARN} if ill else set())


def test_a_port_that_was_switched_off_is_in_order(watch: Watch, node: TestNode) -> None:
    add_port(node, "mlx5_0")
    set_port(node, "mlx5_0", "1: DOWN", "3: Disabled")
    assert watch.ill() == []


def test_a_port_slower_than_others_of_its_model_is_told(watch: Watch, node: TestNode) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        add_port(node, name)
    node.write("sys/class/infiniband/mlx5_1/ports/1/rate", "200 Gb/sec (2X NDR)\n")
    seen = watch.only("ib_link")
    assert (seen.verdict, seen.summary) == (Verdict.WARN, "RDMA port mlx5_1/1 runs at 200 Gb/s, others here at 400")


def test_a_network_card_of_a_blackwell_board_that_was_up_is_no_bridge_when_it_goes_down(watch: Watch, node: TestNode) -> None:
    watch.instance_type = "p6-b200.48xlarge"
    add_port(node, "mlx5_0")
    watch.look()
    set_port(node, "mlx5_0", "1: DOWN", "2: Polling")
    assert watch.only("ib_link", 400).verdict is Verdict.CRITICAL


@pytest.mark.parametrize("marked", [True, False])
def test_the_bridges_of_blackwell_boards_are_no_network_cards(watch: Watch, node: TestNode, marked: bool) -> None:
    watch.instance_type = "p6-b200.48xlarge"
    add_efa(node, 8)
    for name in ("mlx5_4", "mlx5_5"):
        add_port(node, name)
        set_port(node, name, "1: DOWN", "2: Polling")
        if marked:
            (node.root / f"sys/class/infiniband/{name}/device/vpd").write_bytes(b"\x82\x10\x00V3SMDL=SW_MNG\x00")
    watch.look()
    for name in ("mlx5_4", "mlx5_5"):
        count(node, name, "link_downed", 3)
    assert watch.ill(60) == []
    add_port(node, "mlx5_6")
    set_port(node, "mlx5_6", "1: DOWN", "2: Polling")
    assert [one.check for one in watch.ill(60)] == ["ib_link"]


def test_a_board_is_known_by_its_gpus_where_the_instance_type_is_not(watch: Watch, node: TestNode) -> None:
    watch.instance_type = ""
    add_port(node, "mlx5_4")
    set_port(node, "mlx5_4", "1: DOWN", "2: Polling")
    for name, ill in (("NVIDIA GB200", ["ib_link"]), ("NVIDIA H100 80GB HBM3", ["ib_link"]), ("NVIDIA B200", [])):
        watch.nvml = gpus(name=name)
        assert [one.check for one in watch.ill(60)] == ill


@pytest.mark.parametrize("text", ["N/A (no PMA)", None])
def test_a_counter_that_the_device_does_not_have_is_nothing(watch: Watch, node: TestNode, text: str | None) -> None:
    add_port(node, "mlx5_0")
    if text is not None:
        count(node, "mlx5_0", "symbol_error", text)
    else:
        place = node.root / "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"
        place.unlink()
        place.mkdir()
    assert watch.ill() == []


def test_a_port_of_which_no_counter_can_be_read_is_unknown(watch: Watch, node: TestNode) -> None:
    add_port(node, "mlx5_0")
    for folder in ("counters", "hw_counters"):
        for place in (node.root / f"sys/class/infiniband/mlx5_0/ports/1/{folder}").iterdir():
            place.unlink()
            place.mkdir()
    assert watch.only("ib_link").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("broken", ["state", "counter"])
def test_a_port_that_does_not_say_how_it_is_is_unknown(watch: Watch, node: TestNode, broken: str) -> None:
    add_port(node, "mlx5_0")
    if broken == "state":
        (node.root / "sys/class/infiniband/mlx5_0/ports/1/state").unlink()
    else:
        count(node, "mlx5_0", "link_downed", "not a number")
    assert watch.only("ib_link").verdict is Verdict.UNKNOWN
