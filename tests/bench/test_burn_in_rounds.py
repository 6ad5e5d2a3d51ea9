"""Rounds, runs and wall time of the burn-in's plan against N, faults and P, beside pairwise and bisection: table and picture."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, comb, log2
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.decisions.burn_in_world import World, names, play
from workflows.decisions.burn_in_settings import BurnInLimits

RUN_MINUTES = 40 / 60
"""Minutes of one group run. Hotspare default: start of the ranks and a sweep of sizes to 8 GB take about 40 s."""

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "burn-in.png"
PLANTS = 5
SIZES = [8, 32, 128, 512, 2048]

PUBLISHED = (232, 22, 57, 7)
"""Nodes, jobs (fewest and most), and rounds of a published search for a bad node by smaller jobs."""


@dataclass
class Measured:
    """What the plan needed for some random plants of one kind."""

    nodes: int
    at_once: int
    faults: int
    paths: int
    noise: float
    rounds: list[int]
    runs: list[int]
    found: int
    planted: int
    accused: int


def measure(nodes: int, at_once: int, faults: int, paths: int = 0, noise: float = 0.0) -> Measured:
    """Play random plants."""
    ring, random = names(nodes), Random(nodes + 7 * faults + 31 * paths)
    limits = BurnInLimits(side_by_side=at_once, rounds=400, nodes_out=nodes)
    done = Measured(nodes, at_once, faults, paths, noise, [], [], 0, 0, 0)
    for seed in range(PLANTS):
        bad = set(random.sample(ring, faults))
        at = [random.randrange(nodes) for _ in range(paths)]
        bad_paths = {frozenset({ring[one], ring[(one + 1) % nodes]}) for one in at}
        ends = {end for path in bad_paths for end in path}
        played = play(ring, World(bad=bad, bad_paths=bad_paths, noise=noise, random=Random(seed)), limits)
        blamed = set(played.plan.bad)
        done.rounds.append(played.rounds_after_the_first_failure)
        done.runs.append(len(played.runs) - 1)
        done.planted += len(bad) + len(bad_paths)
        done.found += len(bad & blamed) + sum(1 for path in bad_paths if path & blamed)
        done.accused += len(blamed - bad - ends)
    return done


def pairwise_rounds(nodes: int, at_once: int) -> int:
    """Every pair once, in disjoint pairs: N - 1 rounds where all fit side by side."""
    return (nodes - 1) * ceil(nodes / 2 / at_once)


def bisection_rounds(nodes: int, faults: int) -> int:
    """One group at a time, halving, one fault after the other, with a run of the rest after each."""
    return faults * (ceil(log2(nodes)) + 1)


@pytest.mark.timeout(0)
def test_rounds_and_runs_of_the_plan() -> None:
    cases = [(2048, at_once, faults, 0, 0.0) for at_once in (1024, 64, 1) for faults in (1, 2, 3, 5)]
    cases += [(2048, at_once, faults, 1, 0.0) for at_once in (1024, 64) for faults in (0, 2)]
    cases += [(232, at_once, faults, 0, 0.0) for at_once in (116, 64, 16) for faults in (1, 3, 5)]
    cases += [(2048, at_once, 3, 0, noise) for at_once in (1024, 64) for noise in (0.002, 0.01, 0.03)]
    measured = [measure(*case) for case in cases]
    Console(width=130).print(table_of(measured))
    draw(PICTURE)
    exact = [one for one in measured if one.noise == 0.0]
    assert all(one.found == one.planted and one.accused == 0 for one in exact)


def table_of(measured: list[Measured]) -> Table:
    """The closing table: N, P, what was planted, rounds, runs, found, falsely accused."""
    table = Table(
        "N", "P", "bad nodes", "bad paths", "noise", "rounds mean (max)", "runs mean (max)", "bound", "found", "falsely accused"
    )
    for one in measured:
        bound = f"{log2(comb(one.nodes, one.faults)):.0f}" if one.faults and one.at_once == 1 else ""
        table.add_row(
            *(str(value) for value in (one.nodes, one.at_once, one.faults, one.paths)),
            f"{one.noise:.1%}" if one.noise else "",
            f"{mean(one.rounds):.1f} ({max(one.rounds)})",
            f"{mean(one.runs):.0f} ({max(one.runs)})",
            bound,
            f"{one.found}/{one.planted}",
            f"{one.accused} of {PLANTS * (one.nodes - one.faults)}",
        )
    return table


def draw(path: Path) -> None:
    """Rounds, wall time and runs against the number of nodes and of faults, beside pairwise, bisection and a published search."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, ((rounds, minutes), (runs, faults)) = plt.subplots(2, 2, figsize=(11, 8.2), layout="constrained")
    for at_once, colour, width in ((1024, "tab:blue", 5.0), (64, "tab:green", 2.0), (1, "tab:purple", 2.0)):
        line: dict[str, Any] = {"marker": "o", "color": colour, "linewidth": width, "label": f"the plan, P = {at_once}"}
        played = [measure(size, at_once, 2) for size in SIZES]
        needed = [mean(one.rounds) for one in played]
        rounds.plot(SIZES, needed, **line)
        minutes.plot(SIZES, [one * RUN_MINUTES for one in needed], **line)
        runs.plot(SIZES, [mean(one.runs) for one in played], **line)
        faults.plot(range(1, 6), [mean(measure(2048, at_once, count).rounds) for count in range(1, 6)], **line)
    for axis, scale in ((rounds, 1.0), (minutes, RUN_MINUTES)):
        axis.plot(SIZES, [scale * bisection_rounds(size, 2) for size in SIZES], "--", color="tab:red", label="plain bisection")
        axis.plot(SIZES, [scale * pairwise_rounds(size, 1024) for size in SIZES], ":", color="tab:gray", label="every pair")
    runs.plot(SIZES, [bisection_rounds(size, 2) for size in SIZES], "--", color="tab:red")
    runs.plot(SIZES, [size * (size - 1) / 2 for size in SIZES], ":", color="tab:gray")
    faults.plot(range(1, 6), [bisection_rounds(2048, count) for count in range(1, 6)], "--", color="tab:red")
    size, few, many, took = PUBLISHED
    rounds.plot([size], [took], "*", color="black", markersize=12, label=f"published: {took} rounds at {size} nodes")
    runs.plot([size, size], [few, many], "*-", color="black", markersize=10)
    for axis in (rounds, minutes, runs):
        axis.set(xscale="log", yscale="log", xlabel="nodes")
        axis.set_xticks(SIZES, [str(one) for one in SIZES])
    faults.set(
        yscale="log",
        xlabel="bad nodes of 2,048",
        xticks=range(1, 6),
        title="Rounds against the number of faults",
        ylabel="rounds",
    )
    rounds.set(title="Rounds from the first failing group to the proven rest", ylabel="rounds")
    minutes.set(title="The same as wall time, 40 s a round", ylabel="minutes")
    runs.set(title="Runs", ylabel="runs")
    for axis in (rounds, minutes, runs, faults):
        axis.grid(alpha=0.3)
    rounds.legend(fontsize=8)
    figure.suptitle(f"Two bad nodes but where it says otherwise, mean of {PLANTS} random plants; P groups run side by side")
    figure.savefig(path, dpi=100)
    plt.close(figure)
