"""The comparison of readings with nvidia-smi's XML, which runs on machines with a GPU, tells agreement from difference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pynvml
import pytest

from infra.lab.hardware import fresh_gpus, hardware_of
from tests.gpu.smi_fields import FIELDS, NOT_PRINTED, Row, compare

REPOSITORY = Path(__file__).resolve().parents[2]
XML = """
<gpu id="00000000:53:00.0">
 <product_name>NVIDIA H100 80GB HBM3</product_name>
 <persistence_mode>Enabled</persistence_mode>
 <pci><pci_gpu_link_info><pcie_gen><max_link_gen>5</max_link_gen></pcie_gen>
  <link_widths><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info></pci>
 <clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
  <clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown></clocks_event_reasons>
 <fb_memory_usage><total>81559 MiB</total></fb_memory_usage>
 <ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile>
  <aggregate><sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate></ecc_errors>
 <retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
 <remapped_rows><remapped_row_unc>0</remapped_row_unc><remapped_row_failure>No</remapped_row_failure></remapped_rows>
 <temperature><gpu_temp>36 C</gpu_temp></temperature>
 <gpu_power_readings><current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
</gpu>
"""
READ = "import json; from checks.probes.nvml import read_nvml; print(json.dumps(read_nvml(60).to_json()))"


@pytest.fixture
def readings(tmp_path: Path) -> dict[str, Any]:
    """The readings of one healthy GPU of the lab."""
    state = {"driver": "580.95.05", "cuda": 13000, "gpus": fresh_gpus(hardware_of("p5.48xlarge"), "")[:1], "processes": []}
    (tmp_path / "var/lib/lab").mkdir(parents=True)
    (tmp_path / "var/lib/lab/gpus.json").write_text(json.dumps(state))
    paths = (REPOSITORY / "infra/lab/nvidia", REPOSITORY, Path(pynvml.__file__).parent)
    environment = {"HOTSPARE_HOST_ROOT": str(tmp_path), "PATH": os.defpath, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run([sys.executable, "-c", READ], env=environment, capture_output=True, text=True, check=True, timeout=120)
    values: dict[str, Any] = json.loads(done.stdout)["gpus"][0]["values"]
    return values


def rows_of(xml: str, readings: dict[str, Any]) -> dict[str, Row]:
    return {row.reading: row for row in compare(ElementTree.fromstring(xml), 0, readings)}


def test_every_reading_has_its_place_in_the_xml_or_is_named_as_not_printed(readings: dict[str, Any]) -> None:
    assert set(readings) == (set(FIELDS) | set(NOT_PRINTED)) - {"nvlink_quality"}
    assert not set(FIELDS) & set(NOT_PRINTED)


def test_what_both_say_is_the_same_in_the_probes_unit(readings: dict[str, Any]) -> None:
    rows = rows_of(XML, readings)
    same = {name for name, row in rows.items() if row.verdict == "same"}
    assert same >= {
        *("name", "persistence_mode", "pcie_generation_max", "pcie_width", "memory_total_bytes", "power_limit_mw"),
        *("ecc_uncorrected_volatile_dram", "sram_ecc[bThresholdExceeded]", "remapped_rows[1]", "remapped_rows[3]"),
        *("retired_pages_pending", "clocks_event_reasons[gpu_idle]", "clocks_event_reasons[hw_slowdown]"),
    }
    assert rows["temperature_c"].verdict == "drifted"
    assert rows["mig_mode[0]"].verdict == "not printed"
    assert "differs" not in {row.verdict for row in rows.values()}


@pytest.mark.parametrize(
    ("printed", "otherwise", "reading"),
    [
        (">0</dram_uncorrectable>", ">1</dram_uncorrectable>", "ecc_uncorrected_volatile_dram"),
        (">No</remapped_row_failure>", ">Yes</remapped_row_failure>", "remapped_rows[3]"),
        (">0</remapped_row_unc>", ">N/A</remapped_row_unc>", "remapped_rows[1]"),
        (">N/A</pending_retirement>", ">No</pending_retirement>", "retired_pages_pending"),
        (">16x</current_link_width>", ">8x</current_link_width>", "pcie_width"),
        (">36 C</gpu_temp>", ">90 C</gpu_temp>", "temperature_c"),
        (">Not Active</clocks_event_reason_hw", ">Active</clocks_event_reason_hw", "clocks_event_reasons[hw_slowdown]"),
    ],
)
def test_what_they_say_otherwise_differs(readings: dict[str, Any], printed: str, otherwise: str, reading: str) -> None:
    assert printed in XML
    xml = XML.replace(printed, otherwise)
    assert [name for name, row in rows_of(xml, readings).items() if row.verdict == "differs"] == [reading]
