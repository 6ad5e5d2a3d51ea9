"""Whatever the kernel or a tool prints, looking at it ends without an error, and what makes no sense is never in order."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.model import Verdict
from checks.probes.clock import parse_tracking
from checks.probes.kernel_numbers import decimal, whole
from checks.probes.services import parse_units
from checks.probes.storage import parse_mdstat
from tests.checks.node import TestNode
from tests.checks.watching import Watch, add_port

ODD = st.text(max_size=60) | st.sampled_from(["", "²", "٣", "-1", "nan", "1e999", "9" * 5000, "N/A", "4:", ": ACTIVE", "0x10"])
FILES = (
    "sys/class/infiniband/mlx5_0/ports/1/state",
    "sys/class/infiniband/mlx5_0/ports/1/rate",
    "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed",
    "sys/bus/pci/devices/0000:53:00.0/aer_dev_fatal",
    "sys/bus/pci/devices/0000:53:00.0/current_link_width",
    "sys/bus/pci/devices/0000:53:00.0/max_link_speed",
    "sys/devices/system/edac/mc/mc0/ue_count",
    "sys/class/nvme/nvme0/state",
    "proc/mounts",
    "proc/mdstat",
    "proc/sys/fs/file-nr",
    "etc/fstab",
    "units",
    "tracking",
)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(file=st.sampled_from(FILES), text=ODD)
def test_no_file_of_a_node_breaks_the_look_at_it(file: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = TestNode(Path(folder))
        add_port(node, "mlx5_0")
        path = node.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        assert Watch(node).look()
        assert node.probe(no_nvml=True).findings


@pytest.mark.parametrize("text", ["²", "nan", "9" * 5000, "-1", "one"])
@pytest.mark.parametrize(
    ("file", "check"),
    [
        ("sys/class/infiniband/mlx5_0/ports/1/state", "ib_link"),
        ("sys/bus/pci/devices/0000:53:00.0/aer_dev_fatal", "pcie_aer"),
        ("sys/devices/system/edac/mc/mc0/ue_count", "edac"),
        ("tracking", "clock"),
        ("units", "service"),
    ],
)
def test_a_reading_that_makes_no_sense_is_unknown(tmp_path: Path, file: str, check: str, text: str) -> None:
    node = TestNode(tmp_path)
    add_port(node, "mlx5_0")
    node.write("sys/devices/system/edac/mc/mc0/ce_count", "0\n")
    node.command("timedatectl", "exit 1")
    node.write(file, text)
    assert Watch(node).only(check).verdict is Verdict.UNKNOWN


@settings(deadline=None, derandomize=True)
@given(st.text(alphabet=st.sampled_from("md0: active()raid15[]_/UF \n"), max_size=200) | st.text(max_size=200))
def test_any_text_is_read_as_arrays_units_and_tracking_without_an_error(text: str) -> None:
    assert all(array.name.startswith("md") for array in parse_mdstat(text))
    parse_units(text)
    parse_tracking(text)


@given(st.integers(min_value=0, max_value=2**64 - 1))
@settings(deadline=None, derandomize=True)
def test_numbers_of_64_bits_are_read_as_they_are(number: int) -> None:
    assert (whole(str(number)), decimal(f"-{number}")) == (number, -float(number))
