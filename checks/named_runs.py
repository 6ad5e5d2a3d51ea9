"""The node's side of runs by name: starts a command of the table once per run id, waits for it, looks at it, ends it.

The answer is one line, packed, because the service that carries it takes 24,000 characters and no more.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from typing import Any, Optional

from checks import detached_run
from checks.host import Host
from checks.node_commands import NotInTable, command_line

FORMAT = 1
"""Of question and answer. Another number is another language: neither end guesses."""

MARK = "hotspare-run"
"""Begin of the line with the answer; whatever else is on standard output is not ours."""

HOME = "/var/lib/hotspare-node"
"""Root's folder of runs on the node; it outlives boots, so that a run which a restart ended is known to be lost. Nobody else
writes there, as the user of workers does in /var/lib/hotspare where a node is a worker's machine too."""

KEEP_S = 86400.0
"""Seconds that an ended run stays known. Hotspare default: a worker that is away for a day starts nothing twice."""

GRACE_S = 2 * detached_run.TERM_GRACE_S
"""Seconds past its limit in which a run is ended. Hotspare default: what its supervisor takes, twice over."""

LONGEST_S = 7200.0
"""Seconds of the longest run that a node takes on. Hotspare default: a burn-in of two hours."""

LIMIT = 32_000_000
"""Characters of output that are sent at most. Hotspare default: a packed bug report with room to spare."""


class NamedRuns:
    """Runs of this node. `host` says where its file system is."""

    def __init__(self, host: Optional[Host] = None) -> None:
        self._host = host or Host()
        self._home = self._host.path(HOME)

    def answer(self, action: str, check: str, run_id: str, options: str) -> str:
        """Carry out one question and return the line of its answer; what is refused is an answer too."""
        try:
            return packed(self._answer(action, check, run_id, unpacked_options(options)))
        except NotInTable as error:
            return packed({"refused": str(error)})
        except (ValueError, TypeError, KeyError, OverflowError) as error:  # whatever is wrong with a question, it has an answer
            return packed({"refused": f"the question cannot be read: {error}"})

    def _answer(self, action: str, check: str, run_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
        if options.get("format") != FORMAT:
            raise ValueError(f"this node reads format {FORMAT}, and was asked in format {options.get('format')}")
        folder = os.path.join(self._home, "runs", folder_name(run_id))
        limit = max(1, min(int(options.get("limit", LIMIT)), LIMIT))
        if action == "poll":
            return detached_run.state_of(folder, limit)
        if action == "kill":
            detached_run.kill(folder)
            return {"known": os.path.isdir(folder)}
        if action not in ("run", "start"):
            raise ValueError(f"this node knows no action called {action}; it knows run, start, poll, kill")
        asked_s = float(options["deadline_s"])
        deadline_s = asked_s if 0 < asked_s < LONGEST_S else LONGEST_S  # no number at all is not in between
        command = command_line(check, [str(word) for word in options.get("words", [])], self._host)
        os.makedirs(self._home, mode=0o700, exist_ok=True)
        os.chdir(self._home)
        self._forget_old()
        detached_run.start(folder, deadline_s, command, apart=action == "run")
        return self._ended(folder, deadline_s, limit) if action == "run" else {"started": True}

    def _ended(self, folder: str, deadline_s: float, limit: int) -> dict[str, Any]:
        """Wait for the end of a run, whoever started it, and return what came of it."""
        until, wait = time.monotonic() + deadline_s + GRACE_S, 0.01
        while (state := detached_run.state_of(folder, 1))["exit_status"] is None and time.monotonic() < until:
            time.sleep(wait)
            wait = min(2 * wait, 0.2)
        return {
            "exit_status": state["exit_status"],
            "timed_out": state["exit_status"] is None or os.path.exists(os.path.join(folder, "timed_out")),
            "stdout": detached_run.read(os.path.join(folder, "output"), limit),
            "stderr": detached_run.read(os.path.join(folder, "errors"), limit),
        }

    def _forget_old(self) -> None:
        """Remove runs that ended long ago; another that does the same at once is no error."""
        with contextlib.suppress(OSError), os.scandir(os.path.join(self._home, "runs")) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if time.time() - os.stat(os.path.join(entry.path, "status")).st_mtime > KEEP_S:
                        shutil.rmtree(entry.path, ignore_errors=True)


def folder_name(run_id: str) -> str:
    """A run id as a folder name: safe, readable, and different for different ids."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", run_id).strip("._")[-60:]
    return f"{readable}-{hashlib.sha256(run_id.encode()).hexdigest()[:10]}"


def packed(answer: Mapping[str, Any]) -> str:
    """An answer as it travels: mark, format, length of the rest, and the rest (JSON, gzip, base64)."""
    data = base64.b64encode(gzip.compress(json.dumps(answer).encode(), 6)).decode()
    return f"{MARK} {FORMAT} {len(data)} {data}"


def unpacked(text: str) -> Optional[dict[str, Any]]:
    """Read an answer out of what a command printed; None where it is cut. Raises ValueError where there is none to read."""
    line = next((line for line in text.splitlines() if line.startswith(MARK + " ")), "")
    words = line.split(" ")
    if len(words) < 3 or not words[2].isdigit():
        raise ValueError("there is no answer in it")
    if words[1] != str(FORMAT):
        raise ValueError(f"the node answers in format {words[1]}, and this release reads format {FORMAT}")
    data = words[3] if len(words) > 3 else ""
    if len(data) != int(words[2]) or re.fullmatch(r"[A-Za-z0-9+/=]*", data) is None:
        return None  # who cuts it may say so in its place
    answer: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(data)))
    return answer


def packed_options(options: Mapping[str, Any]) -> str:
    """Options as they travel: letters, digits, hyphens and underscores alone, so that no shell finds anything in them."""
    return base64.urlsafe_b64encode(json.dumps({"format": FORMAT, **options}).encode()).decode().rstrip("=")


def unpacked_options(text: str) -> dict[str, Any]:
    """Read what `packed_options` wrote. Raises ValueError."""
    options = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    if not isinstance(options, dict):
        raise ValueError("the options are no table")
    return options
