"""An iterator over a channel that takes values in batches without keeping them from others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

AHEAD = 0.005
"""Seconds of the reader's own pace that one batch should last."""

STALLED = 0.02
"""Seconds after which what the reader has not taken goes back, for others to read."""

MAX_BATCH = 1000
_GROWTH = 4


class Batch(NamedTuple):
    """Leased values; `settle` is called once with how many were taken, the others go back."""

    values: list[Any]
    settle: Callable[[int], None]


Pull = Callable[[int], Awaitable[Batch | None]]
"""Waits for up to so many values; None when the channel has closed. Cancelling it is safe."""


class ValueStream(AsyncIterator[Any]):
    """Values until the channel closes. Lives on one loop; only `take` may be called elsewhere.

    A batch grows with the pace of the reader. A reader that stalls in the middle of one keeps the
    value it works on; the others return to the channel.
    """

    def __init__(
        self,
        pull: Pull,
        close: Callable[[], Awaitable[None]],
        abandon: Callable[[], None],
    ) -> None:
        self._pull = pull
        self._close = close
        self._abandon = abandon
        self._loop = asyncio.get_running_loop()
        self._values: deque[Any] = deque()
        self._size = 0
        self._settle: Callable[[int], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._arrived = 0.0
        self._want = 1
        self._pulling = False
        self._closed = False

    def __aiter__(self) -> ValueStream:
        return self

    async def __anext__(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            await asyncio.sleep(0)  # values that are here would let the reader run past its cancel
        while True:
            if self._values:
                value = self._values.popleft()
                if not self._values:
                    self._finish()
                return value
            if not await self.fill():
                raise StopAsyncIteration

    @property
    def ended(self) -> bool:
        """Whether it was closed, by its reader or by its channel."""
        return self._closed

    def take(self) -> list[Any]:
        """One value that is here, in a list, or an empty list. Any thread may call."""
        try:
            return [self._values.popleft()]
        except IndexError:
            return []

    async def fill(self) -> bool:
        """Wait until there is something to take. False when the channel has closed.

        Cancelling it loses nothing: values that came are kept for the next call or go back.
        """
        if self._values:
            return True
        self._finish()
        if self._closed:
            return False
        if self._pulling:
            raise RuntimeError("this stream is already being read; give each reader its own")
        self._pulling = True
        try:
            batch = await self._pull(self._want)
        finally:
            self._pulling = False
        if batch is not None and self.ended:  # its owner was settled meanwhile
            batch.settle(0)
            return False
        if batch is None:
            await self.aclose()
            return False
        self._keep(batch)
        return True

    async def aclose(self) -> None:
        """Give back what was not taken and leave the channel."""
        if not self._closed:
            self._closed = True
            self._finish()
            await self._close()

    def let_go(self) -> None:
        """End the stream for a host that forgets its owner and closes its place by itself."""
        self._closed = True
        self._finish()

    def __del__(self) -> None:
        if not self._closed:
            self._abandon()

    def _keep(self, batch: Batch) -> None:
        self._size = len(batch.values)
        self._settle = batch.settle
        self._arrived = self._loop.time()
        self._timer = self._loop.call_later(STALLED, self._stalled)
        self._values.extend(batch.values)

    def _stalled(self) -> None:
        self._timer = None
        size, taken = self._size, self._release()
        if taken < size:
            self._want = max(1, taken)

    def _finish(self) -> None:
        """Account for the current batch, if there is one, and set the size of the next."""
        if self._settle is None:
            return
        taken = self._release()
        spent = max(self._loop.time() - self._arrived, 1e-6)
        pace = int(taken * AHEAD / spent)
        self._want = max(1, min(pace, self._want * _GROWTH, MAX_BATCH))

    def _release(self) -> int:
        """Settle the batch: what is still here goes back. How many values were taken."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rest = 0
        while self.take():
            rest += 1
        taken, settle = self._size - rest, self._settle
        self._size, self._settle = 0, None
        if settle is not None:
            settle(taken)
        return taken
