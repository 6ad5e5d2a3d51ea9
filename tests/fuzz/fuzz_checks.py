"""Fuzzes the kernel log reader and the judges with atheris: nothing raises, nothing takes long, nothing passes for no reason."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/checks/data"
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["checks"]):
    from checks.catalog import assess
    from checks.diagnosis import FleetLogs, Hardware
    from checks.judges.judgement import CAUSES
    from checks.judges.text import clean
    from checks.judges.tools import TOOLS, judge
    from checks.kernel_log import fold, read_stream
    from checks.model import Verdict

SAYS_THAT_IT_PASSED = {
    "nccl-tests": ("Out of bounds values", "out_of_bounds"),
    "dcgm": ("pass",),
    "gpu-burn": ("Tested ",),
    "nvbandwidth": ("SUM ", "Passed"),
    "ib_write_bw": ("BW average", "BW_average"),
}
"""Words without which no output can pass."""

BEGINNINGS = {"nccl-tests": "nccl", "dcgm": "dcgm", "gpu-burn": "gpub", "nvbandwidth": "nvba", "ib_write_bw": "ib_w"}


def fuzz_reader(data: bytes) -> None:
    """Read a log in both ways; what NVIDIA's lines say is the same in both."""
    found = list(read_stream(io.BytesIO(data)))
    alone = list(read_stream(io.BytesIO(data), nvidia_alone=True))
    of_nvidia = [(event.kind, event.code) for event in found if event.kind != "host"]
    assert [(event.kind, event.code) for event in alone if event.kind != "host"] == of_nvidia
    for event in found:
        assert assess(event).because
    assert sum(burst.lines for burst in fold(found)) == sum(not event.companion for event in found)


def fuzz_diagnose(data: bytes) -> None:
    """Diagnose a log: each node has a verdict and reasons."""
    logs = FleetLogs(Hardware("p5.48xlarge"), now=1_800_000_000.0)
    list(logs.read(io.BytesIO(data), "node-1"))
    recommendations, _ = logs.conclude()
    assert recommendations
    assert all(one.verdict in Verdict and one.diagnosis.because for one in recommendations)


def fuzz_judge(tool: str) -> Callable[[bytes], None]:
    """Judge an output: it has a cause, can be written as JSON, and passes only if it says so itself."""

    def target(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        judgement = judge(tool, text, link_gbits=400)
        assert judgement.cause in CAUSES
        json.dumps(judgement.document(), allow_nan=False)
        if judgement.verdict is Verdict.OK:
            assert any(word.lower() in clean(text).lower() for word in SAYS_THAT_IT_PASSED[tool])

    return target


def samples(name: str) -> list[bytes]:
    """What the fuzzer begins with."""
    if name not in TOOLS:
        return [json.loads(line)["raw"].encode() for line in (DATA / "kernel_lines.jsonl").read_text().splitlines()]
    return [path.read_bytes() for path in sorted(DATA.iterdir()) if path.name.startswith(BEGINNINGS[name])]


def main() -> None:
    """Run one target: its name, then options of libFuzzer."""
    targets = {"reader": fuzz_reader, "diagnose": fuzz_diagnose, **{tool: fuzz_judge(tool) for tool in TOOLS}}
    if len(sys.argv) < 2 or sys.argv[1] not in targets:
        sys.exit(f"usage: fuzz_checks.py {'|'.join(targets)} [options of libFuzzer]")
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as corpus:
        for number, sample in enumerate(samples(name)):
            (Path(corpus) / str(number)).write_bytes(sample)
        atheris.Setup([sys.argv[0], "-timeout=10", "-max_len=20000", *sys.argv[1:], corpus], targets[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
