"""What all_reduce_perf takes and prints: arguments, header, rows, footer in nccl-tests' format (second generation)."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence

WARM_UP_ITERATIONS = 5
ITERATIONS = 20
NCCL_VERSION = "2.27.3+cuda13.0"
PLUGIN_VERSION = "1.16.2"
Rank = tuple[str, int, int, str, str]
"""Host, process id, device index, PCI address, GPU name."""
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def size_of(text: str) -> int:
    """Bytes of a size such as 1G, 512M, 8."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    number = text[: len(text) - len(unit)]
    if unit not in _UNITS or not number.isdigit():
        raise argparse.ArgumentTypeError(f"invalid size: {text}")
    return int(number) * _UNITS[unit]


def arguments(words: list[str]) -> argparse.Namespace:
    """Read the arguments of all_reduce_perf that matter here; unknown ones end the program with usage."""
    parser = argparse.ArgumentParser(prog="all_reduce_perf", allow_abbrev=False)
    parser.add_argument("-b", "--minbytes", type=size_of, default=32 * 2**20)
    parser.add_argument("-e", "--maxbytes", type=size_of, default=32 * 2**20)
    parser.add_argument("-f", "--stepfactor", type=int, default=2)
    parser.add_argument("-g", "--ngpus", type=int, default=1)
    parser.add_argument("-t", "--nthreads", type=int, default=1)
    parser.add_argument("-n", "--iters", type=int, default=ITERATIONS)
    parser.add_argument("-w", "--warmup_iters", type=int, default=WARM_UP_ITERATIONS)
    parser.add_argument("-c", "--check", type=int, default=1)
    options = parser.parse_args(words)
    if options.stepfactor < 2 or options.minbytes > options.maxbytes:
        parser.error("stepfactor must be above 1, and minbytes not above maxbytes")
    return options


def sizes(options: argparse.Namespace) -> list[int]:
    """Message sizes of a run, smallest first."""
    size, found = options.minbytes, list[int]()
    while size <= options.maxbytes:
        found.append(size)
        size *= options.stepfactor
    return found


def longer(options: argparse.Namespace) -> float:
    """How much longer a run takes than one with the usual number of iterations."""
    return float(options.iters) / ITERATIONS


def header(options: argparse.Namespace, ranks: Sequence[Rank]) -> str:
    """Lines before the first row."""
    lines = [
        (
            f"# nThread {options.nthreads} nGpus {options.ngpus} minBytes {options.minbytes} maxBytes {options.maxbytes} step: "
            f"{options.stepfactor}(factor) warmup iters: {options.warmup_iters} iters: {options.iters} agg iters: 1 "
            f"validation: {options.check} graph: 0"
        ),
        "#",
        "# Using devices",
    ]
    for number, (host, pid, device, pci, gpu_name) in enumerate(ranks):
        bus = pci.split(":")[-2]
        lines.append(f"#  Rank {number:2d} Group  0 Pid {pid:6d} on {host:>10} device {device:2d} [0x{bus}] {gpu_name}")
    lines += [
        f"NCCL version {NCCL_VERSION}",
        "#",
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    return "".join(line + "\n" for line in lines)


def log(ranks: Sequence[Rank]) -> str:
    """What NCCL logs, where NCCL_DEBUG asks for it, of how each host reaches the network."""
    first = {host: (pid, device) for host, pid, device, _, _ in reversed(ranks)}
    lines = []
    for host, (pid, device) in reversed(first.items()):
        says = f"{host}:{pid}:{pid} [{device}] NCCL INFO"
        lines += [
            f"{says} NET/OFI Initializing aws-ofi-nccl {PLUGIN_VERSION}",
            f"{says} NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
            f"{says} Using network Libfabric",
        ]
    return "".join(line + "\n" for line in lines)


def _noise(*key: object) -> float:
    """A repeatable factor within half a per cent of one: two runs of one machine never read quite the same."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return 1 + (digest[0] / 255 - 0.5) / 100


class Table:
    """The rows of one run and what the footer says of them. `busbw` gives GB/s for a message size in bytes."""

    def __init__(self, ranks: int, busbw: Callable[[int], float], wrong: int = 0, seed: str = "") -> None:
        self._factor = 2 * (ranks - 1) / ranks
        self._busbw = busbw
        self._wrong = wrong
        self._seed = seed
        self._rates: list[float] = []
        self._bad = 0

    def row(self, size: int) -> str:
        """One line of the table."""
        cells = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {-1:6d}"
        for side in ("out", "in"):
            cells += self._side(size, side)
        return cells + "\n"

    def _side(self, size: int, side: str) -> str:
        busbw = self._busbw(size) * _noise(self._seed, size, side)
        if self._factor == 0:
            busbw, seconds = 0.0, max(size / 400e9, 6e-6)
        else:
            seconds = max(size * self._factor / (busbw * 1e9), 42e-6)
            busbw = size * self._factor / seconds / 1e9
        self._rates.append(busbw)
        self._bad += self._wrong > 0
        micros = seconds * 1e6
        time_text = f"{micros:7.0f}" if micros >= 10000 else f"{micros:7.1f}" if micros >= 100 else f"{micros:7.2f}"
        return f"  {time_text:>7}  {size / seconds / 1e9:6.2f}  {busbw:6.2f}  {self._wrong:5d}"

    @property
    def failed(self) -> bool:
        """Whether a value was wrong: the program then exits with an error."""
        return self._bad > 0

    def footer(self) -> str:
        """Lines after the last row."""
        average = sum(self._rates) / len(self._rates)
        return (
            f"# Out of bounds values : {self._bad} {'FAILED' if self._bad else 'OK'}\n# Avg bus bandwidth    : {average:g} \n#\n"
        )
