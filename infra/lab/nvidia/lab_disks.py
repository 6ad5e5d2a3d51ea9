"""How full the file systems of a lab node are: answers `os.statvfs` for paths under its root from a file of the node.

That file has a line for each place: size in GB, per cent of bytes free, per cent of inodes free, or "hung" after the place.
"""

from __future__ import annotations

import os
import time
from typing import Any

_BLOCK = 4096
_INODES = 1_000_000


def replace_statvfs() -> None:
    """Let this process see the node's file systems instead of the machine's that the lab runs on."""
    root = os.environ.get("HOTSPARE_HOST_ROOT", "")
    real = os.statvfs

    def statvfs(path: Any) -> os.statvfs_result:
        if isinstance(path, str) and root and (path.rstrip("/") + "/").startswith(root.rstrip("/") + "/"):
            words = _line_of(root, "/" + path[len(root.rstrip("/")) :].strip("/"))
            if words:
                return _answer(words)
        return real(path)

    os.statvfs = statvfs


def _line_of(root: str, place: str) -> list[str]:
    """The line of the file system that a path lies in, empty where the node has no such file."""
    try:
        with open(os.path.join(root, "var/lib/lab/disks")) as file:
            lines = [line.split() for line in file if line.strip()]
    except OSError:
        return []
    inside = [line for line in lines if (place.rstrip("/") + "/").startswith(line[0].rstrip("/") + "/")]
    return max(inside, key=lambda line: len(line[0]), default=[])


def _answer(words: list[str]) -> os.statvfs_result:
    while words[1] == "hung":
        time.sleep(3600)
    blocks = int(float(words[1]) * 10**9) // _BLOCK
    free, inodes = int(blocks * float(words[2]) / 100), int(_INODES * float(words[3]) / 100)
    return os.statvfs_result((_BLOCK, _BLOCK, blocks, free, free, _INODES, inodes, inodes, 0, 255))
