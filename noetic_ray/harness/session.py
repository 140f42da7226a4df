"""A conversation with an agent: one thread of messages, one turn after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from noetic_ray.errors import ConfigError
from noetic_ray.harness.report import AbortReport, HarnessResponse
from noetic_ray.harness.run import _wait_for
from noetic_ray.harness.session_input import Mode, Said, as_items, as_message
from noetic_ray.harness.session_streams import (
    AsyncSessionStream,
    Pieces,
    SessionStream,
    deltas_too,
    events_in,
    items_in,
)
from noetic_ray.items import Item
from noetic_ray.journal.events import Event
from noetic_ray.usage import TokenUsage

if TYPE_CHECKING:
    from noetic_ray.harness.session_turns import TurnLine
    from noetic_ray.steps.base import Step

T = TypeVar("T")


class Session:
    """Made by `Harness.session`; one object per thread of a harness, safe for many threads.

    A turn is a run of the agent on the history so far. Blocking methods work in scripts and
    notebook cells; their async twins start with `a`. With `store=` a later harness goes on with
    the history; messages that no turn has taken up, and outcomes, end with their harness.

    Streams begin with the oldest entry the session has, at most 10,000 of all kinds (`missed`
    counts those a reader came too late for), and end with the harness. After the last reader has
    left nothing is kept for later ones.
    """

    __noetic_refuse__ = "session"

    def __init__(self, line: TurnLine) -> None:
        self._line = line

    def __repr__(self) -> str:
        return f"Session({self.thread_id!r}, agent={self.agent.id!r}, {self.status})"

    @property
    def thread_id(self) -> str:
        """The thread's name, which layers see too."""
        return self._line.thread_id

    @property
    def agent(self) -> Step[Any, Any]:
        """The step each turn runs. Its input is the message's text, its log ends with it."""
        return self._line.agent

    # -- talking ---------------------------------------------------------------------------------

    def send(self, input: Said, mode: Mode = "next_turn", message_id: str | None = None) -> str:
        """Hand a message over and return its id, at once.

        `input` is a text, an item, a dict of one, or a list of them. With `next_turn` it waits for
        a turn of its own, in the order of sending. With `between_rounds` the running turn is given
        it before its next model call; what that does not take is the next turn. `interrupt` aborts
        the running turn and has the next one. Where none runs, all three begin one.

        `message_id` becomes the id of the user's item. Raises ConfigError DUPLICATE_MESSAGE_ID,
        EMPTY_MESSAGE, NOT_A_MESSAGE (between rounds only messages are given), HARNESS_CLOSED.
        """
        message = as_message(input, mode, message_id, self._line.home.config)
        self._line.send(message)
        return message.id

    def response(self, timeout: float | None = None) -> HarnessResponse:
        """Wait for the turn of the newest message, or give the last turn's outcome again.

        Its `items` are those of that turn, the message first; a failure stands in `.error`.
        Raises the built-in TimeoutError after `timeout` seconds and leaves the turn alone,
        ConfigError NO_TURN before the first. Ctrl-C aborts the turn.
        """
        newest = self._line.newest()
        if not newest.done():
            self._not_on_loop()
        try:
            return newest.result(timeout)
        except KeyboardInterrupt:
            self.abort("interrupted")
            raise

    async def aresponse(self, timeout: float | None = None) -> HarnessResponse:
        """`response`, awaited. Cancelling the wait leaves the turn alone."""
        newest = self._line.newest()
        async with asyncio.timeout(timeout):
            await _wait_for(newest)
        return newest.result()

    def abort(self, reason: str | None = None) -> AbortReport:
        """Abort the running turn, and return when it has ended (bounded, as for a run).

        Messages in the queue have their turns afterwards. Without a turn nothing happens.
        """
        self._not_on_loop()
        turn = self._line.flag(reason)
        return AbortReport() if turn is None else self._call(self._line.abort(turn))

    async def aabort(self, reason: str | None = None) -> AbortReport:
        """`abort`, awaited."""
        turn = self._line.flag(reason)
        return AbortReport() if turn is None else await self._acall(self._line.abort(turn))

    def seed(self, items: Said) -> None:
        """Add to the history without a turn; an item that is there already is left out.

        Raises ConfigError SESSION_BUSY while a turn runs, DuplicateItem for another item under
        an id that is taken.
        """
        self._call(self._line.seed(as_items(items, self._line.home.config)))

    async def aseed(self, items: Said) -> None:
        """`seed`, awaited."""
        await self._acall(self._line.seed(as_items(items, self._line.home.config)))

    # -- how it stands ---------------------------------------------------------------------------

    @property
    def history(self) -> list[Item]:
        """A copy of all that was said: seeds and the items of every turn, each once, in order."""
        return self._line.items()

    @property
    def status(self) -> str:
        """`generating` while a turn runs, `aborting` while one ends by force, else `idle`."""
        return self._line.status()

    @property
    def queue_size(self) -> int:
        """How many messages no turn has taken up yet."""
        return self._line.waiting()

    @property
    def usage(self) -> TokenUsage:
        """Tokens of all turns that ended, failed ones too, with their whole trees."""
        return self._line.usage()

    # -- streams ---------------------------------------------------------------------------------

    def text_stream(self) -> SessionStream[str]:
        """The agent's text, in the pieces its model streams."""
        return SessionStream(self._line.feed, Pieces("text"))

    def atext_stream(self) -> AsyncSessionStream[str]:
        """`text_stream`, for `async for`."""
        return AsyncSessionStream(self._line.feed, Pieces("text"))

    def reasoning_stream(self) -> SessionStream[str]:
        """What the agent's model thinks, as far as the provider shows it, in pieces."""
        return SessionStream(self._line.feed, Pieces("reasoning"))

    def areasoning_stream(self) -> AsyncSessionStream[str]:
        """`reasoning_stream`, for `async for`."""
        return AsyncSessionStream(self._line.feed, Pieces("reasoning"))

    def item_stream(self) -> SessionStream[Item]:
        """Every item the turns add to the history, the messages sent included."""
        return SessionStream(self._line.feed, items_in)

    def aitem_stream(self) -> AsyncSessionStream[Item]:
        """`item_stream`, for `async for`."""
        return AsyncSessionStream(self._line.feed, items_in)

    def events(self, deltas: bool = False) -> SessionStream[Event]:
        """The events of the turns' runs, in order, without those that repeat the history.

        With `deltas` pieces of streamed answers come in between, with `seq` None.
        """
        return SessionStream(self._line.feed, deltas_too if deltas else events_in)

    def aevents(self, deltas: bool = False) -> AsyncSessionStream[Event]:
        """`events`, for `async for`."""
        return AsyncSessionStream(self._line.feed, deltas_too if deltas else events_in)

    # -- inside ----------------------------------------------------------------------------------

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        self._not_on_loop(coro)
        self._open(coro)
        try:
            return self._line.home.backend.thread.call(coro)
        except (CancelledError, RuntimeError):  # the loop was stopped under the call
            self._open(coro)
            raise

    async def _acall(self, coro: Coroutine[Any, Any, T]) -> T:
        thread = self._line.home.backend.thread
        self._open(coro)
        if thread.inside():
            return await coro
        try:
            return await asyncio.wrap_future(thread.submit(coro))
        except (asyncio.CancelledError, RuntimeError):
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._open(coro)
            raise

    def _open(self, coro: Coroutine[Any, Any, Any]) -> None:
        """Raises ConfigError HARNESS_CLOSED when nothing can be asked any more."""
        try:
            self._line.home.guard()
        except ConfigError:
            coro.close()
            raise

    def _not_on_loop(self, coro: Coroutine[Any, Any, Any] | None = None) -> None:
        if self._line.home.backend.thread.inside():
            if coro is not None:
                coro.close()
            raise ConfigError(
                "BLOCKING_CALL_ON_LOOP",
                "a blocking method of a session was called on the harness's own event loop",
                "use the twin whose name starts with `a`, and await it",
            )
