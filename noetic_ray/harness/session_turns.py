"""The turns of a session, one after the other, each a run of the agent."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future as ThreadFuture
from contextvars import Context as Variables
from dataclasses import dataclass
from typing import Any

from noetic_ray.canonical import from_json
from noetic_ray.channels import channel
from noetic_ray.engine.spec import EngineConfig, Reply
from noetic_ray.engine.tasks import engine_task
from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.harness.backend import Backend
from noetic_ray.harness.report import AbortReport, HarnessResponse
from noetic_ray.harness.run import Run
from noetic_ray.harness.session_feed import Entry, Feed
from noetic_ray.harness.session_history import Record, SessionHistory, SessionRecords
from noetic_ray.harness.session_input import text_of
from noetic_ray.harness.session_queue import MessageQueue, SentMessage
from noetic_ray.items import Item, item_json, last_assistant_text, new_id, parse_item
from noetic_ray.journal.events import CONTEXT_ENDED, ITEM_APPENDED, Stored, wrap_item
from noetic_ray.steps.base import Step
from noetic_ray.usage import TokenUsage

log = logging.getLogger("noetic_ray")
INBOX_CAPACITY = 10_000
INTERRUPTED = "interrupted by a newer message"
PAGE, POLL_SECONDS = 2_000, 10.0
LATE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SessionHome:
    """What a harness gives its sessions. `start` is its `astart`, `stored` says it has a store."""

    backend: Backend
    config: EngineConfig
    start: Callable[..., Coroutine[Any, Any, Run[Any]]]
    guard: Callable[[], None]
    stored: bool


class Turn:
    """One turn while it runs. The events are told on the loop.

    `begun`: its run is there, or could not be started. `told`: all its root logged is in the
    history. `ended`: its outcome is known.
    """

    def __init__(self, message: SentMessage) -> None:
        self.message = message
        self.run_id = new_id()
        self.run: Run[Any] | None = None
        self.first = 0
        self.takes_more = True
        self.offered = False
        self.counted = False
        self.aborting = False
        self.reason: str | None = None
        self.shown: set[str] = set()
        self.begun = asyncio.Event()
        self.told = asyncio.Event()
        self.ended = asyncio.Event()


class TurnLine:
    """Runs a session's turns. Its lock guards what any thread may ask or change."""

    def __init__(self, home: SessionHome, thread_id: str, agent: Step[Any, Any]) -> None:
        self.thread_id = thread_id
        self.agent = agent
        self.home = home
        self.feed = Feed(home.backend.thread)
        self._name = f"session {thread_id!r}"
        self._records = SessionRecords(home.backend.reader, thread_id, home.stored)
        self._inbox = channel(
            f"noetic.session/{thread_id}", mode="queue", capacity=INBOX_CAPACITY, external=True
        )
        self._lock = threading.RLock()
        self._history = SessionHistory()
        self._queue = MessageQueue()
        self._claimed: set[str] = set()
        self._turn: Turn | None = None
        self._last: HarnessResponse | None = None
        self._usage = TokenUsage()
        self._unsettled: list[Run[Any]] = []
        self._closed = False
        self._worker: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def load(self) -> None:
        """Take up what earlier harnesses kept of this thread."""
        past = await self._records.load()
        with self._lock:
            for item in past.items:
                self._history.add(item)
            self._usage.merge(past.usage)

    # -- from any thread -------------------------------------------------------------------------

    def send(self, message: SentMessage) -> None:
        """Take a message in. Raises ConfigError DUPLICATE_MESSAGE_ID, or HARNESS_CLOSED."""
        with self._lock:
            self._expect_open()
            self._claim(message)
            self._queue.enter(message)
            turn = self._turn
            if turn is None:
                self._turn = Turn(message)
            elif message.mode == "between_rounds":
                self._offer(turn, message)
            else:
                self._queue.add(message)
                if message.mode == "interrupt" and not turn.aborting:
                    self._flag(turn, INTERRUPTED)
                    self._on_loop(self._interrupt, turn)
            self._on_loop(self._wake)

    def newest(self) -> ThreadFuture[HarnessResponse]:
        """What becomes of the message sent last, or of the last turn when all has ended.

        Raises ConfigError NO_TURN before the first.
        """
        with self._lock:
            if self._turn is not None:
                pending: list[SentMessage] = [self._turn.message, *self._queue]
                return max(pending, key=lambda each: each.number).outcome
            if self._last is None:
                self._expect_open()
                raise ConfigError(
                    "NO_TURN",
                    f"{self._name} had no turn in this harness",
                    "send() something first; what was said before is in .history",
                )
            done: ThreadFuture[HarnessResponse] = ThreadFuture()
            done.set_result(self._last)
            return done

    def items(self) -> list[Item]:
        """The history, with what the running turn has logged so far."""
        with self._lock:
            return self._history.since(0)

    def status(self) -> str:
        """`idle`, `generating` or `aborting`."""
        with self._lock:
            if self._turn is None:
                return "idle"
            return "aborting" if self._turn.aborting else "generating"

    def waiting(self) -> int:
        """How many messages no turn has taken up."""
        with self._lock:
            return len(self._queue)

    def usage(self) -> TokenUsage:
        """Tokens of all turns that have a result."""
        with self._lock:
            total = self._usage.copy()
            for reply in map(_reply_of, self._unsettled):
                if reply is not None:
                    total.merge(reply.tokens)
            return total

    def flag(self, reason: str | None) -> Turn | None:
        """Begin to abort the running turn, where a body may hold the loop."""
        with self._lock:
            if self._turn is not None and not self.feed.closed:
                self._flag(self._turn, reason)
                return self._turn
            return None

    def close(self, error: ConfigError) -> None:
        """Let no turn begin any more. Messages that wait for one get `error`."""
        with self._lock:
            self._closed = True
            dropped = self._queue.clear()
        _fail(dropped, error)

    def let_go(self, error: ConfigError) -> None:
        """The loop is gone: nobody waits for what it left undone."""
        with self._lock:
            turn, self._turn = self._turn, None
            left = list(self._queue) if turn is None else [turn.message, *self._queue]
        self.feed.closed = True
        _fail(left, error)

    def _expect_open(self) -> None:
        self.home.guard()
        if self._closed:
            raise closed(self._name)

    def _claim(self, message: SentMessage) -> None:
        """Each id is used once, in the history and for all that was sent."""
        ids = [item.id for item in message.items]
        for id in {message.id, *ids}:
            if id in self._claimed or id in self._history or ids.count(id) > 1:
                raise ConfigError(
                    "DUPLICATE_MESSAGE_ID",
                    f"{self._name} already has a message or item with the id {id!r}",
                    "Leave message_id out, or give each message its own.",
                )
        self._claimed |= {message.id, *ids}

    def _offer(self, turn: Turn, message: SentMessage) -> None:
        self._queue.offer(message)
        if turn.takes_more and not turn.aborting:
            turn.offered = True
            for item in message.items:
                self.home.backend.channels.post(self._inbox, item.model_dump(mode="json"))

    def _flag(self, turn: Turn, reason: str | None) -> None:
        """The first reason stays. A run that has not begun yet will find itself aborted."""
        if not turn.aborting:
            turn.aborting, turn.reason = True, reason
            self.home.backend.abort_now(turn.run_id, reason)

    def _on_loop(self, do: Callable[..., object], *arguments: Any) -> None:
        self.home.backend.thread.loop.call_soon_threadsafe(do, *arguments, context=Variables())

    # -- on the loop -----------------------------------------------------------------------------

    async def seed(self, items: tuple[Item, ...]) -> None:
        """Add to the history. Raises ConfigError SESSION_BUSY while a turn runs."""
        with self._lock:
            self._expect_open()
            if self._turn is not None:
                raise ConfigError(
                    "SESSION_BUSY",
                    f"{self._name} runs a turn, and its history grows with that alone",
                    "seed() before the first message, or when .status is idle",
                )
            fresh = self._history.new_of(items)
            for item in fresh:
                self._history.add(item)
        if fresh:
            await self._records.add(Record(fresh))

    async def abort(self, turn: Turn) -> AbortReport:
        """Wait, bounded, until a turn has ended whose abort has begun."""
        await turn.begun.wait()
        report = AbortReport() if turn.run is None else await turn.run._abort(turn.reason)
        try:
            async with asyncio.timeout(LATE_SECONDS):
                await turn.ended.wait()
        except TimeoutError:
            log.warning("a turn of %s was aborted and has not ended", self._name)
        return report

    def _interrupt(self, turn: Turn) -> None:
        self._own(self.abort(turn))

    def _wake(self) -> None:
        if self._worker is None and self._turn is not None:
            self._worker = self._own(self._work())

    async def _work(self) -> None:
        try:
            while (turn := self._turn) is not None:
                await self._play(turn)
        finally:
            self._worker = None

    async def _play(self, turn: Turn) -> None:
        """One turn, from its message to its outcome."""
        try:
            response = await self._run(turn)
        except Exception as error:  # of ours, or of what a harness runs on: the line goes on
            response = self._failed(turn, error)
        finally:
            turn.begun.set()
            turn.takes_more = False
        self._show_unlogged(turn)
        await self._empty_inbox(turn)
        self._conclude(turn, response)

    def _show_unlogged(self, turn: Turn) -> None:
        """A turn that ended before its root began has logged nothing; its message was said."""
        for item in turn.message.items:
            if item.id not in turn.shown and item.id in self._history:
                data = wrap_item(item_json(item))
                stored = (None, ITEM_APPENDED, turn.run_id, time.time(), data)
                self.feed.put(Entry(turn.run_id, stored))

    async def _run(self, turn: Turn) -> HarnessResponse:
        given = self._open(turn)
        record = Record(turn.message.items, turn.run_id, len(given))
        key = await self._records.add(record)
        follower = self._own(self._follow(turn, key, record))
        try:
            turn.run = await self._start(turn, given)
        except BaseException:
            follower.cancel()
            raise
        turn.begun.set()
        return await self._outcome(turn, turn.run)

    def _open(self, turn: Turn) -> list[Item]:
        """Enter the message into the history; what the run's log begins with before it."""
        with self._lock:
            given = self._history.since(0)
            turn.first = len(given)
            for item in turn.message.items:
                self._history.add(item)
        return given

    async def _start(self, turn: Turn, given: list[Item]) -> Run[Any]:
        message = turn.message
        starting = self.home.start(
            self.agent,
            text_of(message.items),
            items=[*given, *message.items],
            thread_id=self.thread_id,
            run_id=turn.run_id,
            inbox=self._inbox,
            follow=True,
            message_ids=[message.id],
        )
        loop = asyncio.get_running_loop()
        return await asyncio.Task(starting, loop=loop, context=message.variables)

    async def _outcome(self, turn: Turn, run: Run[Any]) -> HarnessResponse:
        """Wait for the result, and for all that the root logged."""
        output, error = None, None
        try:
            output = await run.aresult()
        except NoeticError as failed:
            error = failed
        self.home.backend.journal.hasten()
        await turn.told.wait()
        reply = _reply_of(run)
        assert reply is not None
        with self._lock:
            items = tuple(self._history.since(turn.first))
            if not turn.counted:
                self._unsettled.append(run)
        return HarnessResponse(
            items,
            reply.tokens.copy(),
            reply.cost,
            last_assistant_text(items),
            output,
            error,
            reply.layer_usage,
        )

    def _failed(self, turn: Turn, error: Exception) -> HarnessResponse:
        """The outcome of a turn that could not be run."""
        if not isinstance(error, NoeticError):
            log.error("a turn of %s could not be run", self._name, exc_info=error)
            error = NoeticError(f"a turn of {self._name} could not be run: {error!r}")
        with self._lock:
            items = tuple(self._history.since(turn.first))
        return HarnessResponse(items, text=last_assistant_text(items), error=error)

    async def _empty_inbox(self, turn: Turn) -> None:
        """What the turn was offered and did not take waits in the queue from now on."""
        if not turn.offered:
            return
        channels = self.home.backend.channels
        try:
            await channels.flush()
            while await channels.try_recv(self._inbox, self._name):
                continue
        except NoeticError as error:
            log.debug("the inbox of %s was not emptied: %s", self._name, error)

    def _conclude(self, turn: Turn, response: HarnessResponse) -> None:
        """Make the outcome known; the next message has its turn."""
        with self._lock:
            ended = [turn.message, *self._queue.end_turn(self._history.__contains__)]
            self._last = response
            following = self._queue.next()
            self._turn = None if following is None else Turn(following)
        for message in ended:
            if not message.outcome.done():
                message.outcome.set_result(response)
        turn.ended.set()

    # -- what a turn does ------------------------------------------------------------------------

    async def _follow(self, turn: Turn, key: str, record: Record) -> None:
        """Read a turn's events, to the end of its run; a detached child may outlive the turn."""
        reader = self.home.backend.reader
        since = cursor = 0
        ended = False
        try:
            while not ended:
                page = await reader.read(turn.run_id, since, PAGE, POLL_SECONDS, True, cursor)
                for event in page.entries:
                    self._see(turn, event)
                since, cursor, ended = page.since, page.cursor, page.ended
        except NoeticError as error:
            log.warning("a turn of %s can no longer be followed: %s", self._name, error)
        finally:
            turn.told.set()
        await self._count(turn, key, record)

    def _see(self, turn: Turn, event: Stored) -> None:
        """Take one event in, and show it, unless it only repeats the history."""
        _, type, context_id, _, raw = event
        if context_id == turn.run_id:
            if type == ITEM_APPENDED:
                item = from_json(raw)["item"]
                if not self._is_news(turn, item):
                    return
                turn.shown.add(item["id"])
            if type == CONTEXT_ENDED:
                turn.told.set()
        self.feed.put(Entry(turn.run_id, event))

    def _is_news(self, turn: Turn, item: dict[str, Any]) -> bool:
        """Whether the root has logged something new; its log begins with the history."""
        id = item["id"]
        with self._lock:
            if id in self._history:
                return any(each.id == id for each in turn.message.items)
            self._history.add(parse_item(item))
            self._queue.appended(id)
        return True

    async def _count(self, turn: Turn, key: str, record: Record) -> None:
        """A run has ended: what it used is final."""
        run = turn.run
        reply = None if run is None else _reply_of(run)
        if run is None or reply is None:
            return
        record.usage = reply.tokens.copy()
        with self._lock:
            turn.counted = True
            self._usage.merge(record.usage)
            if run in self._unsettled:
                self._unsettled.remove(run)
        try:
            await self._records.keep(key, record)
        except NoeticError as error:
            log.warning("what a turn of %s used is not recorded: %s", self._name, error)

    # -- the end ---------------------------------------------------------------------------------

    async def aclose(self, seconds: float) -> None:
        """Let what runs end, for so many seconds, then end it; readers get the rest."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)
        self.feed.close()

    def _own(self, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = engine_task(asyncio.get_running_loop(), coro, f"noetic-{self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def closed(name: str) -> ConfigError:
    """What asking a session of a closed harness for more raises."""
    return ConfigError(
        "HARNESS_CLOSED",
        f"the harness of {name} is closed",
        "with store=, a session for the same thread in a new harness goes on from its history",
    )


def _reply_of(run: Run[Any]) -> Reply | None:
    """What is known of a run's result: the last word, else the first."""
    return run._last or run._first


def _fail(messages: list[SentMessage], error: ConfigError) -> None:
    for message in messages:
        if not message.outcome.done():
            message.outcome.set_exception(error)
