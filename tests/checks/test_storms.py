"""One event on many nodes is one incident: a job that crashed, a switch, a roll-out; single faults stay single."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from checks.diagnosis import Sighting, Storm, find_storms
from checks.model import Action

CRASH = 1_800_000_000.0
KINDS = {
    13: ("application", Action.RESTART_JOB),
    43: ("none", Action.NONE),
    45: ("none", Action.NONE),
    74: ("link", Action.RESET_GPU),
    79: ("gpu_lost", Action.REBOOT_NODE),
    64: ("memory_exhausted", Action.REPLACE_NODE),
}


def seen(node: int, code: int = 45, after_s: float | None = 0.0, uptime_s: float | None = 90_000.0) -> Sighting:
    fault_class, action = KINDS[code]
    at = None if after_s is None else CRASH + after_s
    return Sighting(f"node-{node}", "xid", code, fault_class, action, at, uptime_s)


def only(storms: list[Storm]) -> Storm:
    assert len(storms) == 1
    return storms[0]


def test_a_job_crash_on_77_nodes_is_one_application_incident_that_suspects_the_first_node_alone() -> None:
    storm = only(find_storms([seen(31, 13, -2), *(seen(node, after_s=node) for node in range(77))], looked_at=77))
    assert (storm.kind, storm.fault_class, storm.action) == ("application", "application", Action.RESTART_JOB)
    assert (len(storm.nodes), storm.suspect) == (77, "node-31")


def test_a_hardware_fault_just_before_a_crash_is_the_suspect_and_stays_its_nodes_own() -> None:
    lost = seen(9, 79, -30)
    storm = only(find_storms([lost, *(seen(node) for node in range(20))], looked_at=20))
    assert (storm.kind, storm.suspect) == ("application", "node-9")
    assert lost not in storm.sightings


def test_a_fault_of_an_hour_before_is_not_what_ended_the_job() -> None:
    assert only(find_storms([seen(9, 79, -3600), seen(0), seen(1, after_s=3)], looked_at=20)).suspect == "node-0"


def test_nodes_that_fault_in_the_same_second_leave_nobody_suspected() -> None:
    assert only(find_storms([seen(node) for node in range(4)], looked_at=4)).suspect == ""


def test_two_jobs_that_end_hours_apart_are_two_incidents() -> None:
    first, second = [seen(node) for node in range(3)], [seen(node, after_s=7200) for node in range(3, 6)]
    assert [len(storm.nodes) for storm in find_storms(first + second, looked_at=6)] == [3, 3]


def test_only_lines_from_ten_minutes_before_to_five_after_a_jobs_end_are_laid_to_it() -> None:
    near = [seen(0, after_s=-599), seen(1, after_s=-400), seen(2, after_s=-110), seen(3, after_s=150), seen(4, after_s=299)]
    far = [seen(5, after_s=-601), seen(6, after_s=301)]
    assert only(find_storms(near + far, looked_at=7, job_ended_at=CRASH)).nodes == tuple(f"node-{node}" for node in range(5))


def test_an_application_fault_of_one_node_is_no_storm() -> None:
    assert find_storms([seen(1, 13), seen(1, 43), seen(1)], looked_at=5) == []


def test_link_faults_on_several_nodes_of_one_domain_are_one_fabric_incident() -> None:
    faults = [seen(node, 74, node) for node in (1, 2)]
    storm = only(find_storms(faults, looked_at=18, domains={"node-1": "rack-a", "node-2": "rack-a"}))
    assert (storm.kind, storm.action, storm.nodes) == ("fabric", Action.CONTACT_SUPPORT, ("node-1", "node-2"))
    assert find_storms(faults, looked_at=18, domains={"node-1": "rack-a", "node-2": "rack-b"}) == []


def test_where_no_domain_is_known_two_link_faults_may_be_chance_and_three_are_not() -> None:
    assert find_storms([seen(node, 74) for node in range(2)], looked_at=4) == []
    assert only(find_storms([seen(node, 74) for node in range(3)], looked_at=4)).kind == "fabric"
    assert find_storms([seen(node, 74) for node in range(3)], looked_at=100) == []


def test_link_faults_of_different_days_are_single_faults() -> None:
    assert find_storms([seen(node, 74, node * 86_400.0) for node in range(3)], looked_at=3) == []


def test_jobs_that_a_switch_ended_belong_to_the_fabric_incident() -> None:
    faults = [*(seen(node, 74) for node in range(4)), *(seen(node, 45, 5) for node in range(8))]
    storm = only(find_storms(faults, looked_at=8))
    assert (storm.kind, len(storm.nodes), storm.codes) == ("fabric", 8, ("xid:45", "xid:74"))


def test_one_fault_soon_after_the_boot_of_many_nodes_is_one_roll_out() -> None:
    faults = [seen(node, 79, after_s=node * 900.0, uptime_s=40.0) for node in range(30)]
    storm = only(find_storms(faults, looked_at=30))
    assert (storm.kind, storm.action, len(storm.nodes)) == ("rollout", Action.CONTACT_SUPPORT, 30)


def test_the_same_fault_on_nodes_that_are_long_up_is_no_roll_out() -> None:
    assert find_storms([seen(node, 79) for node in range(30)], looked_at=30) == []


def test_few_of_many_fresh_nodes_with_a_fault_are_single_faults() -> None:
    assert find_storms([seen(node, 79, uptime_s=40.0) for node in range(4)], looked_at=288) == []


def test_lines_without_a_time_of_day_are_taken_together_with_low_confidence() -> None:
    storm = only(find_storms([seen(node, after_s=None) for node in range(5)], looked_at=5))
    assert (storm.kind, storm.suspect, storm.confidence.value, storm.span) == ("application", "", "LOW", (None, None))


SIGHTINGS = st.builds(
    seen,
    st.integers(0, 12),
    st.sampled_from(sorted(KINDS)),
    st.none() | st.floats(-5000, 5000),
    st.none() | st.floats(0, 2000),
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.lists(SIGHTINGS, max_size=40))
def test_of_any_mixture_no_sighting_is_in_two_storms_and_no_storm_disrupts_a_node(faults: list[Sighting]) -> None:
    storms = find_storms(faults, looked_at=13)
    members = [id(one) for storm in storms for one in storm.sightings]
    assert len(members) == len(set(members))
    assert set(members) <= {id(one) for one in faults}
    for storm in storms:
        assert len(storm.nodes) >= 2
        assert storm.action in (Action.RESTART_JOB, Action.CONTACT_SUPPORT)
        assert storm.because
