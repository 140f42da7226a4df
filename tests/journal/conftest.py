from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from noetic_ray.journal.batch import Ack, Batch, pack_ack, unpack_batch
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.sender import JournalSender


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until something holds; fails after some seconds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


class Wire:
    """A transport that can be held back and made to fail."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.failures: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()
        self.called = asyncio.Event()
        self.live: tuple[str, ...] = ()
        self.error: dict[str, Any] | None = None
        self.in_flight = 0
        self.most_in_flight = 0

    async def __call__(self, payload: bytes) -> bytes:
        batch = unpack_batch(payload)
        self.batches.append(batch)
        self.called.set()
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        try:
            await self.open.wait()
        finally:
            self.in_flight -= 1
        if self.failures:
            raise self.failures.pop(0)
        received = batch.first + len(batch.entries)
        return pack_ack(Ack(received, self.error is None, self.live, self.error))

    def sent(self) -> list[tuple[Any, ...]]:
        return [entry for batch in self.batches for entry in batch.entries]


@pytest.fixture
async def wire() -> Wire:
    return Wire()


MakeSender = Callable[..., JournalSender]


@pytest.fixture
async def make_sender() -> AsyncIterator[MakeSender]:
    """Senders bound to the test's loop and closed after it."""
    senders: list[JournalSender] = []

    def make(transport: Any, sender_id: str = "s", **options: Any) -> JournalSender:
        sender = JournalSender(sender_id, transport, **options)
        sender.bind(asyncio.get_running_loop())
        senders.append(sender)
        return sender

    yield make
    for sender in senders:
        await sender.aclose(timeout=1)


@pytest.fixture
async def core() -> AsyncIterator[JournalCore]:
    made = JournalCore()
    yield made
    await made.aclose()
