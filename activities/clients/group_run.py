"""The part of a group run that stands around the launch command: sets its environment, and keeps NCCL's log short.

Sent as text and run by the launch host's Python (3.9, standard library alone): `python3 -I -c TEXT SPEC COMMAND...`. SPEC is
JSON: `environment` (name to value), `files` (names whose value is a path: left out where this host lacks the file), `alike`
(lines of NCCL's log kept that differ in numbers alone), `log_lines` (lines of it kept in all). A word {environment} of the
command becomes `-x NAME=VALUE` for each variable, as mpirun wants it. What the program itself prints passes untouched.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

ENVIRONMENT = "{environment}"
NO_EXECUTION, NO_COMMAND = 126, 127  # POSIX, Shell Command Language, "Exit Status for Commands"

LOG = re.compile(rb"^.{0,80}?[\w.-]+:\d+:\d+ \[[^\]]*\] .{0,80}?NCCL (INFO|WARN|TRACE|VERSION) ?(.*)$|^(NCCL version .*)$")
"""A line of NCCL's log, with the prefix that a launcher may give: host, process and thread, device, level, text."""

ROW = re.compile(rb"\d\s+\d+\s+[a-z]\w+\s+[a-z]\w+\s+-?\d")
"""Begin of a row of the table, which the log may interrupt: such a line is not the log's alone."""

BY_HOST = re.compile(rb"Using network|[Pp]rovider is|NET plugin|No plugin found|Could not find|No eligible providers|via NET/")
"""Lines that may differ from host to host, and have to be known of each: what it reaches the network with."""

HOST = re.compile(rb"([\w.-]+):\d+:\d+ \[")
NUMBERS = re.compile(rb"0x[0-9a-fA-F]+|\d+")


class Log:
    """Decides which lines of NCCL's log are kept: the first of those that are alike, up to a number."""

    def __init__(self, alike: int, lines: int) -> None:
        self._alike, self._left = alike, lines
        self._seen: dict[bytes, int] = {}
        self.dropped = 0

    def keeps(self, line: bytes) -> bool:
        """Say whether a line is to be printed; one that is not of the log always is."""
        match = LOG.match(line.rstrip())
        if not match or ROW.search(line):
            return True
        text = match.group(2) or match.group(3) or b""
        key = (match.group(1) or b"") + NUMBERS.sub(b"#", text)
        host = HOST.search(line)
        if host and BY_HOST.search(text):
            key = host.group(1) + b" " + key
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._left <= 0 or self._seen[key] > self._alike:
            self.dropped += 1
            return False
        self._left -= 1
        return True


def environment_of(spec: dict[str, Any]) -> dict[str, str]:
    """Return the variables that hold on this host."""
    files = set(spec.get("files", ()))
    return {name: value for name, value in spec["environment"].items() if name not in files or os.path.exists(value)}


def filled(command: list[str], environment: dict[str, str]) -> list[str]:
    """Put the variables into the command where it asks for them."""
    words: list[str] = []
    for word in command:
        if word == ENVIRONMENT:
            for name, value in environment.items():
                words += ["-x", f"{name}={value}"]
        else:
            words.append(word)
    return words


def main(words: list[str]) -> int:
    """Run the command; its exit status is ours, and a signal to the group is its business."""
    spec, command = json.loads(words[0]), words[1:]
    environment = environment_of(spec)
    # A handler, not SIG_IGN: the command would inherit that.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        child = subprocess.Popen(
            filled(command, environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", flush=True)
        return NO_COMMAND if isinstance(error, FileNotFoundError) else NO_EXECUTION
    log = Log(spec["alike"], spec["log_lines"])
    assert child.stdout is not None
    for line in iter(child.stdout.readline, b""):
        if log.keeps(line):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    status = child.wait()
    if log.dropped:
        print(f"# {log.dropped} more lines of NCCL's log are left out", flush=True)
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
