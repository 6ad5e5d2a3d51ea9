"""What would have been done about the faults of the days before: one answer an episode, storms as one, the ladder climbed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from activities.inventory import Node
from activities.probing import PastLog
from checks.diagnosis import Hardware
from checks.model import Action
from workflows.decisions.settings import Mode, PolicySettings
from workflows.decisions.would_have import EPISODE_S, WouldHave, episodes_of, would_have

NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)
DAY = 86400.0
LOST = "NVRM: Xid (PCI:0000:a3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
CRASH = "NVRM: Xid (PCI:0000:a3:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted"
ECC = "NVRM: Xid (PCI:0000:a3:00): 48, pid='<unknown>', name=<unknown>, DBE (Double Bit Error) ECC Error"
NODES = [Node(instance_id=f"i-0abc{n:04}", name=f"node-{n}", instance_type="p5.48xlarge") for n in range(1, 9)]


def log(*lines: tuple[float, str], boots: Sequence[float] = ()) -> PastLog:
    """A log whose times are seconds before now."""
    now = NOW.timestamp()
    return PastLog("journal", now - 7 * DAY, tuple(now - at for at in boots), tuple((now - at, text) for at, text in lines))


def judged(logs: dict[str, PastLog], policy: PolicySettings | None = None) -> list[WouldHave]:
    """What would have been done, with the logs by node name."""
    by_id = {next(node.instance_id for node in NODES if node.name == name): one for name, one in logs.items()}
    return would_have("lab", NODES, by_id, policy or PolicySettings(mode=Mode.ACT), Hardware("p5.48xlarge"), NOW)


def test_nothing_in_the_logs_is_nothing_to_do() -> None:
    assert judged({"node-1": log(), "node-2": log()}) == []


@pytest.mark.parametrize("mode", list(Mode))
def test_a_lost_gpu_would_have_been_quarantined_and_rebooted_whatever_the_mode(mode: Mode) -> None:
    [one] = judged({"node-1": log((3 * DAY, LOST))}, PolicySettings(mode=mode))
    assert (one.node, one.fault_class, one.code, one.action) == ("node-1", "gpu_lost", 79, Action.REBOOT_NODE)
    assert one.what.startswith("would quarantine node-1 and try REBOOT_NODE")
    assert one.at == NOW - timedelta(days=3)
    assert one.because


def test_a_burst_is_one_episode_and_a_fault_before_a_restart_counts_though_it_is_gone() -> None:
    burst = [(2 * DAY - n, LOST) for n in range(5)]
    found = judged({"node-1": log(*burst, (1 * DAY, LOST), boots=[2 * DAY - 300, 0.5 * DAY])})
    assert [(one.at, one.lines) for one in found] == [(NOW - timedelta(days=2), 5), (NOW - timedelta(days=1), 1)]


def test_what_comes_back_goes_a_rung_up() -> None:
    first, second = judged({"node-1": log((2 * 3600, LOST), (100, LOST), boots=[3600])})
    assert "try REBOOT_NODE" in first.what
    assert "REBOOT_NODE" not in second.what.partition("try ")[2].partition(",")[0]


def test_a_crash_of_one_job_on_many_nodes_disrupts_no_node() -> None:
    found = judged({node.name: log((3600 + n, CRASH)) for n, node in enumerate(NODES)})
    assert found
    assert all("quarantine" not in one.what for one in found)


def test_a_crash_on_one_node_would_have_restarted_its_job() -> None:
    [one] = judged({"node-3": log((3600, CRASH))})
    assert one.what == "would restart the job that ran there after a burn-in"


def test_episodes_are_parted_by_silence_and_by_a_restart_alone() -> None:
    now = NOW.timestamp()
    near, far = EPISODE_S - 1, EPISODE_S + 1
    lines = [(10.0 * far, ECC), (10.0 * far - near, ECC), (10.0 * far - near - far, ECC), (500.0, ECC), (400.0, ECC)]
    parted = list(episodes_of(NODES[0], log(*lines, boots=[450.0])))
    assert [[round(now - at) for at, _ in one.lines] for one in parted] == [
        [round(lines[0][0]), round(lines[1][0])],
        [round(lines[2][0])],
        [500],
        [400],
    ]


def test_a_line_without_a_time_has_no_place() -> None:
    odd = PastLog("dmesg", None, (), ((None, LOST),))
    assert list(episodes_of(NODES[0], odd)) == []
