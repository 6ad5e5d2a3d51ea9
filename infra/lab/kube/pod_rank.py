"""One rank of the training job in a pod: finds the others through the shared folder, steps and checkpoints with them.

Runs on the standard library. A world begins when a rank of each number is there, from the last complete checkpoint; when one rank
is lost the others end with status 1, and whoever restarts them makes the next world. Rank 0 writes what happens to
`events.jsonl` in the training folder and its step into the annotations of its pod.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import selectors
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn, TextIO

from activities.names import KUBE_CHECKPOINT_STEP, KUBE_STEP
from infra.lab.job_rank import Peers, complete, save

STALL_S = 30.0
"""A rank that says nothing for so long ends the world. NCCL's watchdog in PyTorch waits ten minutes."""

_ANNOTATE_EVERY_S = 1.0
_AGAIN_S = 0.1


class Place:
    """Where this rank runs, and the files of the training job."""

    def __init__(self) -> None:
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD"])
        self.folder = Path(os.environ["TRAIN_FOLDER"])
        self.checkpoints = self.folder / "checkpoints"
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.rendezvous = self.folder / "rendezvous.json"
        self.me = {"rank": self.rank, "node": os.environ["NODE_NAME"], "pod": os.environ["POD_UID"]}

    def last_checkpoint(self) -> int:
        """Step of the newest complete checkpoint, 0 without one."""
        markers = self.checkpoints.glob("step-*/COMPLETE")
        return max((int(marker.parent.name.removeprefix("step-")) for marker in markers), default=0)

    def tell(self, **event: Any) -> None:
        """Append an event in one write."""
        with (self.folder / "events.jsonl").open("a") as events:
            events.write(json.dumps({**event, "at": time.time()}) + "\n")


class Annotator(threading.Thread):
    """Keeps two annotations of this pod up to date, at most once a second; training does not wait for the API server."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.values: dict[str, int] = {}

    def run(self) -> None:
        """Write whatever has changed, for ever."""
        written: dict[str, int] = {}
        while True:
            values = dict(self.values)
            if values != written:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self._write(values)
                    written = values
            time.sleep(_ANNOTATE_EVERY_S)

    def _write(self, values: dict[str, int]) -> None:
        folder = Path(os.environ["API_FOLDER"])
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
        connection = http.client.HTTPSConnection(host, port, timeout=10, context=context)
        with contextlib.closing(connection):
            connection.request(
                "PATCH",
                f"/api/v1/namespaces/{os.environ['POD_NAMESPACE']}/pods/{os.environ['POD_NAME']}",
                json.dumps({"metadata": {"annotations": {key: str(value) for key, value in values.items()}}}),
                {
                    "Authorization": "Bearer " + (folder / "token").read_text().strip(),
                    "Content-Type": "application/merge-patch+json",
                },
            )
            answer = connection.getresponse()
            if answer.status >= 300:
                print(f"annotations: {answer.status} {answer.read()[:300]!r}", file=sys.stderr, flush=True)


class Gathering:
    """Rank 0's wait for the others: whoever comes says who he is, whoever goes again before the start is forgotten."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._ranks: dict[int, tuple[dict[str, Any], TextIO]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def wait_for(self, world: int) -> tuple[list[dict[str, Any]], list[TextIO]]:
        """Return who the others are and their connections, by rank."""
        while len(self._ranks) < world - 1:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._welcome()
                else:
                    self._forget(key.data, key.fileobj)
        every = [self._ranks[rank] for rank in sorted(self._ranks)]
        return [one for one, _ in every], [file for _, file in every]

    def _welcome(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(STALL_S)
        file = connection.makefile("rw")
        with contextlib.suppress(OSError, ValueError):
            one = json.loads(file.readline())
            self._ranks[one["rank"]] = (one, file)
            self._selector.register(connection, selectors.EVENT_READ, one)

    def _forget(self, one: dict[str, Any], connection: Any) -> None:
        """A rank has nothing to say before the start, so what can be read is the end of its connection."""
        self._selector.unregister(connection)
        if self._ranks.get(one["rank"], ({}, None))[0] is one:
            del self._ranks[one["rank"]]


def lead(place: Place) -> NoReturn:
    """Rank 0: gather the others, then step after step for ever."""
    step_s, every = float(os.environ["STEP_S"]), int(os.environ["CHECKPOINT_EVERY"])
    annotator = Annotator()
    with socket.create_server(("127.0.0.1", 0), backlog=place.world) as listener:
        new = place.rendezvous.with_suffix(".new")
        new.write_text(json.dumps({"port": listener.getsockname()[1]}))
        new.replace(place.rendezvous)
        others, files = Gathering(listener).wait_for(place.world)
    peers = Peers(files)
    step = place.last_checkpoint()
    everyone = [place.me, *others]
    place.tell(event="start", step=step, nodes=[one["node"] for one in everyone], pods=[one["pod"] for one in everyone])
    annotator.values = {KUBE_STEP: step, KUBE_CHECKPOINT_STEP: step}
    annotator.start()
    while True:
        time.sleep(step_s)
        step += 1
        peers.all(f"step {step}")
        place.tell(event="step", step=step)
        annotator.values = {**annotator.values, KUBE_STEP: step}
        if step % every == 0:
            save(str(place.checkpoints), step, 0)
            peers.all(f"save {step}")
            complete(str(place.checkpoints), step, place.world)
            place.tell(event="checkpoint", step=step)
            annotator.values = {**annotator.values, KUBE_CHECKPOINT_STEP: step}


def follow(place: Place) -> NoReturn:
    """Any other rank: find rank 0, do what it says until it is gone. A rank 0 that goes before the start is looked for again."""
    began = False
    while not began:
        time.sleep(_AGAIN_S)
        with contextlib.suppress(OSError, ValueError):
            port = json.loads(place.rendezvous.read_text())["port"]
            with socket.create_connection(("127.0.0.1", port), STALL_S) as connection:
                orders = connection.makefile("rw")
                orders.write(json.dumps(place.me) + "\n")
                orders.flush()
                for line in orders:
                    began = True
                    _obey(place, line, orders)
    raise ConnectionError("rank 0 closed its connection")


def _obey(place: Place, line: str, orders: TextIO) -> None:
    order, _, step = line.partition(" ")
    if order == "save":
        save(str(place.checkpoints), int(step), place.rank)
    orders.write("done\n")
    orders.flush()


def lost_gpus() -> list[int]:
    """Return the GPUs of this node that the driver has lost; CUDA does not start with one of them."""
    state = Path(os.environ["HOTSPARE_HOST_ROOT"]) / "var/lib/lab/gpus.json"
    return [gpu["index"] for gpu in json.loads(state.read_text())["gpus"] if gpu.get("lost")]


def main() -> None:
    """Run one rank."""
    place = Place()
    if lost := lost_gpus():
        sys.exit(f"rank {place.rank}: CUDA error: no device answers for GPU {lost[0]}")
    try:
        (follow if place.rank else lead)(place)
    except OSError as error:
        sys.exit(f"rank {place.rank}: {error}")
