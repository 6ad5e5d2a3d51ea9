"""The machine that the agent runs on, as a `NodeAccess`: what the watcher does over SSH, without SSH."""

from __future__ import annotations

import selectors
import subprocess
from collections.abc import Iterator
from pathlib import Path

from activities.errors import CapabilityMissing, CommandFailed, DeadlinePassed, NodeUnreachable
from activities.node_access import CommandResult, DetachedRun
from checks.host import Host

BOOT_ID = "/proc/sys/kernel/random/boot_id"
LOOK_S = 0.5
"""Seconds after which a silent log lets its reader look up."""

FOLLOW = "if dmesg > /dev/null 2>&1; then exec dmesg --follow; else exec journalctl -k -b -f -n all -o short-monotonic; fi"
OUTPUT_LIMIT = 65536
_CHUNK = 65536


class LocalAccess:
    """Commands, files and kernel log of this machine, whose root may be mounted elsewhere (`HOTSPARE_HOST_ROOT`)."""

    def __init__(self, name: str, host: Host | None = None) -> None:
        self._name, self._host = name, host or Host()

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        answer = self._host.run(command, deadline_s)
        if answer.timed_out:
            raise DeadlinePassed(f"{self._name}: no end of {command[0]} within {deadline_s:.0f} s")
        limit = output_limit or OUTPUT_LIMIT
        status = 127 if answer.missing else answer.exit_status or 0
        return CommandResult(exit_status=status, stdout=answer.stdout[-limit:], stderr=answer.stderr[-limit:])

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        raise self._only_follows()

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        raise self._only_follows()

    def kill(self, run_id: str) -> None:
        raise self._only_follows()

    def put(self, file: Path, digest: str) -> str:
        raise self._only_follows()

    def follow_kernel_log(self) -> Iterator[str]:
        process = subprocess.Popen(
            ["sh", "-c", FOLLOW], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        try:
            rest = b""
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                while True:
                    if not selector.select(LOOK_S):
                        yield ""
                        continue
                    chunk = process.stdout.raw.read(_CHUNK)  # type: ignore[attr-defined]
                    if not chunk:
                        raise NodeUnreachable(
                            f"{self._name}: the kernel log ended: neither dmesg nor journalctl goes on reading it"
                        )
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from (line.decode("utf-8", "replace") for line in lines) if lines else iter([""])
        finally:
            process.kill()
            process.stdout.close()
            process.wait()

    def boot_id(self, deadline_s: float) -> str:
        boot_id = self._host.read_text(BOOT_ID)
        if not boot_id:
            raise CommandFailed(f"{self._name}: {self._host.path(BOOT_ID)} cannot be read; is the host mounted there?")
        return boot_id

    def capabilities(self) -> frozenset[str]:
        return frozenset({"run", "follow"})

    def close(self) -> None:
        """Nothing is open."""

    def _only_follows(self) -> CapabilityMissing:
        return CapabilityMissing(f"{self._name}: the agent follows the kernel log; runs are Jobs of their own")
