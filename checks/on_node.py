"""What Run Command starts on a node: `python -m hotspare.checks.on_node ACTION CHECK RUN_ID OPTIONS`, out of what is installed.

It needs no settings and no network, runs what is in a table and nothing else, and prints one packed line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

WRONG_USAGE = 64


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Carry out one question. What came of it, a refusal too, is in the answer; the exit status says that there is one."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) != 4:
        sys.stderr.write("usage: on_node ACTION CHECK RUN_ID OPTIONS\n")
        return WRONG_USAGE
    root = str(Path(__file__).resolve().parent.parent)
    if root not in sys.path:  # as part of the private package `hotspare`, where `checks` has no name of its own
        sys.path.insert(0, root)
    from checks.named_runs import NamedRuns  # only importable once the path is set

    sys.stdout.write(NamedRuns().answer(words[0], words[1], words[2], words[3]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
