"""Hands on one of many equal reports: concurrent ones share its confirmation, later ones within a window are only counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from activities.incidents import Joined

_PRUNE_AT = 4096


class Repeats:
    """Remembers which reports the server has confirmed in the last `window_s` seconds. For one event loop.

    What failed is forgotten at once, so that the sender's next try is sent again.
    """

    def __init__(self, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s = window_s
        self._clock = clock
        self._under_way: dict[str, asyncio.Task[Joined]] = {}
        self._confirmed: dict[str, tuple[float, Joined]] = {}

    async def once(self, key: str, send: Callable[[], Awaitable[Joined]]) -> tuple[Joined, bool]:
        """Return the confirmation of `key`, and whether it was sent by this very call. Raises what `send` raises."""
        known = self._confirmed.get(key)
        if known and self._clock() - known[0] < self._window_s:
            return known[1], False
        under_way = self._under_way.get(key)
        if under_way is not None:
            return await asyncio.shield(under_way), False
        task = asyncio.ensure_future(self._send(key, send))
        self._under_way[key] = task
        # A caller that hangs up must not take the report away from the others who wait for it.
        return await asyncio.shield(task), True

    async def _send(self, key: str, send: Callable[[], Awaitable[Joined]]) -> Joined:
        try:
            joined = await send()
            self._remember(key, joined)
            return joined
        finally:
            del self._under_way[key]

    def _remember(self, key: str, joined: Joined) -> None:
        now = self._clock()
        if len(self._confirmed) >= _PRUNE_AT:
            self._confirmed = {old: seen for old, seen in self._confirmed.items() if now - seen[0] < self._window_s}
        self._confirmed[key] = (now, joined)
