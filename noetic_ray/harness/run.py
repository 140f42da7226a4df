"""A run: one tree of contexts, from its start until all of it has settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from noetic_ray.engine.child import Link
from noetic_ray.engine.spec import Reply
from noetic_ray.errors import ConfigError, ErrorRecord, NoeticError, StepFailed, from_wire
from noetic_ray.harness.client_view import ClientView
from noetic_ray.harness.history import Place, RunHistory
from noetic_ray.harness.report import AbortReport, HarnessResponse
from noetic_ray.items import Item, last_assistant_text
from noetic_ray.journal.events import Event
from noetic_ray.journal.fold import ContextRow, ContextTree
from noetic_ray.usage import TokenUsage

if TYPE_CHECKING:
    from noetic_ray.client.message import Message
    from noetic_ray.engine.layers.remains import Remains
    from noetic_ray.harness.backend import Backend
    from noetic_ray.harness.trace_view import TraceView
    from noetic_ray.harness.window_view import WindowView

Out = TypeVar("Out")
T = TypeVar("T")


class Run(Generic[Out]):
    """Made by `Harness.start`. Await it, or call `result`.

    Blocking methods work in scripts and notebook cells; their async twins start with `a`.
    """

    __noetic_refuse__ = "run"

    def __init__(
        self,
        id: str,
        step_id: str,
        backend: Backend,
        guard: Callable[[], None],
        accept: str = "standard",
    ) -> None:
        self.id = id
        self.step_id = step_id
        self._backend = backend
        self._guard = guard
        self._history = RunHistory(id, backend.reader)
        self._seen = ClientView(id, backend.reader)
        self._accept = accept
        self._link: Link | None = None
        self._first: Reply | None = None
        self._last: Reply | None = None
        self._result: ThreadFuture[Out] = ThreadFuture()
        self._settled: ThreadFuture[Reply] = ThreadFuture()
        self._ended: ThreadFuture[None] = ThreadFuture()
        self._on_result: Callable[[Run[Any], Reply], Any] | None = None
        self._on_settled: Callable[[Run[Any], Reply], None] | None = None
        self._tear_down: Callable[[Run[Any]], Coroutine[Any, Any, None]] | None = None
        self._remains_if_killed: Callable[[Reply], list[Remains]] | None = None
        self._timed_out: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Run({self.id!r}, step={self.step_id!r}, status={self.status!r})"

    # -- on the loop -----------------------------------------------------------------------------

    def _begin(self, link: Link, timeout: float | None) -> None:
        self._link = link
        if timeout is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout, self._time_out, timeout)

    def replied(self, reply: Reply) -> None:
        """The root context has a result, or all has settled."""
        if self._last is not None:
            return  # it was given up as lost before
        if self._first is None:
            if self._timer is not None:
                self._timer.cancel()
            self._first = reply
            if self._on_result is not None:
                self._on_result(self, reply)
        if reply.settled:
            self._last = reply
            if self._on_settled is not None:
                self._on_settled(self, reply)

    def _publish(self, reply: Reply) -> None:
        """Let waiters of the result go on."""
        if self._result.done():
            return
        error = self._error_of(reply)
        if error is not None:
            self._result.set_exception(error)
        else:
            self._result.set_result(reply.output)

    def _error_of(self, reply: Reply) -> NoeticError | None:
        if reply.error is None:
            return None
        if self._timed_out is not None:
            late = TimeoutError(f"the run did not end within {self._timed_out} s")
            return StepFailed(self.step_id, ErrorRecord.of(late), False)
        return from_wire(reply.error)

    def _time_out(self, seconds: float) -> None:
        if self._first is None and self._link is not None:
            self._timed_out = seconds
            self._link.abort(f"timeout after {seconds} s")

    # -- the result ------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Out:
        """Wait for the output; the run's error is raised.

        Raises the built-in TimeoutError after `timeout` seconds and leaves the run alone. Ctrl-C
        aborts the run before KeyboardInterrupt goes on.
        """
        self._not_on_loop()
        try:
            return self._result.result(timeout)
        except KeyboardInterrupt:
            if not self._settled.done():
                self.abort("interrupted")
            raise

    async def aresult(self, timeout: float | None = None) -> Out:
        """`result`, awaited. Cancelling the wait leaves the run alone."""
        async with asyncio.timeout(timeout):
            await _wait_for(self._result)
        return self._result.result()

    def __await__(self) -> Generator[Any, None, Out]:
        return self.aresult().__await__()

    @property
    def status(self) -> str:
        """`pending`, `running` until all has settled, then `completed`, `failed`, `cancelled`."""
        if self._last is not None:
            status = (self._first or self._last).status
            return "failed" if status == "lost" else status
        return "running" if self._link is not None else "pending"

    @property
    def usage(self) -> TokenUsage:
        """Tokens of the whole tree so far."""
        if self._last is not None:
            return self._last.tokens.copy()
        return self.tree().tokens

    @property
    def cost(self) -> float:
        """Dollars of the whole tree so far."""
        return self._last.cost if self._last is not None else self.tree().cost

    def response(self) -> HarnessResponse:
        """Wait for the end and return items, usage, cost and text; a failure stands in `.error`."""
        error: NoeticError | None = None
        output: Any = None
        try:
            output = self.result()
        except NoeticError as failed:
            error = failed
        items = tuple(self.items())
        usage = self._last.layer_usage if self._last is not None else None
        return HarnessResponse(
            items, self.usage, self.cost, last_assistant_text(items), output, error, usage
        )

    # -- abort -----------------------------------------------------------------------------------

    def abort(self, reason: str | None = None) -> AbortReport:
        """Abort the tree and wait, bounded, until each context has settled, died or been left."""
        if self._settled.done():
            return AbortReport()
        self._not_on_loop()
        started = time.monotonic()
        self._backend.abort_now(self.id, reason)
        return self._backend.thread.call(self._abort(reason, started=started))

    async def aabort(self, reason: str | None = None) -> AbortReport:
        """`abort`, awaited."""
        if self._settled.done():
            return AbortReport()
        self._backend.abort_now(self.id, reason)
        return await asyncio.wrap_future(self._backend.thread.submit(self._abort(reason)))

    def cancel(self, reason: str | None = None) -> AbortReport:
        """`abort`, then the layers' last hooks (`on_complete`, `dispose`), the deepest first.

        Hooks run once, also after an abort that had skipped them.
        """
        self._not_on_loop()
        report = self.abort(reason)
        self._backend.thread.call(self._last_hooks())
        return report

    async def acancel(self, reason: str | None = None) -> AbortReport:
        """`cancel`, awaited."""
        report = await self.aabort(reason)
        await asyncio.wrap_future(self._backend.thread.submit(self._last_hooks()))
        return report

    async def _last_hooks(self) -> None:
        if self._tear_down is not None:
            await self._tear_down(self)

    def _take_remains(self) -> list[Remains]:
        """What layers of aborted contexts have left to do; empty from then on."""
        if self._last is None:
            return []
        remains, self._last.remains = self._last.remains, []
        killed, self._remains_if_killed = self._remains_if_killed, None
        if not remains and killed is not None:
            return killed(self._last)
        return remains

    async def _abort(
        self, reason: str | None, bound: float | None = None, started: float | None = None
    ) -> AbortReport:
        if self._link is None:
            return AbortReport()
        started = started or time.monotonic()
        if self._last is None:
            self._link.abort(reason)
        try:
            async with asyncio.timeout(bound if bound is not None else self._abort_bound):
                await _wait_for(self._settled)
        except TimeoutError:
            return AbortReport.of([(self.id, "abandoned")], time.monotonic() - started)
        outcomes = list(self._settled.result().outcomes)
        return AbortReport.of(outcomes, time.monotonic() - started)  # type: ignore[arg-type]

    _abort_bound: float = 60.0

    # -- what happened ---------------------------------------------------------------------------

    def tree(self) -> ContextTree:
        """The contexts of the run, with their figures now."""
        return self._call(self._tree())

    async def atree(self) -> ContextTree:
        """`tree`, awaited."""
        return await self._on_driver(self._tree())

    def window(self, context_id: str | None = None) -> WindowView:
        """The last window the root, or another context, put together for a model.

        A table in a terminal, HTML in a notebook. Raises ConfigError `NO_WINDOW` where no model
        was asked yet.
        """
        from noetic_ray.harness.window_view import WindowView

        id = context_id or self.id
        return WindowView.of_event(self._call(self._window(id)), id)

    async def _window(self, context_id: str) -> dict[str, Any] | None:
        await self._all_told()
        return await self._history.window(context_id)

    def rows(self) -> list[ContextRow]:
        """The contexts as a flat list, parents first; figures as in `tree`, without children."""
        return self._call(self._rows())

    def items(self, context_id: str | None = None, since: int = 0) -> list[Item]:
        """The log of the root, or of another context, from item number `since` on."""
        return self._call(self._items(context_id or self.id, since))

    async def aitems(self, context_id: str | None = None, since: int = 0) -> list[Item]:
        """`items`, awaited."""
        return await self._on_driver(self._items(context_id or self.id, since))

    def events(self, since: int = 0, deltas: bool = False) -> Iterator[Event]:
        """Every event with a number above `since`, as they come, to the end of the run.

        With `deltas` pieces of streamed answers come in between, with `seq` None.
        """
        place = Place(since)
        while not place.ended:
            yield from self._call(self._history.page(place, deltas))

    async def aevents(self, since: int = 0, deltas: bool = False) -> AsyncIterator[Event]:
        """`events`, asynchronously."""
        place = Place(since)
        while not place.ended:
            for event in await self._on_driver(self._history.page(place, deltas)):
                yield event

    def messages(self, accept: str | None = None) -> list[dict[str, Any]]:
        """The messages so far as the frames a client gets, in order.

        The format is the request's, or `accept`: "standard" (OpenAI chunks) or "cui-web".
        """
        return self._call(self._messages(accept))

    async def amessages(self, accept: str | None = None) -> list[dict[str, Any]]:
        """`messages`, awaited."""
        return await self._on_driver(self._messages(accept))

    def shown(self) -> list[Message]:
        """What a client shows that has followed all sends, replacements and appends so far."""
        return self._call(self._shown())

    async def ashown(self) -> list[Message]:
        """`shown`, awaited."""
        return await self._on_driver(self._shown())

    def trace(self) -> TraceView:
        """The run's trace nodes and spaces now: a tree in a terminal, HTML in a notebook."""
        return self._call(self._trace())

    async def atrace(self) -> TraceView:
        """`trace`, awaited."""
        return await self._on_driver(self._trace())

    async def _messages(self, accept: str | None) -> list[dict[str, Any]]:
        await self._all_told()
        return await self._seen.messages(accept or self._accept)

    async def _shown(self) -> list[Message]:
        await self._all_told()
        return await self._seen.shown()

    async def _trace(self) -> TraceView:
        await self._all_told()
        return await self._seen.trace()

    async def _tree(self) -> ContextTree:
        await self._all_told()
        return await self._history.tree()

    async def _rows(self) -> list[ContextRow]:
        await self._all_told()
        return await self._history.rows()

    async def _items(self, context_id: str, since: int) -> list[Item]:
        await self._all_told()
        return await self._history.items(context_id, since)

    async def _all_told(self) -> None:
        """What this process knows is in the journal; once all has settled, all of it is."""
        if self._last is not None:
            await _wait_for(self._ended)
        else:
            await self._backend.journal.flush()

    async def _on_driver(self, coro: Coroutine[Any, Any, T]) -> T:
        if self._backend.thread.inside():
            return await coro
        self._open(coro)
        return await asyncio.wrap_future(self._backend.thread.submit(coro))

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        self._open(coro)
        self._not_on_loop()
        return self._backend.thread.call(coro)

    def _open(self, coro: Coroutine[Any, Any, Any]) -> None:
        try:
            self._guard()
        except ConfigError:
            coro.close()
            raise

    def _not_on_loop(self) -> None:
        if self._backend.thread.inside():
            raise ConfigError(
                "BLOCKING_CALL_ON_LOOP",
                "a blocking method of a run was called on the harness's own event loop",
                "use the twin whose name starts with `a`, and await it",
            )


async def _wait_for(future: ThreadFuture[Any]) -> None:
    """Wait, on any loop, until a thread future is done; cancelling the wait leaves it alone."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def tell(_: ThreadFuture[Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish)

    future.add_done_callback(tell)
    await done
