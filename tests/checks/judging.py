"""What the tests of the judges share: the sample outputs, and ways in which captured output gets changed on its way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from checks.judges.judgement import Judgement
from checks.judges.tools import judge

DATA = Path(__file__).parent / "data"

TOOL_OF = {"nccl": "nccl-tests", "dcgm": "dcgm", "gpub": "gpu-burn", "nvba": "nvbandwidth", "ib_w": "ib_write_bw"}
"""Tools by the first letters of a sample's name."""

SAMPLES = sorted(path.name for path in DATA.iterdir() if path.name[:4] in TOOL_OF)


def text_of(name: str) -> str:
    """Return a sample by the beginning of its name, with the line ends that it has."""
    with next(DATA.glob(f"{name}*")).open(newline="") as file:
        return file.read()


def judged(name: str, text: str | None = None) -> Judgement:
    """Judge a sample, or another text as if it were one of that name, over a link of 400 Gb/s."""
    return judge(TOOL_OF[name[:4]], text_of(name) if text is None else text, link_gbits=400)


def each_line(prefix: str) -> Callable[[str], str]:
    """Put a launcher's prefix before every line; a progress report after a carriage return is no line of its own."""
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


def docker_log(text: str) -> str:
    """What Docker's json-file driver keeps of an output: long lines in parts."""
    parts = [part for line in text.splitlines(keepends=True) for part in parts_of(line)]
    return "\n".join(json.dumps({"log": part, "stream": "stdout", "time": "2026-04-03T06:20:28.5Z"}) for part in parts)


def parted_log(text: str) -> str:
    """What containerd keeps of an output: long lines in records of which all but the last go on."""
    lines = [parts_of(line) or [""] for line in text.split("\n")]
    marked = [(part, "P" if at < len(parts) - 1 else "F") for parts in lines for at, part in enumerate(parts)]
    return "\n".join(f"2026-04-03T06:20:28.545191123Z stdout {mark} {part}" for part, mark in marked)


def parts_of(line: str, width: int = 50) -> list[str]:
    """Part a line as an engine does, only sooner."""
    return [line[at : at + width] for at in range(0, len(line), width)]


CAPTURES: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "byte order mark": lambda text: "\ufeff" + text,
    "colours": lambda text: "\n".join(f"\x1b[0;32m{line}\x1b[0m" for line in text.split("\n")),
    "terminal title": lambda text: "\x1b]0;node-1: test\x07" + text,
    "NUL bytes at the end": lambda text: text + "\0" * 64,
    "srun --label": each_line("0: "),
    "srun --label of many tasks": each_line("  0: "),
    "mpirun --tag-output": each_line("[1,0]<stdout>:"),
    "mpirun 5 --tag-output": each_line("[prterun-head-8123@1,0]<stdout>: "),
    "mpirun --timestamp-output": each_line("Sun Nov 29 10:12:13 2026<stdout>: "),
    "pdsh": each_line("node-1: "),
    "mpiexec -prepend-rank": each_line("[0] "),
    "docker compose": each_line("worker-1  | "),
    "kubectl logs --timestamps": each_line("2026-04-03T06:20:28.545191Z "),
    "kubectl logs --prefix": each_line("[pod/nccl-launcher-x2v9/launcher] "),
    "time of day": each_line("06:20:28 "),
    "time in brackets": each_line("[2026-04-03T06:20:28.545Z] "),
    "syslog": each_line("Apr  3 06:20:28 node-1 burn-in[123]: "),
    "Python's logging": each_line("INFO:root:"),
    "Python's logging with a time": each_line("2026-04-03 06:20:28,123 - burn-in - INFO - "),
    "torchrun": each_line("[rank0]: "),
    "Ray": each_line("(task pid=123, ip=10.0.0.1) "),
    "logfmt": each_line('time="2026-04-03T06:20:28Z" level=info msg='),
    "an unknown launcher": each_line("<<rank 0 of 16>> node-1/gpu-0% "),
    "Docker's log": docker_log,
    "container log in parts": parted_log,
    "quoted": each_line("> "),
    "indented": each_line("    "),
    "container log": each_line("2026-04-03T06:20:28.545191123Z stdout F "),
}
"""Ways in which output is captured; none of them changes what it says."""
