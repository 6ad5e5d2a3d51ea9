"""The part of a detached run that lives on the node: start, poll and kill commands that outlast whoever asked for them.

Over SSH it is sent as text and run by the node's Python (3.9, standard library alone): `python3 -c TEXT start DIR LIMIT COMMAND`.
One folder per run holds `output` (and `errors`, where the streams are kept apart), `status` (the exit status), `pid` (process
group and boot id), and `timed_out` where the limit ended it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

LOST = -1
TIMED_OUT = 124
TERM_GRACE_S = 5.0
NO_PID_S = 30.0


def boot_id() -> str:
    # The node's own boot: a process group of an earlier boot may be somebody else's by now.
    root = os.environ.get("HOTSPARE_HOST_ROOT") or "/"
    try:
        with open(os.path.join(root, "proc/sys/kernel/random/boot_id")) as file:
            return file.read().strip()
    except OSError:
        return ""


def write(path: str, text: str) -> None:
    with open(path + ".part", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".part", path)


def read(path: str, limit: int = 0) -> str:
    """Return a file's text, or its last `limit` characters; empty when there is no such file."""
    try:
        with open(path, "rb") as file:
            if limit:
                file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def start(folder: str, limit_s: float, command: list[str], apart: bool = False) -> None:
    """Start the command once: the folder is the lock. Returns when the run has a pid, so a cut connection loses none.

    `apart` keeps what it writes to standard error in a file of its own.
    """
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os.read(ready, 1)
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(ready)
    supervise(folder, limit_s, command, tell, apart)
    os._exit(0)


def supervise(folder: str, limit_s: float, command: list[str], tell: int, apart: bool) -> None:
    """Run the command in a process group of its own, end the group at the limit, and leave the exit status."""
    names = ("output", "errors") if apart else ("output", "output")
    with open(os.path.join(folder, names[0]), "ab") as output, open(os.path.join(folder, names[1]), "ab") as errors:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True)
        except OSError as error:
            errors.write(f"{command[0]}: {error.strerror}\n".encode())
            errors.flush()
            write(os.path.join(folder, "status"), "127" if error.errno == 2 else "126")
            os.write(tell, b".")
            return
        write(os.path.join(folder, "pid"), f"{child.pid} {os.getpid()} {boot_id()}")
        os.write(tell, b".")
        os.close(tell)
        try:
            status = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = TIMED_OUT
            write(os.path.join(folder, "timed_out"), "")
            signal_group(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):  # the next signal does not ask
                child.wait(TERM_GRACE_S)
        signal_group(child.pid, signal.SIGKILL)
        child.wait()
        write(os.path.join(folder, "status"), str(128 - status if status < 0 else status))


def signal_group(group: int, number: int) -> None:
    """Signal a process group; one that has ended is no error."""
    with contextlib.suppress(OSError):
        os.killpg(group, number)


def running(folder: str) -> bool:
    """Say whether the run's supervisor is alive in this boot, or was started a moment ago and has no pid yet."""
    words = read(os.path.join(folder, "pid")).split()
    if not words:
        return time.time() - os.stat(folder).st_mtime < NO_PID_S
    if len(words) > 2 and words[2] != boot_id():
        return False
    return os.path.exists(f"/proc/{words[1]}")


def state_of(folder: str, limit: int) -> dict[str, Any]:
    """Return what there is to say of a run: whether it is known, its exit status, the end of its output."""
    if not os.path.isdir(folder):
        return {"known": False}
    alive = running(folder)  # looked at before the status: the other way round, a run that ends in between would look lost
    status = read(os.path.join(folder, "status")).strip()
    ended = int(status) if status else None if alive else LOST
    return {"known": True, "exit_status": ended, "output": read(os.path.join(folder, "output"), limit)}


def kill(folder: str) -> None:
    """End the run's process group; its supervisor leaves the status. A run that never started is forgotten."""
    words = read(os.path.join(folder, "pid")).split()
    status = os.path.join(folder, "status")
    if not words:
        shutil.rmtree(folder, ignore_errors=True)
    elif running(folder) and not read(status):
        until = time.monotonic() + TERM_GRACE_S
        signal_group(int(words[0]), signal.SIGTERM)
        while time.monotonic() < until and not read(status):
            time.sleep(0.05)
        signal_group(int(words[0]), signal.SIGKILL)


def main(words: list[str]) -> None:
    verb, folder = words[0], os.path.join(os.path.expanduser("~"), words[1])
    if verb == "start":
        start(folder, float(words[2]), words[3:])
    elif verb == "poll":
        print(json.dumps(state_of(folder, int(words[2]))))
    else:
        kill(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
