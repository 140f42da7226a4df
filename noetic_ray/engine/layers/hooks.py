"""Calls one hook: its turn, its time, and what its failure means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from noetic_ray.context import current_frame
from noetic_ray.engine.flow import callback
from noetic_ray.engine.layers.entry import LayerEntry
from noetic_ray.engine.outcome import Completed
from noetic_ray.engine.tasks import being_cancelled
from noetic_ray.errors import ErrorRecord, NoeticError
from noetic_ray.layers.base import timeout_of

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell

log = logging.getLogger("noetic_ray")
#: Hooks whose answers may hold a new state; each reads the state when its turn has come.
WRITERS = frozenset(
    {"init", "recall", "store", "on_return", "on_item_append", "on_complete", "dispose"}
)


class _Failed:
    """Stands for the answer of a hook that gave none."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "FAILED"


FAILED: Final = _Failed()


class HookTimeout(TimeoutError):
    """A hook did not end in its time."""


async def call_hook(
    cell: Cell, entry: LayerEntry, hook: str, params: Callable[[], Any], *kinds: type
) -> Any:
    """A hook's answer: None or one of `kinds` (anything, when none are given). May raise.

    Hooks and functions that may change a layer's state run one after the other in a context.
    """

    async def call() -> Any:
        seconds = timeout_of(entry.layer, hook)
        own_clock = asyncio.timeout(seconds)
        try:
            async with own_clock:
                answer = await callback(cell, getattr(entry.layer, hook), params())
        except TimeoutError as error:
            if own_clock.expired():
                raise HookTimeout(f"no answer within {seconds} s") from None
            raise error
        if answer is not None and kinds and not isinstance(answer, kinds):
            raise TypeError(_wrong_answer(hook, answer, kinds))
        return answer

    return await (entry.serial.run(call) if hook in WRITERS else call())


async def try_hook(
    cell: Cell, entry: LayerEntry, hook: str, params: Callable[[], Any], *kinds: type
) -> Any:
    """Like `call_hook`; a failure is a diagnostic and gives `FAILED`, and the run goes on."""
    if not entry.live:
        return None
    try:
        return await call_hook(cell, entry, hook, params, *kinds)
    except BaseException as error:
        if not hook_failed(cell, error):
            raise
        diagnose(cell, entry.layer.id, hook, error)
        return FAILED


def hook_failed(cell: Cell, error: BaseException) -> bool:
    """Whether an error is the hook's own, and not the context's end coming through it."""
    if cell.ctx.aborted or cell.closed or isinstance(error, Completed | GeneratorExit):
        return False
    return not (isinstance(error, asyncio.CancelledError) and being_cancelled())


def diagnose(cell: Cell, layer_id: str, hook: str, error: BaseException) -> None:
    """Say what went wrong in a layer: an event, a span event, a line in the log."""
    said = f"{type(error).__name__}: {error}"
    log.warning("layer %s, %s: %s (context %s)", layer_id, hook, said, cell.ctx.id)
    frame = current_frame.get()
    span = frame.span if frame is not None else cell.span
    span.event("layer.diagnostic", {"layer": layer_id, "hook": hook, "error": said})
    record = ErrorRecord.of(error)
    data: dict[str, Any] = {"layer": layer_id, "hook": hook, "message": said}
    data["error"] = {"type": record.type, "message": record.message, "traceback": record.traceback}
    if isinstance(error, NoeticError):
        data["error"]["kind"] = error.kind
    cell.emit("layer.diagnostic", data)


def keep_state(cell: Cell, entry: LayerEntry, state: Any) -> None:
    """Take a layer's new state; one that cannot be saved is a diagnostic."""
    stack = cell.layers
    try:
        entry.keep(state, None if stack is None else stack.writer)
    except Exception as error:
        entry.key = None  # said once; the state goes on living in this context
        diagnose(cell, entry.layer.id, "persist", error)


def _wrong_answer(hook: str, answer: object, kinds: tuple[type, ...]) -> str:
    names = " or ".join(f"nr.{kind.__name__}" if kind is not str else "a text" for kind in kinds)
    return f"{hook} returned {type(answer).__name__}, not {names} or None"
