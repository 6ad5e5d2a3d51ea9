"""torchrun on a node: starts the ranks of this node for Hotspare's own test, and prints what PyTorch's ranks would print."""

import os
import sys

from infra.lab.commands import desk_client


def main() -> int:
    """Join the run; returns its status."""
    words = list(sys.argv[1:])
    given: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name, _, value = words.pop(0).partition("=")
        given[name] = value
    if not words or not os.path.exists(words[0]):
        print(f"torchrun: can't open file {words[0] if words else ''!r}: [Errno 2] No such file or directory", file=sys.stderr)
        return 2
    return desk_client.ask(
        "group-member",
        run=f"{given['--master-addr']}:{given['--master-port']}",
        rank=int(given["--node-rank"]),
        world=int(given["--nnodes"]),
        environment={name: os.environ[name] for name in desk_client.OF_A_RUN if name in os.environ},
        slots=int(given["--nproc-per-node"]),
        program=["all_reduce_perf", *words[1:], "-g", "1"],
    )


if __name__ == "__main__":
    sys.exit(main())
