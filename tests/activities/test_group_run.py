"""The wrapper around a launch command, and the environment that it gives: by instance type, as data, own values over it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from activities.clients import group_run
from activities.clients.launching import around, filled, words_of
from activities.inventory import Node
from activities.settings_burn_in import BurnInSettings
from checks.catalog.loading import load
from checks.catalog.nccl_environment import nccl_environment, variables

NODES = [Node(instance_id="i-1", name="n1", instance_type="p5.48xlarge", gpus=8), Node(instance_id="i-2", name="n2", gpus=8)]


def named(instance_type: str, own: dict[str, dict[str, str]] | None = None) -> dict[str, str]:
    return {one.name: one.value for one in nccl_environment(instance_type, own)}


def run(spec: Mapping[str, object], *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the wrapper as it is sent."""
    full = {"environment": {}, "files": [], "alike": 2, "log_lines": 100, **spec}
    words = [sys.executable, "-I", "-c", Path(group_run.__file__).read_text(), json.dumps(full), *command]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **more}, check=False)


@pytest.mark.parametrize("kind", ["p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"])
def test_efa_types_of_these_generations_use_efa_with_rdma(kind: str) -> None:
    found = named(kind)
    assert (found["FI_PROVIDER"], found["FI_EFA_USE_DEVICE_RDMA"]) == ("efa", "1")
    assert found["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize("kind", ["g5.48xlarge", "p3.16xlarge", "g6.12xlarge", "p5.4xlarge", ""])
def test_other_types_are_told_nothing_of_efa(kind: str) -> None:
    assert not [name for name in named(kind) if name.startswith("FI_")]


def test_the_newest_types_have_what_their_fabric_needs() -> None:
    assert named("p6e-gb200.36xlarge")["NCCL_MNNVL_ENABLE"] == "1"
    assert "NCCL_BUFFSIZE" not in named("p6e-gb200.36xlarge")
    assert named("p6-b200.48xlarge")["NCCL_NVLS_CHUNKSIZE"] == "524288"


def test_every_row_has_a_public_source_and_names_types_that_the_catalog_knows() -> None:
    known = set(load("instance_types.csv", lambda row: row["instance_type"]))
    for row in variables():
        assert row.source.startswith("https://")
        assert all(kind == "*" or kind in known for kind in row.types), row


def test_own_values_go_over_the_shipped_ones_and_an_empty_one_leaves_one_out() -> None:
    own = {"p5.*": {"NCCL_BUFFSIZE": "4194304", "FI_EFA_FORK_SAFE": ""}, "*": {"NCCL_DEBUG": "WARN"}, "p4*": {"MINE": "1"}}
    found = named("p5.48xlarge", own)
    assert (found["NCCL_BUFFSIZE"], found["NCCL_DEBUG"]) == ("4194304", "WARN")
    assert "FI_EFA_FORK_SAFE" not in found
    assert "MINE" not in found


def test_mpirun_is_told_each_variable_and_the_run_by_which_leftovers_are_known() -> None:
    settings = BurnInSettings(command=["env", "--", "echo", "{environment}"], environment={"*": {"NCCL_DEBUG": "WARN"}})
    line = around(settings, filled(settings.command, words_of(settings, NODES)), "burn/7", NODES)
    said = subprocess.run([sys.executable, *line[1:]], capture_output=True, text=True, check=True).stdout
    assert "-x HOTSPARE_BURN_IN=burn/7" in said
    assert "-x NCCL_DEBUG=WARN" in said
    assert "-x FI_PROVIDER=efa" in said


def test_the_program_has_the_environment_and_a_topology_file_only_where_the_host_has_it(tmp_path: Path) -> None:
    there = tmp_path / "topology.xml"
    there.touch()
    spec = {"environment": {"A": str(there), "B": str(tmp_path / "absent.xml"), "C": "3"}, "files": ["A", "B"]}
    said = run(spec, "sh", "-c", 'echo "$A ${B-none} $C"').stdout
    assert said == f"{there} none 3\n"


def test_words_are_filled_in_without_a_shell() -> None:
    settings = BurnInSettings()
    words = words_of(settings, NODES, ["st-1", "st-2"])
    assert filled(["--nodelist={names}", "{hosts}", "{ranks}", "$(x)"], words) == [
        "--nodelist=st-1,st-2",
        "st-1:8,st-2:8",
        "16",
        "$(x)",
    ]


def test_lines_that_differ_in_numbers_alone_are_kept_a_few_times_and_the_table_untouched() -> None:
    script = """
for r in 0 1 2 3 4; do
  echo "n1:10$r:200 [$r] NCCL INFO comm 0xab$r rank $r nranks 16"
  echo "[1,$r]<stdout>:n1:10$r:200 [$r] NCCL INFO Using network Libfabric"
  echo "n2:10$r:200 [$r] NCCL INFO Using network Socket"
done
echo "#  Rank  0 Group  0 Pid 100 on n1 device  0 [0x53] NVIDIA H100 80GB HBM3"
echo "  1073741824     268435456     float     sum      -1   4607.6  233.04  436.95      0   4565.6  235.18  440.96      0"
echo "n1:101:200 [1] misc/socket.cc:50 NCCL WARN Connect to 10.0.0.2<4000> failed"
exit 3
"""
    done = run({}, "sh", "-c", script)
    lines = done.stdout.splitlines()
    assert done.returncode == 3
    assert sum("comm 0x" in line for line in lines) == 2
    assert sum("Libfabric" in line for line in lines) == 2
    assert sum("Socket" in line for line in lines) == 2
    assert sum("268435456" in line for line in lines) == 1
    assert any("NCCL WARN Connect" in line for line in lines)
    assert lines[-1] == "# 9 more lines of NCCL's log are left out"


def test_a_row_that_the_log_interrupts_is_kept() -> None:
    row = "  1073741824     268435456     float     sum      -1"
    script = (
        f'for r in 1 2 3 4; do echo "{row}n1:10$r:200 [$r] NCCL INFO Channel $r"; done; echo "   4607.6  233.04  436.95      0"'
    )
    said = run({"alike": 1}, "sh", "-c", script).stdout
    assert said.count("268435456") == 4
    assert "436.95" in said


def test_the_log_has_a_limit_whatever_it_says() -> None:
    script = 'for w in a b c d e f; do echo "n1:1:2 [0] NCCL INFO $w"; done; echo table'
    assert run({"log_lines": 2}, "sh", "-c", script).stdout.splitlines()[:3] == [
        "n1:1:2 [0] NCCL INFO a",
        "n1:1:2 [0] NCCL INFO b",
        "table",
    ]


def test_a_command_that_is_not_there_says_so_as_a_shell_does() -> None:
    done = run({}, "no-such-launcher")
    assert (done.returncode, done.stdout) == (127, "no-such-launcher: No such file or directory\n")


def test_a_command_that_a_signal_ended_has_the_status_of_a_shell() -> None:
    assert run({}, "sh", "-c", "kill -9 $$").returncode == 137
