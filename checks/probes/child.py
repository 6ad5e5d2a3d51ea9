"""Ends a child process that a probe forked to ask what may hang."""

from __future__ import annotations

import os
import select
import signal

_GLANCE_S = 0.005


def end_child(child: int, patience_s: float) -> None:
    """Kill and reap a child; one that is stuck in the kernel cannot be reaped in time and is left to init."""
    os.kill(child, signal.SIGKILL)
    for _ in range(round(patience_s / _GLANCE_S)):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        select.select([], [], [], _GLANCE_S)
