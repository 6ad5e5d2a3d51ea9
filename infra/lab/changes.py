"""Waiting until something holds, for things that say when they have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changes:
    """Wakes whoever waits for a condition. `notify` is called on the event loop after every change."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify(self) -> None:
        """Let every waiter look again."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is looked at now and after every change."""
        while not holds():
            await self._next.wait()
