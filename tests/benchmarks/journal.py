"""What recording costs: an append with its share of the journal, events, batches and memory."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from statistics import median
from time import perf_counter

import ray

from noetic_ray.actors.journal_actor import start_journal_actor
from noetic_ray.actors.journal_client import JournalClient
from noetic_ray.items import Item, assistant_message, item_json, new_id
from noetic_ray.journal.batch import Ack, pack_ack, unpack_batch
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.local import LocalJournal
from noetic_ray.journal.sender import JournalSender, Transport
from noetic_ray.log import ItemLog

_ITEMS = 8_192
_ROUNDS = 9
_RECORDS = 512
_CONTEXTS = 2_000
_DATA = {"status": "completed", "tokens": {"input": 12, "output": 5}, "cost": 0.01}


def _items() -> list[Item]:
    return [assistant_message(f"The answer to question {n} is {n * n}.") for n in range(_ITEMS)]


def _list_seconds(items: list[Item]) -> float:
    """The least that a log with a journal could do: append to a list and write JSON."""
    kept: list[Item] = []
    begun = perf_counter()
    for item in items:
        kept.append(item)
        item_json(item)
    return perf_counter() - begun


async def _log_seconds(items: list[Item], transport: Transport) -> float:
    """Append the same items to a log whose observer feeds a journal, until all is acknowledged."""
    sender = _sender(transport)
    run_id = new_id()
    log = ItemLog(on_append=lambda item: sender.item(run_id, run_id, item))
    begun = perf_counter()
    for item in items:
        log.append(item)
    await sender.flush()
    seconds = perf_counter() - begun
    await sender.aclose()
    return seconds


def _sender(transport: Transport) -> JournalSender:
    sender = JournalSender(new_id(), transport)
    sender.bind(asyncio.get_running_loop())
    return sender


async def _append_over_list(transport: Transport) -> float:
    items = _items()
    await _log_seconds(items, transport)
    ratios = []
    for _ in range(_ROUNDS):
        gc.collect()
        before = _list_seconds(items)
        seconds = await _log_seconds(items, transport)
        ratios.append(seconds / min(before, _list_seconds(items)))
    return median(ratios)


async def _lone_event_ms(client: JournalClient | LocalJournal) -> float:
    """From an emit on an idle loop until a reader has the event."""
    sender = _sender(client.transport)
    took = []
    for n in range(_ROUNDS):
        run_id = new_id()
        reading = asyncio.create_task(client.read(run_id, wait=10.0))
        await asyncio.wait([reading], timeout=0.05)
        begun = perf_counter()
        sender.emit(run_id, "step.started", run_id, {"n": n})
        await reading
        took.append((perf_counter() - begun) * 1e3)
    await sender.aclose()
    return median(took)


async def _nowhere(payload: bytes) -> bytes:
    raise AssertionError("never sent")


def _microseconds(call: Callable[[JournalSender], None]) -> float:
    """One call on a sender that has no loop yet, so that nothing but the call is measured."""
    took = []
    for _ in range(_ROUNDS):
        sender = JournalSender("s", _nowhere)
        begun = perf_counter()
        for _ in range(10_000):
            call(sender)
        took.append((perf_counter() - begun) / 10_000 * 1e6)
    return median(took)


def _payload(fill: Callable[[JournalSender], None]) -> tuple[float, bytes]:
    """Seconds to make a batch of what `fill` emitted, and the batch."""
    payloads: list[bytes] = []
    answered = 0.0

    async def answer(payload: bytes) -> bytes:
        nonlocal answered
        answered = perf_counter()
        payloads.append(payload)
        batch = unpack_batch(payload)
        return pack_ack(Ack(batch.first + len(batch.entries), True, (), None))

    async def send() -> float:
        sender = JournalSender(new_id(), answer)
        fill(sender)
        sender.bind(asyncio.get_running_loop())
        begun = perf_counter()
        await sender.flush()
        await sender.aclose()
        return answered - begun

    return asyncio.run(send()), payloads[0]


def _batch_ms() -> tuple[float, float]:
    """Milliseconds for 512 small events: making the batch, and taking it into a core."""

    def fill(sender: JournalSender) -> None:
        for n in range(_RECORDS):
            sender.emit("run", "step.completed", f"context-{n % 50}", _DATA)

    async def take(payload: bytes) -> float:
        core = JournalCore()
        begun = perf_counter()
        await core.handle(payload)
        return perf_counter() - begun

    made = [_payload(fill) for _ in range(_ROUNDS)]
    taken = [asyncio.run(take(payload)) for _, payload in made]
    return median(seconds for seconds, _ in made) * 1e3, median(taken) * 1e3


def _bytes_per_context() -> float:
    """Memory of the core for contexts that started, did one step and appended one item."""
    run_id = new_id()
    payloads = []
    for n in range(_CONTEXTS):
        context_id = new_id()
        started = {
            "parent_id": run_id,
            "depth": 1,
            "step": "worker",
            "node": new_id(),
            "pid": n,
            "actor": new_id(),
        }

        def fill(
            sender: JournalSender,
            context_id: str = context_id,
            started: dict[str, object] = started,
        ) -> None:
            sender.emit(run_id, "context.started", context_id, started)
            sender.emit(run_id, "step.started", context_id, {"step": "worker", "path": "worker/0"})
            sender.item(run_id, context_id, assistant_message("ready"))

        payloads.append(_payload(fill)[1])

    async def take() -> float:
        core = JournalCore()
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for payload in payloads:
            await core.handle(payload)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return held / _CONTEXTS

    return asyncio.run(take())


async def _with_actor() -> dict[str, float]:
    handle = start_journal_actor()
    client = JournalClient(handle)
    await client.hello()
    try:
        return {
            "append_over_list": await _append_over_list(client.transport),
            "journal_lone_event_ms": await _lone_event_ms(client),
        }
    finally:
        ray.kill(handle)


async def _locally() -> dict[str, float]:
    journal = LocalJournal(JournalCore())
    try:
        return {"append_over_list_inline": await _append_over_list(journal.transport)}
    finally:
        await journal.aclose()


def run() -> dict[str, float]:
    """All figures by name; starts Ray when it is not there."""
    mine = not ray.is_initialized()
    if mine:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        figures = asyncio.run(_with_actor())
    finally:
        if mine:
            ray.shutdown()
    figures |= asyncio.run(_locally())
    item = _items()[0]
    figures["journal_emit_us"] = _microseconds(lambda s: s.emit("r", "t", "c", _DATA))
    figures["journal_item_us"] = _microseconds(lambda s: s.item("r", "c", item))
    figures["journal_batch_made_ms"], figures["journal_batch_taken_ms"] = _batch_ms()
    figures["journal_bytes_per_context"] = _bytes_per_context()
    return figures


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:30} {value:12.3f}")
