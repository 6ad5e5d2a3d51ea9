"""Entry point of the command `hotspare`: makes Hotspare's own folders importable first, then runs the command line."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the command line.

    `workflows` is also the name of packages on the index, so the folder that holds ours goes to the front of `sys.path`: the
    private package folder in a wheel, the root of the tree otherwise.
    """
    root = str(Path(__file__).resolve().parent.parent.parent)
    if root in sys.path:
        sys.path.remove(root)
    sys.path.insert(0, root)
    from workers.cli.app import run  # only importable once the path is set

    run()
