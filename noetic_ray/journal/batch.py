"""What travels between a sender and the journal."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

from noetic_ray.errors import from_wire
from noetic_ray.journal.events import SPAN

log = logging.getLogger("noetic_ray")


class Batch(NamedTuple):
    """Entries in order. `first` is the number of the first one, counted per sender from 0.

    `durable` asks for an answer only after everything of this sender is committed.
    """

    sender_id: str
    first: int
    entries: Sequence[tuple[Any, ...]]
    durable: bool


class Ack(NamedTuple):
    """`received` is how many entries of the sender the journal has dealt with.

    `durable` says that they are all as safe as this journal makes them, `live` names the runs
    whose deltas somebody reads, `error` is why they could not be made durable.
    """

    received: int
    durable: bool
    live: tuple[str, ...]
    error: dict[str, Any] | None

    def failure(self) -> Exception | None:
        """The error as an exception, a new one each time."""
        return None if self.error is None else from_wire(self.error)


def pack_batch(batch: Batch) -> bytes:
    """Pickle a batch. A span that cannot be pickled is left out, its number stays used."""
    try:
        return pickle.dumps(tuple(batch), pickle.HIGHEST_PROTOCOL)
    except Exception:
        entries = [_sendable(entry) for entry in batch.entries]
        return pickle.dumps((*batch[:2], entries, batch.durable), pickle.HIGHEST_PROTOCOL)


def _sendable(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    if entry[1] != SPAN:
        return entry
    try:
        pickle.dumps(entry)
    except Exception as error:
        log.warning("a span was left out of the trace, it cannot be pickled: %s", error)
        return "", SPAN, "", 0.0, None
    return entry


def unpack_batch(payload: bytes) -> Batch:
    """The other side of :func:`pack_batch`."""
    return Batch(*pickle.loads(payload))


def pack_ack(ack: Ack) -> bytes:
    """Pickle an answer."""
    return pickle.dumps(tuple(ack), pickle.HIGHEST_PROTOCOL)


def unpack_ack(payload: bytes) -> Ack:
    """The other side of :func:`pack_ack`."""
    return Ack(*pickle.loads(payload))
