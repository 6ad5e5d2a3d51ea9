"""What `hotspare doctor` says of Slurm: a flavour that would end nodes, jobs soon forgotten, a login that may change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities.all_healers import AllHealers
from activities.inventory import Node
from activities.owners import Owner
from activities.settings_jobs import SlurmSettings
from checks.model import Verdict
from tests.activities.slurm_head import NODES, Head, node_row, slurm_of
from workers.cli.health import Line
from workers.cli.health_slurm import lines_of
from workers.cli.other_healers import CLUSTERMGTD, check_healers, compare
from workers.settings import Settings, load_settings
from workflows.decisions.settings import PolicySettings


def settings_of(folder: Path, **slurm: Any) -> Settings:
    """Settings of a cluster on Slurm."""
    file = folder / "hotspare.toml"
    file.write_text('[cluster]\nname = "lab"\n[job]\nadapter = "slurm"\nhead = "head"\n')
    return load_settings(file).model_copy(update={"slurm": SlurmSettings(**slurm)})


def told(head: Head, settings: Settings, nodes: list[Node] | None = None) -> list[Line]:
    """What doctor says."""
    return lines_of(settings, slurm_of(head, settings.slurm), NODES if nodes is None else nodes)


def all_nodes() -> Head:
    """A Slurm that has every node of the inventory, and lets us change them."""
    head = Head.newer([], [node_row(at, ["IDLE"]) for at in (1, 2, 3, 4)])
    head.user = "slurm"
    return head


def test_a_slurm_that_is_set_up_well_is_ok(tmp_path: Path) -> None:
    lines = told(all_nodes(), settings_of(tmp_path))
    assert {line.verdict for line in lines} == {Verdict.OK}
    assert "22.05.8: 4 of 4 nodes" in lines[0].text


def test_nodes_that_slurm_does_not_know_are_named(tmp_path: Path) -> None:
    head = Head.newer([], [node_row(at, ["IDLE"]) for at in (1, 2)])
    line = told(head, settings_of(tmp_path))[0]
    assert line.verdict is Verdict.WARN
    assert "no node for node-3, spare-1" in line.text


@pytest.mark.parametrize(
    ("owner", "flavour", "verdict"),
    [
        (Owner.PARALLEL_CLUSTER, "plain", Verdict.CRITICAL),
        (Owner.PARALLEL_CLUSTER, "parallelcluster", None),
        (Owner.PCS, "plain", Verdict.WARN),
        (Owner.EC2, "plain", None),
    ],
)
def test_a_flavour_that_is_not_the_owners_is_told_and_is_critical_where_a_drain_terminates(
    tmp_path: Path, owner: Owner, flavour: str, verdict: Verdict | None
) -> None:
    nodes = [node.model_copy(update={"owner": owner.value}) for node in NODES]
    lines = [line for line in told(all_nodes(), settings_of(tmp_path, flavour=flavour), nodes) if line.part == "Slurm flavour"]
    assert [line.verdict for line in lines] == ([verdict] if verdict else [])
    assert all("slurm.flavour" in line.do for line in lines)


def test_jobs_that_are_soon_forgotten_or_never_requeued_are_told(tmp_path: Path) -> None:
    head = all_nodes()
    head.config |= {"MinJobAge": "300 sec", "JobRequeue": "0"}
    texts = [line.text for line in told(head, settings_of(tmp_path)) if line.verdict is Verdict.WARN]
    assert [("300 s" in text, "JobRequeue=0" in text) for text in texts] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("user", "sudo", "refused", "verdict"),
    [
        ("root", False, [], Verdict.OK),
        ("slurm", False, [], Verdict.OK),
        ("hotspare", False, [], Verdict.WARN),
        ("hotspare", True, [], Verdict.OK),
        ("hotspare", True, ["scancel"], Verdict.CRITICAL),
        ("hotspare", True, ["scontrol", "scancel"], Verdict.CRITICAL),
    ],
)
def test_what_the_login_may_do_is_tried_without_changing_anything(
    tmp_path: Path, user: str, sudo: bool, refused: list[str], verdict: Verdict
) -> None:
    head = all_nodes()
    head.user = user
    head.refusals |= dict.fromkeys(refused, "no")
    (line,) = [line for line in told(head, settings_of(tmp_path, sudo=sudo)) if line.part == "Slurm rights"]
    assert line.verdict is verdict
    assert all(program in line.text for program in refused)
    assert head.changes == []


@pytest.mark.parametrize("flavour", ["plain", "parallelcluster"])
def test_the_daemon_that_terminates_silent_nodes_is_named_where_it_is_at_work(tmp_path: Path, flavour: str) -> None:
    lines, kinds = check_healers(settings_of(tmp_path, flavour=flavour), Alone(), NODES)  # type: ignore[arg-type]
    assert kinds == ([CLUSTERMGTD] if flavour == "parallelcluster" else [])
    assert any("4 nodes; kept away by Slurm's state FAIL" in line.text for line in lines) is bool(kinds)
    assert all(one.in_the_middle for one in compare(PolicySettings(), kinds))
    assert len(compare(PolicySettings(), kinds)) == len(kinds)


class Alone:
    """A wiring on which nobody else repairs a node."""

    healers = AllHealers([], None)  # type: ignore[arg-type]
