"""All-reduce over the ranks that torchrun starts, timed by message size; prints the table of nccl-tests, for the same judge.

Travels to the nodes as one file and needs Python 3.9 and PyTorch there. PyTorch reduces in place only, so the other side of the
table says N/A. Every result is compared with the right one; a rank ends with its torchrun, however that ends.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

ELEMENT_BYTES = 4
PATTERN = 7
"""Values of the test are small whole numbers, whose sum over 16,384 ranks a float holds exactly (below 2 ** 24)."""

CHUNK = 1 << 24
"""Elements compared at once: the comparison must not take the memory that the message needs."""

CARD_BYTES = 512
"""What a rank tells of itself: names of hosts and GPUs are far shorter. PyTorch's own way for objects needs NumPy."""

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
PR_SET_PDEATHSIG = 1  # prctl(2)


class Rank(NamedTuple):
    """One rank as the header lists it."""

    number: int
    pid: int
    host: str
    device: int
    bus: int
    gpu: str


def size_of(text: str) -> int:
    """Bytes of a size such as 1G, 512M, 8."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    number = text[: len(text) - len(unit)]
    if unit not in UNITS or not number.isdigit():
        raise argparse.ArgumentTypeError("invalid size: " + text)
    return int(number) * UNITS[unit]


def options_of(words: Sequence[str]) -> argparse.Namespace:
    """Read the arguments, which are those of all_reduce_perf."""
    parser = argparse.ArgumentParser(prog="torch_all_reduce")
    parser.add_argument("-b", "--minbytes", type=size_of, default=UNITS["G"])
    parser.add_argument("-e", "--maxbytes", type=size_of, default=16 * UNITS["G"])
    parser.add_argument("-f", "--stepfactor", type=int, default=4)
    parser.add_argument("-n", "--iters", type=int, default=20)
    parser.add_argument("-w", "--warmup_iters", type=int, default=5)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    options = parser.parse_args(words)
    if options.stepfactor < 2 or not ELEMENT_BYTES <= options.minbytes <= options.maxbytes or options.iters < 1:
        parser.error("sizes, factor or iterations make no run")
    return options


def sizes(options: argparse.Namespace) -> list[int]:
    """Message sizes of a run, smallest first."""
    size, found = options.minbytes, []
    while size <= options.maxbytes:
        found.append(size)
        size *= options.stepfactor
    return found


def header(options: argparse.Namespace, ranks: Sequence[Rank], software: str) -> str:
    """The lines before the first row."""
    lines = [
        (
            f"# nThread 1 nGpus 1 minBytes {options.minbytes} maxBytes {options.maxbytes} step: {options.stepfactor}(factor) "
            f"warmup iters: {options.warmup_iters} iters: {options.iters} agg iters: 1 validation: 1 graph: 0"
        ),
        "#",
        "# Collective test starting: all_reduce",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {one.number:2d} Group  0 Pid {one.pid:6d} on {one.host:>10} device {one.device:2d} [0x{one.bus:02x}] {one.gpu}"
        for one in ranks
    ]
    lines += [software] if software else []
    lines += [
        "#",
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    return "\n".join(lines)


def bandwidths(size: int, seconds: float, ranks: int) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s. Source: nccl-tests, doc/PERFORMANCE.md."""
    algorithm = size / seconds / 1e9
    return algorithm, algorithm * 2 * (ranks - 1) / ranks


def row(size: int, seconds: float, ranks: int, wrong: int) -> str:
    """One line of the table."""
    algorithm, bus = bandwidths(size, seconds, ranks)
    left = f"{size:12d}  {size // ELEMENT_BYTES:12d}  {'float':>8}  {'sum':>6}  {-1:6d}      N/A     N/A     N/A    N/A"
    return f"{left}  {seconds * 1e6:7.1f}  {algorithm:6.2f}  {bus:6.2f}  {wrong:5d}"


def footer(bandwidth: Sequence[float], wrong: int) -> str:
    """The lines after the last row."""
    average = sum(bandwidth) / len(bandwidth)
    return f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n# Avg bus bandwidth    : {average:g} \n#"


def sum_of_ranks(ranks: int) -> int:
    """What one element of value 1 becomes: rank r gives (r mod 8) + 1 times the pattern."""
    return sum(number % 8 + 1 for number in range(ranks))


class Group:
    """The collective as the table needs it, over torch.distributed."""

    def __init__(self, torch: Any, backend: str) -> None:
        self.torch, self.dist = torch, torch.distributed
        self.local = int(os.environ["LOCAL_RANK"])
        self.on_gpu = backend == "nccl"
        if self.on_gpu:
            torch.cuda.set_device(self.local)
        self.dist.init_process_group(backend)
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()
        self.device = torch.device("cuda", self.local) if self.on_gpu else torch.device("cpu")

    def everybody(self) -> list[Rank]:
        """Every rank with its process, host and GPU."""
        gpu, bus = "CPU", 0
        if self.on_gpu:
            seen = self.torch.cuda.get_device_properties(self.local)
            gpu, bus = seen.name, getattr(seen, "pci_bus_id", 0)
        mine = Rank(self.rank, os.getpid(), socket.gethostname().split(".")[0], self.local, bus, gpu)
        told = self._bytes(json.dumps(mine).encode()[:CARD_BYTES].ljust(CARD_BYTES))
        found = [self._bytes(bytes(CARD_BYTES)) for _ in range(self.ranks)]
        self.dist.all_gather(found, told)
        return [Rank(*json.loads(bytes(one.tolist()))) for one in found]

    def _bytes(self, content: bytes) -> Any:
        return self.torch.tensor(list(content), dtype=self.torch.uint8, device=self.device)

    def software(self) -> str:
        """NCCL's version in NCCL's words."""
        return "NCCL version " + ".".join(map(str, self.torch.cuda.nccl.version())) if self.on_gpu else ""

    def time(self, size: int, warm_up: int, iterations: int) -> float:
        """Seconds of one all-reduce of `size` bytes, as the slowest rank saw it."""
        message = self.torch.zeros(size // ELEMENT_BYTES, dtype=self.torch.float32, device=self.device)
        for _ in range(warm_up):
            self.dist.all_reduce(message)
        self._settle()
        began = time.perf_counter()
        for _ in range(iterations):
            self.dist.all_reduce(message)
        self._settle(together=False)
        seconds = self.torch.tensor([(time.perf_counter() - began) / iterations], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(seconds, op=self.dist.ReduceOp.MAX)
        return float(seconds.item())

    def wrong(self, size: int) -> int:
        """Reduce a known message and count the elements that are not right, on all ranks together."""
        count = size // ELEMENT_BYTES
        message = self.torch.empty(count, dtype=self.torch.float32, device=self.device)
        pattern = self.torch.arange(min(CHUNK, count), device=self.device).remainder_(PATTERN).add_(1).to(self.torch.float32)
        parts = [(at, message[at : at + CHUNK]) for at in range(0, count, CHUNK)]
        for _, part in parts:
            part.copy_(pattern[: len(part)]).mul_(self.rank % 8 + 1)
        self.dist.all_reduce(message)
        right = pattern * sum_of_ranks(self.ranks)
        bad = sum(int((part != right[: len(part)]).sum().item()) for _, part in parts)
        total = self.torch.tensor([bad], dtype=self.torch.int64, device=self.device)
        self.dist.all_reduce(total)
        return int(total.item())

    def _settle(self, together: bool = True) -> None:
        if self.on_gpu:
            self.torch.cuda.synchronize()
        if together:
            self.dist.barrier()

    def leave(self, status: int) -> NoReturn:
        """End this process when all have come so far. Taking the group down can wait for ever for a rank that has gone."""
        self.dist.barrier()
        sys.stdout.flush()
        os._exit(status)


def measure(group: Any, options: argparse.Namespace, say: Any) -> int:
    """Run every size; returns the wrong results of all. `say` prints on rank 0."""
    say(header(options, group.everybody(), group.software()))
    bandwidth, bad = [], 0
    for size in sizes(options):
        seconds = group.time(size, options.warmup_iters, options.iters)
        wrong = group.wrong(size)
        bad += wrong
        bandwidth.append(bandwidths(size, seconds, group.ranks)[1])
        say(row(size, seconds, group.ranks, wrong))
    say(footer(bandwidth, bad))
    return bad


def end_with_parent() -> None:
    """Have the kernel kill this rank when its torchrun is gone: torchrun starts ranks in sessions of their own."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        sys.exit("torchrun is gone")


def main(words: Sequence[str]) -> NoReturn:
    options = options_of(words)
    end_with_parent()
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.distributed")
    except ImportError as error:
        print(f"torch_all_reduce: PyTorch cannot be loaded: {error}", flush=True)
        sys.exit(127)
    group = Group(torch, options.backend)
    bad = measure(group, options, lambda text: print(text, flush=True) if group.rank == 0 else None)
    group.leave(1 if bad else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
