"""What a context can do, on behalf of its cell: run, spawn, talk, give up."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any

from noetic_ray.channels import Channel, expect_channel
from noetic_ray.context import ContextSnapshot
from noetic_ray.engine.blocking import blocking, cut
from noetic_ray.engine.children import Detached, spawn
from noetic_ray.engine.client_side import ClientSide
from noetic_ray.engine.layers.functions import handles
from noetic_ray.engine.tasks import engine_task
from noetic_ray.errors import Cancelled, ChannelTimeout, ConfigError
from noetic_ray.items import Item
from noetic_ray.layers.handle import LayerHandles
from noetic_ray.steps import Step

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell


class CellServices:
    """Implements `context.Services`."""

    __slots__ = ("cell",)

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def check(self) -> None:
        """Raise `Cancelled` on an aborted or abandoned context."""
        self.cell.check()

    async def run(self, step: Any, input: Any) -> Any:
        """Dispatch a step in this context."""
        _expect_step(step, "ctx.run")
        self.cell.check()
        return await self.cell.rt.dispatch(self.cell.ctx, step, input)

    async def spawn(self, step: Any, input: Any, options: Mapping[str, Any]) -> Any:
        """Run a step in a child context."""
        _expect_step(step, "ctx.spawn")
        return await spawn(self.cell, step, input, **options)

    def detach(self, step: Any, input: Any, thread_id: str | None) -> Detached:
        """Start a child nobody waits for."""
        _expect_step(step, "ctx.detach")
        self.cell.check()
        return Detached(self.cell, step, input, thread_id)

    def abort(self, reason: str | None) -> None:
        """Abort from any thread: the flag is up when the call returns."""
        cell = self.cell
        if cell.rt.on_loop():
            cell.abort(reason)
            return
        cell.rt.abort_soon([cell.ctx.id], reason)

    # -- channels --------------------------------------------------------------------------------

    async def send(
        self, channel: Channel[Any], values: Sequence[Any], timeout: float | None
    ) -> None:
        """Send; on an aborted context only what need not wait."""
        cell = self.cell
        expect_channel(channel, "ctx.send")
        if cell.closed:
            raise Cancelled(cell.ctx.abort_reason)
        if cell.ctx.aborted:
            await self._send_without_waiting(channel, values)
            return
        await self._blocking(cell.rt.channels.send(channel, values, timeout, cell.ctx.id))

    async def _send_without_waiting(self, channel: Channel[Any], values: Sequence[Any]) -> None:
        ctx = self.cell.ctx
        try:
            await self.cell.rt.channels.send(channel, values, 0, ctx.id)
        except ChannelTimeout:
            raise Cancelled(ctx.abort_reason) from None

    async def recv(self, channel: Channel[Any], n: int, timeout: float | None) -> list[Any]:
        """Receive one value or a few."""
        cell = self.cell
        expect_channel(channel, "ctx.recv")
        cell.check()
        values: list[Any] = await self._blocking(
            cell.rt.channels.recv(channel, n, timeout, cell.ctx.id)
        )
        return values

    async def try_recv(self, channel: Channel[Any]) -> list[Any]:
        """Works on an aborted context too; a closed one is refused."""
        cell = self.cell
        expect_channel(channel, "ctx.try_recv")
        if cell.closed:
            raise Cancelled(cell.ctx.abort_reason)
        return await cell.rt.channels.try_recv(channel, cell.ctx.id)

    async def wait_send(self, channel: Channel[Any], timeout: float | None) -> bool:
        """Wait until somebody sends, consuming nothing."""
        cell = self.cell
        cell.check()
        sent: bool = await self._blocking(cell.rt.channels.wait_send(channel, timeout, cell.ctx.id))
        return sent

    async def subscribe(self, channel: Channel[Any]) -> AsyncIterator[Any]:
        """Values until the channel closes or the loop is left."""
        cell = self.cell
        expect_channel(channel, "ctx.subscribe")
        cell.check()
        stream = cell.rt.channels.subscribe(channel, cell.ctx.id)
        try:
            while True:
                try:
                    value = await anext(stream)
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    raise cut(self.cell) from None
                yield value
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _blocking(self, operation: Coroutine[Any, Any, Any]) -> Any:
        return await blocking(self.cell, operation)

    # -- the rest --------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Everything emitted so far is acknowledged."""
        self.cell.check()
        await self._blocking(self.cell.rt.journal.flush())

    def client_side(self) -> ClientSide:
        """Messages, trace and MCP servers of the context."""
        return ClientSide.of(self.cell)

    def layer_handles(self) -> LayerHandles:
        """The layers active where the caller stands."""
        return handles(self.cell)

    async def parent_items(self, since: int) -> list[Item]:
        """The parent's log from `since` on."""
        parent = self.cell.spec.parent
        assert parent is not None
        return await self.cell.rt.items_of(self.cell.spec.scope.run_id, parent.id, since)

    async def parent_snapshot(self) -> ContextSnapshot:
        """The parent's figures."""
        parent = self.cell.spec.parent
        assert parent is not None
        return await self.cell.rt.snapshot_of(parent)

    def call_sync(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run an awaited operation from a thread, with the thread's context variables."""
        cell = self.cell
        if cell.rt.on_loop():
            raise ConfigError(
                "SYNC_ON_LOOP",
                "ctx.sync was used on the event loop, which it would block",
                "use `await ctx.<name>(...)` in async code",
            )
        result: ThreadFuture[Any] = ThreadFuture()
        variables = contextvars.copy_context()
        try:
            cell.rt.loop.call_soon_threadsafe(self._start_sync, call, result, context=variables)
        except RuntimeError:  # the loop has ended, and the harness with it
            raise Cancelled(cell.ctx.abort_reason) from None
        return result.result()

    def _start_sync(
        self, call: Callable[[], Coroutine[Any, Any, Any]], result: ThreadFuture[Any]
    ) -> None:
        try:
            operation = call()
        except BaseException as error:  # a wrong call is the caller's, not the loop's
            result.set_exception(error)
            return
        task = engine_task(self.cell.rt.loop, operation)
        if not self.cell.closed:
            self.cell.tasks.add(task)
            task.add_done_callback(self.cell._task_done)
        if self.cell.ctx.aborted:
            self._cancel_late(task)
        task.add_done_callback(lambda done: _hand_over(self.cell, done, result))

    def _cancel_late(self, task: asyncio.Task[Any]) -> None:
        """On an aborted context an operation still gets one turn: what need not wait succeeds."""
        self.cell.rt.loop.call_later(1.0, task.cancel)


def _hand_over(cell: Cell, task: asyncio.Task[Any], result: ThreadFuture[Any]) -> None:
    if result.done():
        return
    if task.cancelled():
        result.set_exception(Cancelled(cell.ctx.abort_reason))
        return
    error = task.exception()
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(task.result())


def _expect_step(step: Any, where: str) -> None:
    if not isinstance(step, Step):
        hint = "; make one of it with @nr.step" if callable(step) else ""
        raise TypeError(f"{where} takes a step, not {type(step).__name__}{hint}")
