"""What may be run on a node by name: for each name the one command line that it stands for, and which words may follow.

Where nothing but a name is sent to a node (Run Command of AWS Systems Manager), both ends read this table: the sender finds the
name of a command, the node builds the command from the name again. What is not here is not run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from checks.host import Host
from checks.node_scripts import BUG_REPORT, END_RUN, TAILS

PYTHON, CHECKS = "{python}", "{checks}"
"""Words that each end fills in by itself: its Python, and the program of the checks."""

ROOT = "{root}"
"""Begin of a path on the node, whose file system may be mounted elsewhere."""

WORDS_LIMIT = 64
"""Words that may follow a command. Hotspare default: the probe with every option has 16."""

ANY = r"(?s).*"
"""For a program that reads its own options strictly and has no dangerous one."""

LOGS = r"/(?:var/log|sys/fs/pstore)/(?!(?:.*/)?\.\.(?:/|$))[^\0]{1,300}"
"""Files that may be read as root for whoever may send a name: logs, and what a crash left behind. No way leads up again."""


@dataclass(frozen=True)
class NodeCommand:
    """A command line: its fixed words, and what each further word must look like, empty where none may follow.

    `changes` says that it does something to the node; all others only look.
    """

    fixed: tuple[str, ...]
    further: str = ""
    changes: bool = False

    def takes(self, words: Sequence[str]) -> bool:
        """Whether these words may follow."""
        return len(words) <= WORDS_LIMIT and all(self.further and re.fullmatch(self.further, word) for word in words)


NODE_COMMANDS: Mapping[str, NodeCommand] = {
    "boot-id": NodeCommand(("cat", f"{ROOT}/proc/sys/kernel/random/boot_id")),
    "probe": NodeCommand((PYTHON, CHECKS, "probe"), ANY),
    "past-faults": NodeCommand((PYTHON, CHECKS, "past"), r"--since|\d{1,12}"),
    "kernel-log": NodeCommand(("dmesg",)),
    "kernel-journal": NodeCommand(
        ("journalctl", "_TRANSPORT=kernel"), r"--since|@\d{1,12}|-o|short-iso-precise|--utc|-n|\d{1,6}|--no-pager"
    ),
    "fabric-manager": NodeCommand(("journalctl", "-u", "nvidia-fabricmanager", "-n", "500", "--no-pager")),
    "log-files": NodeCommand((PYTHON, "-I", "-c", TAILS), r"\d{1,9}|" + LOGS),
    "uptime": NodeCommand(("uptime",)),
    "kernel-version": NodeCommand(("uname", "-a")),
    "pci": NodeCommand(("lspci", "-nn", "-d", "10de:")),
    "processes": NodeCommand(("ps", "-eo", "pid,stat,lstart,comm", "--sort", "pid")),
    "gpu-topology": NodeCommand(("nvidia-smi", "topo", "-m")),
    "gpu-query": NodeCommand(("nvidia-smi", "-q")),
    "dcgm-health": NodeCommand(("dcgmi", "health", "-c", "-j")),
    "dcgm-fields": NodeCommand(("dcgmi", "dmon", "-e"), r"[\d,]{1,200}|-c|1"),
    "bug-report": NodeCommand(("sh", "-c", BUG_REPORT, "sh"), r"\d{1,9}"),
    "load-test": NodeCommand(("all_reduce_perf",), r"-[a-zA-Z]|--[a-z_]{1,30}|\d{1,12}[KMGkmg]?|[a-z]{1,20}", changes=True),
    "end-run": NodeCommand((PYTHON, "-I", "-c", END_RUN), r"[\w./@:+=-]{1,300}", changes=True),
    "gpu-reset": NodeCommand(("nvidia-smi", "--gpu-reset", "-i"), r"[0-9A-Fa-f:.]{1,20}", changes=True),
    "reboot": NodeCommand(("reboot",), changes=True),
}
"""By name. A sender's permission to look is no permission to change: the documents of infra/ssm keep them apart."""


class NotInTable(ValueError):
    """There is no such name, or these words may not follow it."""


def named(command: Sequence[str]) -> Optional[tuple[str, list[str]]]:
    """Return the name of a command line and the words after its fixed ones, None where the table does not have it."""
    for name, entry in NODE_COMMANDS.items():
        head, words = command[: len(entry.fixed)], list(command[len(entry.fixed) :])
        if len(head) == len(entry.fixed) and all(map(_same, entry.fixed, head)) and entry.takes(words):
            return name, words
    return None


def command_line(name: str, words: Sequence[str], host: Host) -> list[str]:
    """Return the command line of a name on this node. Raises NotInTable."""
    entry = NODE_COMMANDS.get(name)
    if entry is None:
        raise NotInTable(f"this node knows no command called {name}; it knows {', '.join(NODE_COMMANDS)}")
    if not entry.takes(words):
        raise NotInTable(f"these words may not follow {name} on this node: {' '.join(words)[:200]}")
    line: list[str] = []
    for word in entry.fixed:
        line += _CHECKS_HERE if word == CHECKS else [_here(word, host)]
    return [*line, *words]


_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from checks.run_checks import main; sys.exit(main())"
_CHECKS_HERE = ["-c", _RUN, str(Path(__file__).resolve().parent.parent)]


def _here(word: str, host: Host) -> str:
    if word.startswith(ROOT):
        return host.path(word[len(ROOT) :])
    return sys.executable if word == PYTHON else word


def _same(fixed: str, word: str) -> bool:
    if fixed == PYTHON:
        return re.fullmatch(r"python[0-9.]*", Path(word).name) is not None
    return word.endswith("/run_checks.py") if fixed == CHECKS else fixed == word
