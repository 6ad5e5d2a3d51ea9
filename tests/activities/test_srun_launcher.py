"""In which order srun gets onto drained nodes, and what stands in Slurm when something fails on the way; on a small head node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.clients.srun_launcher import SrunLauncher, job_name
from activities.errors import CommandFailed, NodeUnreachable, NotOurs
from activities.inventory import Node
from activities.names import incident_id
from activities.node_access import CommandResult, DetachedRun
from activities.settings_burn_in import BurnInSettings
from activities.settings_jobs import SlurmSettings
from activities.slurm_marks import SlurmMarks, mark_in
from tests.activities.slurm_head import NODES, Head, node_row, slurm_of

OURS = "hotspare incident/lab/i-0000000000000002 2026-01-02T03:04:05+00:00: XID 79"
JOB = job_name("burn/1")


class SrunHead(Head):
    """Keeps node states, reservations and one run; `log` has what was done, in order."""

    def __init__(self, *reasons: str) -> None:
        rows = [node_row(at, ["IDLE", *(["DRAIN"] if reason else [])], reason) for at, reason in enumerate(reasons, 1)]
        super().__init__(json.dumps({"jobs": [], "errors": []}), "", scontrol_json=True)
        self.rows: dict[str, dict[str, Any]] = {row["name"]: row for row in rows}
        self.reserved: set[str] = set()
        self.endless: set[str] = set()
        self.log: list[str] = []
        self.command: list[str] = []
        self.ended = False
        self.start_fails = self.drain_fails = False
        self.on_change = self._take

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        self.nodes = json.dumps({"nodes": list(self.rows.values()), "errors": []})
        words = [word for word in command if word not in ("sudo", "-n")]
        if words[0] == "squeue" and f"--name={JOB}" in words:
            return CommandResult(exit_status=0, stdout="RUNNING\n" if self.command and not self.ended else "", stderr="")
        if words[:2] == ["scontrol", "--oneliner"]:
            lasts = {name: "365-00:00:00" if name in self.endless else "00:20:00" for name in self.reserved}
            shown = "".join(f"ReservationName={name} Duration={span} Nodes=p5-st-[1-2]\n" for name, span in lasts.items())
            return CommandResult(exit_status=0, stdout=shown, stderr="")
        if self.drain_fails and "state=drain" in words and "nodename=p5-st-1" in words:
            return CommandResult(exit_status=1, stdout="", stderr="slurm_update error: Unable to contact slurm controller")
        return super().run(command, deadline_s, output_limit)

    def _take(self, words: list[str]) -> None:
        told = dict(word.partition("=")[::2] for word in words if "=" in word)
        if words[:2] == ["create", "reservation"]:
            self.reserved.add(told["reservationname"])
            self.endless |= {told["reservationname"]} if told["duration"] == "infinite" else set()
            self.log.append("reserve")
        elif words[0] == "delete":
            self.reserved.discard(told["reservationname"])
            self.log.append("unreserve")
        elif "nodename" in told:
            row = self.rows[told["nodename"]]
            drained = told["state"] == "drain"
            row["state"], row["reason"] = ["IDLE", *(["DRAIN"] if drained else [])], told.get("reason", "")
            self.log.append(f"{told['state']} {told['nodename']}")
        elif "duration" in told or "endtime" in told:
            self.endless.discard(told["reservationname"])
            self.log.append("limit reservation")

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        self.log.append("start")
        if self.start_fails:
            raise NodeUnreachable("head: no answer")
        self.command = command

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        return DetachedRun(run_id=run_id, known=bool(self.command), exit_status=0 if self.ended else None)

    def kill(self, run_id: str) -> None:
        self.ended = True


def launcher(head: SrunHead, nodes: list[Node] | None = None) -> SrunLauncher:
    chosen = SlurmSettings()
    slurm = slurm_of(head, chosen, nodes)
    return SrunLauncher(lambda: head, slurm, SlurmMarks(slurm, chosen), BurnInSettings())


def test_nodes_that_are_not_drained_need_no_reservation_and_the_job_has_its_name_and_its_nodes() -> None:
    head = SrunHead("", "", "")
    launcher(head).start("burn/1", NODES[:2], 90.0)
    assert head.log == ["start"]
    environment = json.loads(head.command[4])["environment"]
    assert (environment["SLURM_JOB_NAME"], environment["SLURM_TIMELIMIT"]) == (JOB, "2")
    assert "SLURM_RESERVATION" not in environment
    assert "--nodelist=p5-st-1,p5-st-2" in head.command
    assert "--immediate=60" in head.command


def test_a_drained_node_is_resumed_behind_a_reservation_and_drained_again_once_the_job_has_it() -> None:
    head = SrunHead("", OURS, "")
    launcher(head).start("burn/1", NODES[:2], 90.0)
    assert head.log == ["reserve", "resume p5-st-2", "start", "drain p5-st-2", "limit reservation"]
    assert mark_in(head.rows["p5-st-2"]["reason"]) == mark_in(OURS)
    assert json.loads(head.command[4])["environment"]["SLURM_RESERVATION"] == JOB


def test_a_start_that_fails_leaves_the_node_drained_with_its_reason_and_no_reservation() -> None:
    head = SrunHead("", OURS, "")
    head.start_fails = True
    with pytest.raises(NodeUnreachable):
        launcher(head).start("burn/1", NODES[:2], 90.0)
    assert head.log == ["reserve", "resume p5-st-2", "start", "drain p5-st-2", "unreserve"]
    assert mark_in(head.rows["p5-st-2"]["reason"]) == mark_in(OURS)


def test_a_node_that_cannot_be_drained_again_keeps_no_other_from_it_and_the_reservation_has_no_end() -> None:
    head = SrunHead(OURS, OURS, "")
    head.drain_fails = True
    with pytest.raises(CommandFailed):
        launcher(head).start("burn/1", NODES[:2], 90.0)
    assert "drain p5-st-2" in head.log
    assert "limit reservation" not in head.log
    assert head.reserved == {JOB}


def test_the_end_of_a_run_and_a_kill_take_the_reservation_away_and_cancel_what_slurm_still_has() -> None:
    for act in ("poll", "kill"):
        head = SrunHead("", OURS, "")
        one = launcher(head)
        one.start("burn/1", NODES[:2], 90.0)
        head.ended = act == "poll"
        getattr(one, act)("burn/1")
        assert head.reserved == set()
        assert ["scancel", f"--name={JOB}"] in head.changes


QUARANTINED = [
    NODES[0].model_copy(update={"quarantine": incident_id("lab", NODES[0].instance_id)}),
    NODES[1].model_copy(update={"quarantine": incident_id("lab", NODES[1].instance_id)}),
    NODES[2],
]


@pytest.mark.parametrize("act", ["poll", "kill"])
def test_a_start_that_died_once_its_run_had_begun_has_its_nodes_drained_again_before_anybody_gets_them(act: str) -> None:
    """A later try finds the run known and starts nothing, so it is the run's end that finds the nodes without their marks."""
    head = SrunHead(OURS, OURS, "")
    one = launcher(head, QUARANTINED)
    head.drain_fails = True
    with pytest.raises(CommandFailed):
        one.start("burn/1", QUARANTINED[:2], 90.0)
    head.drain_fails = False
    head.rows["p5-st-2"] |= {"state": ["IDLE"], "reason": ""}  # a worker that was killed had not come to this one either
    head.ended = act == "poll"
    head.log.clear()
    getattr(one, act)("burn/1", [QUARANTINED[0]])
    assert head.log == ["drain p5-st-1", "drain p5-st-2", "limit reservation", "unreserve"]
    for at in (0, 1):
        mark = mark_in(head.rows[f"p5-st-{at + 1}"]["reason"])
        assert mark is not None
        assert mark.owner == QUARANTINED[at].quarantine


def test_while_a_mark_cannot_be_put_back_the_reservation_keeps_everybody_off() -> None:
    head = SrunHead(OURS, OURS, "")
    one = launcher(head, QUARANTINED)
    head.drain_fails = True
    with pytest.raises(CommandFailed):
        one.start("burn/1", QUARANTINED[:2], 90.0)
    head.ended = True
    with pytest.raises(CommandFailed):
        one.poll("burn/1", QUARANTINED[:2])
    assert head.reserved == head.endless == {JOB}


def test_a_quarantine_that_was_lifted_while_its_run_went_on_is_not_put_back_at_the_end() -> None:
    head = SrunHead("", OURS, "")
    one = launcher(head, QUARANTINED)
    one.start("burn/1", QUARANTINED[:2], 90.0)
    head.rows["p5-st-2"] |= {"state": ["IDLE"], "reason": ""}
    head.ended = True
    one.poll("burn/1", QUARANTINED[:2])
    assert head.rows["p5-st-2"]["state"] == ["IDLE"]
    assert head.reserved == set()


def test_what_somebody_else_drained_is_refused_before_anything_is_changed() -> None:
    head = SrunHead("", "cable swap, bob", "")
    with pytest.raises(NotOurs, match="cable swap"):
        launcher(head).start("burn/1", NODES[:2], 90.0)
    assert head.log == []
