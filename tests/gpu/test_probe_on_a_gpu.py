"""On a machine with an NVIDIA GPU: the probe against nvidia-smi, a sample of its document, what the lab's driver does otherwise.

`make test-gpu`; it takes seconds, changes nothing on the GPUs and needs no root (without it one reading is not permitted).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pynvml
import pytest

from checks.pci_address import canonical
from infra.lab.hardware import HARDWARE, fresh_gpus, hardware_of
from tests.gpu.smi_fields import FIELDS, NOT_PRINTED, Row, compare

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLES = Path(os.environ.get("HOTSPARE_GPU_SAMPLES", Path(__file__).parent / "samples"))


def run_probe(environment: dict[str, str]) -> dict[str, Any]:
    """Run the probe as it runs on a node. It exits with its verdict, which is not what is tested here."""
    command = [sys.executable, str(REPOSITORY / "checks/run_checks.py"), "probe", "--depth", "deep"]
    paths = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, "PYTHONPATH": paths, **environment}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return run_probe({})


@pytest.fixture(scope="module")
def smi() -> ElementTree.Element:
    done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=120, check=True)
    return ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", done.stdout))


def gpus_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    assert document["readings"]["outcome"] == "read", document["readings"]["detail"]
    return [gpu["values"] for gpu in document["readings"]["gpus"]]


def element_of(smi: ElementTree.Element, values: dict[str, Any]) -> ElementTree.Element:
    wanted = canonical(values["pci"][1])
    return next(gpu for gpu in smi.iter("gpu") if canonical(gpu.get("id", "")) == wanted)


def show(title: str, lines: list[str]) -> None:
    print(f"\n{title}\n" + "\n".join(f"  {line}" for line in lines or ["nothing"]))


def test_every_reading_says_what_nvidia_smi_says(document: dict[str, Any], smi: ElementTree.Element) -> None:
    rows: list[Row] = []
    for index, values in enumerate(gpus_of(document)):
        rows += compare(element_of(smi, values), index, values)
    for verdict in ("differs", "drifted", "not printed", "same"):
        chosen = [row for row in rows if row.verdict == verdict]
        show(verdict, [f"GPU {row.gpu} {row.reading}: probe {row.probe}, nvidia-smi {row.smi or '-'}" for row in chosen])
    assert [row for row in rows if row.verdict == "differs"] == []
    assert any(row.verdict == "same" for row in rows)


def test_the_processes_are_those_of_nvidia_smi(document: dict[str, Any], smi: ElementTree.Element) -> None:
    for values in gpus_of(document):
        listed = element_of(smi, values).iter("process_info")
        compute = {int(one.findtext("pid", "0")) for one in listed if "C" in one.findtext("type", "")}
        assert set(values["process_ids"][1]) == compute


def test_every_reading_is_compared_or_named_as_not_printed(document: dict[str, Any]) -> None:
    for values in gpus_of(document):
        assert set(values) - set(FIELDS) - set(NOT_PRINTED) == set()


def test_no_reading_fails_for_a_reason_that_the_probe_does_not_know(document: dict[str, Any]) -> None:
    for values in gpus_of(document):
        failed = {name: reading[2] for name, reading in values.items() if reading[0] == "error"}
        assert {name for name in failed if name != "sram_ecc"} == set(), failed


def test_the_document_is_kept_as_a_sample_without_serials(document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1)
    for index, values in enumerate(gpus_of(document)):
        for name in ("serial", "uuid"):
            if values[name][0] == "ok":
                text = text.replace(str(values[name][1]), f"{'165000000000' if name == 'serial' else 'GPU-sample-'}{index}")
    text = re.sub(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}", "GPU-sample-other", text)
    SAMPLES.mkdir(parents=True, exist_ok=True)
    name = f"{gpus_of(document)[0]['name'][1]} {document['driver_version']}".lower().replace(" ", "_")
    (SAMPLES / f"{name}.json").write_text(text + "\n")
    show("kept", [str(SAMPLES / f"{name}.json")])
    assert not any(str(values["uuid"][1]) in text for values in gpus_of(document))


def test_what_the_labs_driver_does_otherwise_is_listed(document: dict[str, Any], tmp_path: Path) -> None:
    real = gpus_of(document)[0]
    kinds = [kind for kind, hardware in HARDWARE.items() if hardware.gpu_name == real["name"][1]] or ["p5.48xlarge"]
    state = {"driver": document["driver_version"], "cuda": 13000, "gpus": fresh_gpus(hardware_of(kinds[0]), ""), "processes": []}
    (tmp_path / "var/lib/lab").mkdir(parents=True)
    (tmp_path / "var/lib/lab/gpus.json").write_text(json.dumps(state))
    paths = (REPOSITORY / "infra/lab/nvidia", REPOSITORY, Path(pynvml.__file__).parent)
    faked = run_probe({"HOTSPARE_HOST_ROOT": str(tmp_path), "PYTHONPATH": os.pathsep.join(str(path) for path in paths)})
    fake = gpus_of(faked)[0]
    states = [f"{name}: GPU {real[name][0]}, lab {fake[name][0]}" for name in real if real[name][0] != fake[name][0]]
    values = [f"{name}: GPU {real[name][1]}, lab {fake[name][1]}" for name in real if real[name][1] != fake[name][1]]
    show(f"answered otherwise by the lab's driver (as {kinds[0]})", states)
    show("other values", [line for line in values if not line.startswith(("uuid", "serial", "pci:"))])
    assert set(real) == set(fake)
