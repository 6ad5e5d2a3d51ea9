"""The only door from the checks to the machine: files under a root prefix, and commands with a deadline.

Set `HOTSPARE_HOST_ROOT` to look at a host that is mounted somewhere else, such as `/host` in a container.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Callable, Optional

ROOT_VARIABLE = "HOTSPARE_HOST_ROOT"

FILE_LIMIT_BYTES = 1 << 20
"""Largest part of a file that is read. Hotspare default: sysfs and procfs files that matter are far smaller."""

_PART_BYTES = 1 << 16

OUTPUT_LIMIT_BYTES = 16 << 20
"""Output of one command that is surely kept, bytes; of more than twice as much the beginning is dropped.

Hotspare default: a full kernel ring buffer is 1 to 16 MB."""


@dataclass(frozen=True)
class CommandOutput:
    """What a command printed and how it ended.

    `exit_status` is None when it did not end by itself: `missing` says that there is no such command, `timed_out` that it was
    killed at its deadline. `truncated` says that the beginning of the output was dropped.
    """

    exit_status: Optional[int]
    stdout: str
    stderr: str = ""
    missing: bool = False
    timed_out: bool = False
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """True when the command ran to its end and reported success."""
        return self.exit_status == 0


class Host:
    """A machine, seen through a root prefix (default: `HOTSPARE_HOST_ROOT`, else `/`)."""

    def __init__(self, root: Optional[str] = None, environment: Optional[Mapping[str, str]] = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self.root = root or self._environment.get(ROOT_VARIABLE, "") or "/"

    def path(self, name: str) -> str:
        """Return where the absolute path `name` of the host lies for this process."""
        return os.path.join(self.root, name.lstrip("/"))

    def variable(self, name: str) -> str:
        """Return an environment variable of this process on the host, "" where it is not set."""
        return self._environment.get(name, "")

    def read_bytes(self, name: str, limit: int = FILE_LIMIT_BYTES) -> Optional[bytes]:
        """Return at most `limit` bytes of a file, None where it is missing or refuses to be read."""
        try:
            handle = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        # A probe reads hundreds of files of a few bytes: without a file object each costs half.
        content = b""
        try:
            while len(content) < limit:
                part = os.read(handle, min(limit - len(content), _PART_BYTES))
                if not part:
                    break
                content += part
        except OSError:
            return None
        finally:
            os.close(handle)
        return content

    def read_text(self, name: str) -> Optional[str]:
        """Return a file's text without surrounding white space, None where it is missing or refuses to be read."""
        content = self.read_bytes(name)
        return None if content is None else content.decode("utf-8", "replace").strip()

    def exists(self, name: str) -> bool:
        """Say whether a file or folder is there."""
        return os.path.exists(self.path(name))

    def list(self, name: str) -> Optional[builtins.list[str]]:
        """Return the sorted names in a folder, None where there is no such folder or it refuses to be read."""
        try:
            return sorted(os.listdir(self.path(name)))
        except OSError:
            return None

    def run(self, argv: Sequence[str], deadline_s: float) -> CommandOutput:
        """Run a command to its end or kill it, with its children, after `deadline_s` seconds. Never raises for a bad command."""
        return self.start(argv, deadline_s)()

    def start(self, argv: Sequence[str], deadline_s: float) -> Callable[[], CommandOutput]:
        """Start a command like `run`, and return what waits for its output: several that are started together cost one wait.

        What it prints before that must fit a pipe (64 KiB), or it stands still until then. The deadline runs from the start.
        """
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            absent = CommandOutput(None, "", f"{argv[0]}: {error.strerror}", missing=True)
            return lambda: absent
        deadline = time.monotonic() + deadline_s
        return lambda: _gather(process, deadline)


def _gather(process: subprocess.Popen[bytes], deadline: float) -> CommandOutput:
    """Read both streams until they close or the deadline passes; a killed process that will not die is left behind."""
    assert process.stdout is not None
    assert process.stderr is not None
    streams: list[IO[bytes]] = [process.stdout, process.stderr]
    kept = [bytearray(), bytearray()]
    truncated = timed_out = False
    with selectors.DefaultSelector() as selector:
        for position, stream in enumerate(streams):
            selector.register(stream, selectors.EVENT_READ, position)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                timed_out = True
                break
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                    continue
                kept[key.data] += chunk
                if len(kept[key.data]) > 2 * OUTPUT_LIMIT_BYTES:
                    del kept[key.data][:-OUTPUT_LIMIT_BYTES]
                    truncated = True
    exit_status = None if timed_out else _ended(process, deadline)
    if exit_status is None:
        timed_out = True
        _kill_group(process)
    for stream in streams:
        stream.close()
    out, err = (bytes(part).decode("utf-8", "replace") for part in kept)
    return CommandOutput(exit_status, out, err, timed_out=timed_out, truncated=truncated)


def _ended(process: subprocess.Popen[bytes], deadline: float) -> Optional[int]:
    """Wait for the end of a process that closed its output; None when it is still there at the deadline."""
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and its children. A process stuck in the kernel cannot be reaped, so there is no long wait for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
