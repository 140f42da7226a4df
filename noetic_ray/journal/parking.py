"""Waiting for something to happen to a key, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Parking:
    """Who waits, by key. Woken by calls, not by polling; a waiter that leaves leaves nothing."""

    def __init__(self) -> None:
        self._parked: dict[Hashable, set[asyncio.Future[bool]]] = {}
        self._tokens: dict[str, asyncio.Future[bool]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._parked.values()))

    def __contains__(self, key: Hashable) -> bool:
        return key in self._parked

    async def wait(self, key: Hashable, seconds: float, token: str | None = None) -> bool:
        """Wait for `wake(key)`. False when the time ran out or `release(token)` came first."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(seconds, _resolve, future, False)
        waiters = self._parked.setdefault(key, set())
        waiters.add(future)
        if token is not None:
            self._tokens[token] = future
        try:
            return await future
        finally:
            timer.cancel()
            waiters.discard(future)
            if not waiters and self._parked.get(key) is waiters:
                del self._parked[key]
            if token is not None:
                self._tokens.pop(token, None)

    def wake(self, key: Hashable) -> None:
        """Let everybody who waits for `key` go on."""
        for future in self._parked.get(key, ()):
            _resolve(future, True)

    def release(self, token: str) -> None:
        """Send one waiter home."""
        future = self._tokens.get(token)
        if future is not None:
            _resolve(future, False)

    def close(self) -> None:
        """Send everybody home."""
        for waiters in self._parked.values():
            for future in waiters:
                _resolve(future, False)


def _resolve(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
