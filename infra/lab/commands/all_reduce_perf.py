"""all_reduce_perf over the GPUs of one lab node: prints what nccl-tests prints, at the rate that the node's faults leave."""

import json
import os
import sys
import time
from typing import NoReturn

from infra.lab.commands import nccl_output

ROOT = os.environ["HOTSPARE_HOST_ROOT"]
HOST = os.environ["LAB_NODE"]


def fail(text: str, status: int) -> NoReturn:
    """Stop as the program stops: text on stdout, status 1 for a wrong call, 2 for CUDA, 3 for NCCL."""
    print(text, flush=True)
    sys.exit(status)


def main() -> None:
    """Run the test."""
    options = nccl_output.arguments(sys.argv[1:])
    with open(ROOT + "/var/lib/lab/gpus.json") as file:
        state = json.load(file)
    usable = [gpu for gpu in state["gpus"] if not gpu["lost"]]
    wanted = options.ngpus * options.nthreads
    if wanted > len(usable):
        fail(
            f"Invalid number of GPUs: {wanted} requested but only {len(usable)} were found.\n"
            "Please check the number of processes and GPUs per process.",
            1,
        )
    if any(gpu["hung"] for gpu in usable[:wanted]):
        where = f" .. {HOST} pid {os.getpid()}: Test failure common.cu:901"
        fail(f"{HOST}: Test CUDA failure common.cu:1028 'unknown error'\n{where}", 2)
    ranks = [(HOST, os.getpid(), gpu["index"], gpu["pci"], gpu["name"]) for gpu in usable[:wanted]]
    sys.stdout.write(nccl_output.header(options, ranks))
    rate, left = state["node_rate"], state["left"]
    table = nccl_output.Table(
        wanted, lambda size: rate["peak"] * left["intra"] * size / (size + rate["half_gb"] * 2**30), left["wrong"], HOST
    )
    steps = nccl_output.sizes(options)
    for size in steps:
        time.sleep(state["test_s"] / len(steps) * nccl_output.longer(options))
        sys.stdout.write(table.row(size))
        sys.stdout.flush()
    sys.stdout.write(table.footer())
    sys.stdout.flush()
    sys.exit(1 if table.failed else 0)


if __name__ == "__main__":
    main()
