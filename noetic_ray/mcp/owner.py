"""The task that opens a connection to an MCP server, keeps it, and closes it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from noetic_ray.errors import McpError, NoeticError, from_wire, to_wire
from noetic_ray.mcp.install import load_sdk
from noetic_ray.mcp.schemas import OutputSchemas
from noetic_ray.mcp.servers import McpServer

if TYPE_CHECKING:
    from noetic_ray.mcp.session import Session

log = logging.getLogger("noetic_ray")


class Opened(NamedTuple):
    """A session that is ready."""

    session: Session
    schemas: OutputSchemas


class Owner:
    """One start of one server.

    The SDK's scopes must be left in the task that entered them: a task of its own does both, and
    requests of any task go through the session meanwhile.
    """

    def __init__(self, client: str, server: McpServer) -> None:
        self._client = client
        self._server = server
        self._waiting = 0
        self._busy = 0
        self._given_up = False
        self._enough = asyncio.Event()
        self._opened: asyncio.Future[Opened | NoeticError] = (
            asyncio.get_running_loop().create_future()
        )
        self._schemas: OutputSchemas | None = None
        #: No new request is to come here: another start is needed.
        self.retired = False
        self.task = asyncio.create_task(self._own(), name=f"mcp-{client}")

    async def opened(self) -> Opened:
        """The session, once it is ready. Its start is given up when nobody waits any more."""
        self._waiting += 1
        try:
            outcome = await asyncio.shield(self._opened)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._give_up()
        if isinstance(outcome, NoeticError):
            raise _again(outcome)
        return outcome

    def begin(self) -> None:
        """A request starts to use the session."""
        self._busy += 1

    def done(self, lost: bool) -> None:
        """It does not use it any more; `lost`: the session should not be used again."""
        self._busy -= 1
        self.retired = self.retired or lost
        if self.retired and not self._busy:
            self._end()

    async def aclose(self) -> None:
        """End the session, whoever uses it, and what was started for it."""
        if self._opened.done():
            outcome = self._opened.result()
            if isinstance(outcome, Opened):
                outcome.session.closing = True
        self._give_up()
        self._end()
        await asyncio.wait([self.task])

    async def _own(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                opened = await self._open(stack)
                stack.push_async_callback(opened.schemas.aclose)
                self._opened.set_result(opened)
                await self._enough.wait()
        except asyncio.CancelledError:
            self._fail(McpError(self._client, "the connection was closed before it was ready"))
        except NoeticError as error:
            self._fail(error)
        except Exception as error:
            log.debug("MCP server %r: the connection ended", self._client, exc_info=True)
            self._fail(McpError(self._client, f"it cannot be reached: {_root(error)}"))
        finally:
            self.retired = True

    async def _open(self, stack: AsyncExitStack) -> Opened:
        sdk = await load_sdk()
        seconds = self._server.timeout
        try:
            async with asyncio.timeout(seconds):
                session: Session = await sdk.open_session(stack, self._client, self._server)
        except TimeoutError:
            raise McpError(self._client, f"it was not ready within {seconds:g} s") from None

        async def list_tools(cursor: str | None) -> object:
            return await session.ask(("tools/list", {"cursor": cursor} if cursor else {}))

        schemas = OutputSchemas(self._client, list_tools)
        session.when_tools_change(schemas.forget)
        session.when_over(self._end)
        return Opened(session, schemas)

    def _give_up(self) -> None:
        """Stop opening; once, since a second time would stop the cleaning up."""
        if not self._opened.done() and not self._given_up:
            self._given_up = self.retired = True
            self.task.cancel()

    def _end(self) -> None:
        self.retired = True
        self._enough.set()

    def _fail(self, error: NoeticError) -> None:
        self.retired = True
        if not self._opened.done():
            self._opened.set_result(error)


def _again(error: NoeticError) -> NoeticError:
    """The same error for one more caller: each has a traceback of its own."""
    return from_wire(to_wire(error))


def _root(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
