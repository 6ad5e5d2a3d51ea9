"""Ends what an owner that was killed has left running: a process cannot be told to end with its parent, and nobody else would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence

_DONE = "done"

# Reads lines of process ids, the last line counts, and kills their groups when the writer is gone.
_SCRIPT = f"""while read -r line; do pids="$line"; done
[ "$pids" = {_DONE} ] && exit
for pid in $pids; do kill -9 "-$pid" 2>/dev/null; done
"""


class OwnerGuard:
    """A shell in a session of its own, that waits for the end of this process.

    `more` is what it does besides, in the language of /bin/sh, with `words` as $1, $2 and so on.
    """

    def __init__(self, more: str = "", words: Sequence[str] = ()) -> None:
        self._command = ["/bin/sh", "-c", _SCRIPT + more, "sh", *words]
        self._process: asyncio.subprocess.Process | None = None

    async def watch(self, pids: Iterable[int]) -> None:
        """Watch these process groups from now on, and no others."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
        await self._say(self._process, " ".join(str(pid) for pid in pids))

    async def close(self) -> None:
        """Watch no longer. What still runs is left alone."""
        guard, self._process = self._process, None
        if guard is None:
            return
        await self._say(guard, _DONE)
        assert guard.stdin is not None
        guard.stdin.close()
        await guard.wait()

    async def _say(self, guard: asyncio.subprocess.Process, line: str) -> None:
        assert guard.stdin is not None
        with contextlib.suppress(ConnectionError):  # somebody has ended the guard
            guard.stdin.write(f"{line}\n".encode())
            await guard.stdin.drain()
