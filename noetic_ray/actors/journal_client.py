"""The journal actor as seen from the driver and from other actors."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from noetic_ray.errors import NoeticError, from_wire
from noetic_ray.journal.reader import JournalReader

_tokens = itertools.count()


class JournalClient(JournalReader):
    """Reads the journal behind an actor handle; `transport` is for a `JournalSender`."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._append = handle.append
        self._asking = handle.ask

    async def transport(self, payload: bytes) -> bytes:
        """Bring one batch to the journal. NoeticError when the journal is dead."""
        _check_ray()
        try:
            fine, answer = pickle.loads(await self._append.remote(payload))
        except ActorUnavailableError:
            raise
        except RayActorError as error:
            raise _gone(error) from error
        if not fine:
            raise from_wire(answer)
        return bytes(answer)

    async def aclose(self, span_timeout: float = 5.0) -> None:
        """Let the journal write what is left. The actor itself is its owner's to kill."""
        _check_ray()
        try:
            await self.handle.close.remote(span_timeout)
        except RayError as error:
            raise _gone(error) from error

    async def _ask(self, method: str, **arguments: Any) -> Any:
        _check_ray()
        token: str | None = None
        if arguments.get("wait"):
            token = f"{os.getpid()}-{id(self)}-{next(_tokens)}"
            arguments["token"] = token
        payload = pickle.dumps((method, arguments), pickle.HIGHEST_PROTOCOL)
        try:
            fine, answer = pickle.loads(await self._asking.remote(payload))
        except asyncio.CancelledError:
            if token is not None and ray.is_initialized():
                self.handle.release.remote(token)
            raise
        except RayError as error:
            raise _gone(error) from error
        if not fine:
            raise from_wire(answer)
        return answer


def _check_ray() -> None:
    """A call without Ray would start a new one."""
    if not ray.is_initialized():
        raise NoeticError("the journal's actor does not answer: Ray was shut down")


def _gone(error: BaseException) -> NoeticError:
    reason = str(error).strip().splitlines()
    return NoeticError(
        f"the journal's actor does not answer: {reason[0] if reason else type(error).__name__}"
    )
