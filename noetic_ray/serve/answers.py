"""Answers that take a while: they end when the client has gone or the server stops."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from noetic_ray.errors import NoeticError
from noetic_ray.serve.problems import Problem, closing, internal, of_error

log = logging.getLogger("noetic_ray")
PING = b": ping\n\n"
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_FAREWELL_SECONDS = 1.0


class _Answer(Response, ABC):
    """Does its work while it watches the client and the server.

    `leave` is called once, however the answer ends; whoever had a run for it alone aborts it then.
    """

    def __init__(self, stop: asyncio.Event, leave: Callable[[], None]) -> None:
        self.background = None
        self._stop = stop
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._work(scope, receive, send))
        gone = asyncio.ensure_future(_gone(receive))
        stopped = asyncio.ensure_future(self._stop.wait())
        tasks = work, gone, stopped
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done() and not work.done() and not gone.done():
                await _ended(work)
                await self._farewell(scope, receive, send)
            elif work.done():
                work.result()
        finally:
            self._leave()
            await _ended(*tasks)

    @abstractmethod
    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the answer and send it."""

    @abstractmethod
    async def _farewell(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say that the server ends, to a client that still waits."""


class JsonAnswer(_Answer):
    """An answer in one piece. What `answer` raises becomes an error of its own status."""

    def __init__(
        self,
        answer: Callable[[], Coroutine[Any, Any, Response]],
        stop: asyncio.Event,
        leave: Callable[[], None],
    ) -> None:
        super().__init__(stop, leave)
        self._answer = answer

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer()
        except Exception as error:
            response = problem_of(error).response()
        await response(scope, receive, send)

    async def _farewell(self, scope: Scope, receive: Receive, send: Send) -> None:
        await closing().response()(scope, receive, send)


class StreamAnswer(_Answer):
    """Server-sent events. None among the `parts` is a sign of life.

    The stream begins with the first part, so that what fails before it has a status of its own.
    What fails later is told by `error`, as the last part.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes | None, None],
        error: Callable[[Problem], bytes],
        stop: asyncio.Event,
        leave: Callable[[], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(stop, leave)
        self._parts = parts
        self._error = error
        self._told = {**_STREAM_HEADERS, **(headers or {})}
        self._begun = False

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async for part in self._parts:
                await self._send(send, PING if part is None else part)
        except Exception as error:
            problem = problem_of(error)
            if not self._begun:
                await problem.response()(scope, receive, send)
                return
            await self._send(send, self._error(problem))
        finally:
            await self._parts.aclose()
        await self._send(send, b"", last=True)

    async def _send(self, send: Send, body: bytes, last: bool = False) -> None:
        if not self._begun:
            self._begun = True
            response = Response(headers=self._told, media_type="text/event-stream")
            del response.headers["content-length"]
            start = {"type": "http.response.start", "status": 200}
            await send({**start, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": body, "more_body": not last})

    async def _farewell(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Bounded: a client who does not read is left."""
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                if not self._begun:
                    await closing().response()(scope, receive, send)
                    return
                await self._send(send, self._error(closing()), last=True)
        except TimeoutError:
            log.debug("a client did not read the end of its stream")


def problem_of(error: Exception) -> Problem:
    """What a client is told; what is not ours is written into the log instead."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, NoeticError):
        return of_error(error, ran=True)
    log.error("a request failed", exc_info=error)
    return internal()


async def _gone(receive: Receive) -> None:
    """Return when the client has gone; the body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
