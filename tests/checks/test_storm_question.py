"""One node's fault beside those of others: its own, or its part in one event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.catalog import FAULT_CLASSES
from checks.diagnosis import NodeFault, storm_around, worth_keeping
from checks.diagnosis.storm_question import REMEMBERED, REMEMBERED_S
from checks.model import Action

NOW = 1_800_000_000.0


def crash(node: int, after_s: float = 0.0, job: str = "llama", code: int = 31) -> NodeFault:
    return NodeFault(f"node-{node}", "application", code, NOW + after_s, 90_000.0, job=job)


def fault(
    node: int, fault_class: str, code: int, after_s: float = 0.0, uptime_s: float = 90_000.0, domain: str = ""
) -> NodeFault:
    return NodeFault(f"node-{node}", fault_class, code, NOW + after_s, uptime_s, domain)


def test_a_job_that_crashed_on_77_nodes_is_one_event_which_suspects_the_first_alone() -> None:
    answer = storm_around("node-40", [crash(31, -2), *(crash(node, node / 10) for node in range(77) if node != 31)], 77)
    assert (answer.kind, answer.action, answer.suspect, len(answer.nodes)) == ("application", Action.RESTART_JOB, "node-31", 77)
    assert "one job ended" in answer.reason


def test_another_job_that_crashed_at_the_same_time_is_another_event() -> None:
    faults = [*(crash(node) for node in range(4)), *(crash(node, job="mixtral") for node in range(4, 6))]
    assert storm_around("node-1", faults, 6).nodes == ("node-0", "node-1", "node-2", "node-3")
    assert storm_around("node-5", faults, 6).nodes == ("node-4", "node-5")


def test_a_crash_of_one_node_of_a_job_is_its_own() -> None:
    answer = storm_around("node-1", [crash(1), crash(2, job="mixtral"), crash(3, job="qwen")], 8)
    assert answer.alone
    assert answer.action is Action.NONE


def test_the_node_whose_gpu_was_lost_before_the_crash_goes_its_own_way_and_is_named_to_the_others() -> None:
    faults = [fault(9, "gpu_lost", 79, -5), *(crash(node) for node in range(8))]
    own = storm_around("node-9", faults, 16)
    assert own.alone
    assert "may have ended a job on 8 nodes" in own.reason
    assert storm_around("node-3", faults, 16).suspect == "node-9"


def test_link_faults_behind_one_switch_are_one_fabric_event() -> None:
    faults = [fault(node, "link", 74, node, domain="rack-a") for node in range(3)]
    answer = storm_around("node-2", [*faults, fault(7, "link", 74, domain="rack-b")], 64)
    assert (answer.kind, answer.action, answer.nodes) == ("fabric", Action.CONTACT_SUPPORT, ("node-0", "node-1", "node-2"))
    assert storm_around("node-7", [*faults, fault(7, "link", 74, domain="rack-b")], 64).alone


def test_one_fault_soon_after_the_boot_of_many_nodes_is_a_roll_out() -> None:
    faults = [fault(node, "gsp_hang", 119, node * 900.0, uptime_s=60.0) for node in range(10)]
    answer = storm_around("node-9", faults, 20)
    assert (answer.kind, answer.action) == ("rollout", Action.CONTACT_SUPPORT)
    assert "stop the roll-out" in answer.reason


def test_a_node_of_which_nothing_was_seen_has_no_part_in_anything() -> None:
    assert storm_around("node-5", [crash(1), crash(2)], 8).alone


def test_what_is_remembered_stays_small_however_many_lines_come() -> None:
    flood = [crash(node % 3, after_s=n / 1000) for n, node in enumerate(range(3000))]
    assert len(worth_keeping(flood, NOW + 10)) == 3
    many = [crash(node, after_s=node / 1000) for node in range(2 * REMEMBERED)]
    kept = worth_keeping(many, NOW + 10)
    assert (len(kept), kept[-1].node) == (REMEMBERED, f"node-{2 * REMEMBERED - 1}")
    assert worth_keeping(flood, NOW + REMEMBERED_S + 60) == ()


def test_a_word_that_is_no_fault_class_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault class"):
        NodeFault("node-1", "gpu lost", 79, NOW)


FAULTS = st.builds(
    NodeFault,
    st.sampled_from([f"node-{n}" for n in range(9)]),
    st.sampled_from(sorted(FAULT_CLASSES)),
    st.none() | st.sampled_from([13, 31, 43, 45, 74, 79, 119]),
    st.floats(NOW - 30_000, NOW),
    st.none() | st.floats(0, 5000),
    st.sampled_from(["", "rack-a", "rack-b"]),
    st.sampled_from(["", "llama", "mixtral"]),
    st.sampled_from(["xid", "sxid", "host"]),
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.lists(FAULTS, max_size=40), st.integers(0, 8))
def test_no_storm_disrupts_a_node_and_each_has_a_reason(faults: list[NodeFault], node: int) -> None:
    answer = storm_around(f"node-{node}", worth_keeping(faults, NOW), 9)
    assert answer.reason
    assert answer.action in (Action.NONE, Action.RESTART_JOB, Action.CONTACT_SUPPORT)
    assert answer.alone or (f"node-{node}" in answer.nodes and len(answer.nodes) >= 2)
