"""One rank of the lab's training job: steps together with the others over a socket, writes its part of each checkpoint.

Runs alone as a process of its node, on the standard library. Rank 0 prints what the launcher reads: the port, each step, each
checkpoint. A rank that loses the others ends with status 1.
"""

import argparse
import json
import os
import socket
import sys
import time
from typing import NoReturn, TextIO


def say(text: str) -> None:
    """Tell the launcher."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def save(folder: str, step: int, rank: int) -> None:
    """Write this rank's shard of a checkpoint."""
    target = os.path.join(folder, f"step-{step}")
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, f"rank-{rank}.json"), "w") as file:
        json.dump({"step": step, "rank": rank}, file)


def complete(folder: str, step: int, world: int) -> None:
    """Mark a checkpoint as complete, in one rename, after every shard is there."""
    target = os.path.join(folder, f"step-{step}")
    with open(os.path.join(target, "complete.new"), "w") as file:
        json.dump({"step": step, "ranks": world}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(os.path.join(target, "complete.new"), os.path.join(target, "COMPLETE"))


class Peers:
    """Rank 0's connections to the other ranks."""

    def __init__(self, files: list[TextIO]) -> None:
        self._files = files

    @classmethod
    def gather(cls, listener: socket.socket, world: int) -> "Peers":
        """Wait until all others have come."""
        return cls([listener.accept()[0].makefile("rw") for _ in range(world - 1)])

    def all(self, order: str) -> None:
        """Send an order to every rank and wait until each has done it."""
        for file in self._files:
            file.write(order + "\n")
            file.flush()
        for file in self._files:
            if file.readline() != "done\n":
                raise ConnectionError("a rank closed its connection")


def lead(options: argparse.Namespace) -> NoReturn:
    """Rank 0: gather the others, then step after step for ever."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=options.world)
    say(f"port {listener.getsockname()[1]}")
    peers = Peers.gather(listener, options.world)
    step = options.start
    while True:
        time.sleep(options.step_s)
        step += 1
        peers.all(f"step {step}")
        say(f"step {step}")
        if step % options.checkpoint_every == 0:
            save(options.checkpoints, step, 0)
            peers.all(f"save {step}")
            complete(options.checkpoints, step, options.world)
            say(f"checkpoint {step}")


def follow(options: argparse.Namespace) -> NoReturn:
    """Any other rank: do what rank 0 says until it is gone."""
    with socket.create_connection(("127.0.0.1", options.port)) as connection:
        orders = connection.makefile("rw")
        for line in orders:
            order, _, step = line.partition(" ")
            if order == "save":
                save(options.checkpoints, int(step), options.rank)
            orders.write("done\n")
            orders.flush()
    raise ConnectionError("rank 0 closed its connection")


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser()
    for name in ("rank", "world", "port", "start", "checkpoint_every"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=0)
    parser.add_argument("--step-s", type=float, required=True)
    parser.add_argument("--checkpoints", required=True)
    options = parser.parse_args()
    try:
        (follow if options.rank else lead)(options)
    except OSError as error:
        sys.exit(f"rank {options.rank}: {error}")


if __name__ == "__main__":
    main()
