"""The rounds of an OpenAI-like provider: attempts, streams, retries. Loaded by the first one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from noetic_ray.errors import ModelFailed, ModelRateLimited
from noetic_ray.models.cache_hints import Hint, hint_of, is_refusal
from noetic_ray.models.chat import Chat
from noetic_ray.models.failures import (
    AttemptFailed,
    broken,
    from_status,
    read_event,
    without_secrets,
)
from noetic_ray.models.http import ConnectionFailed, Endpoint
from noetic_ray.models.openai import OpenAI, is_host, with_path
from noetic_ray.models.pricing import list_price, reported_cost
from noetic_ray.models.protocol import ModelEvents, ModelReply, ModelRequest
from noetic_ray.models.responses import Responses
from noetic_ray.models.retry import asked_wait, backoff, spread
from noetic_ray.models.sse import SseParser
from noetic_ray.models.wire import ReplyReader, Wire

if TYPE_CHECKING:
    import httpx

#: How long to wait for the end of a stream whose answer is complete, to use the connection again.
_LINGER = 0.25
_ERROR_BODY = 65_536
_ERROR_PATIENCE = 5.0
_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class Exchange:
    """Talks to the server of one provider."""

    def __init__(self, provider: OpenAI) -> None:
        self._provider = provider
        official = is_host(provider.base_url, "api.openai.com")
        self._wire: Wire = Responses() if provider.api == "responses" else Chat(official)
        headers = {"accept": "text/event-stream", "content-type": "application/json"}
        if provider.api_key:
            headers["authorization"] = f"Bearer {provider.api_key}"
        url = with_path(provider.base_url, urlsplit(provider.base_url).path + self._wire.path)
        self._hint: Hint = hint_of(provider)
        self._endpoint = Endpoint(url, headers, provider.verify)

    async def round(self, request: ModelRequest, events: ModelEvents) -> ModelReply:
        """Run one round."""
        hint = self._hint if request.cache_boundary is not None else None
        refused = False
        body = self._wire.body(request, hint)
        attempt = 1
        while True:
            reader = self._wire.reader(request, events)
            try:
                reply = await self._attempt(body, reader)
            except AttemptFailed as failure:
                if hint is not None and not refused and self._may_drop_hint(failure):
                    refused = True
                    body = self._wire.body(request)
                    continue
                delay, error = self._judge(failure, attempt, reader.partial)
            else:
                if refused:
                    # The request passed without the hint, so it was the hint that was wrong.
                    self._hint = None
                reply.cost = await self._cost(request, reply, reader)
                return reply
            if delay is None:
                raise error
            events.retried(attempt, delay, error)
            attempt += 1
            await asyncio.sleep(delay)

    def _may_drop_hint(self, failure: AttemptFailed) -> bool:
        return self._provider.cache_control == "auto" and is_refusal(failure)

    async def _attempt(self, body: bytes, reader: ReplyReader) -> ModelReply:
        try:
            response = await self._endpoint.open(body, self._provider.idle_timeout)
        except ConnectionFailed as exc:
            raise AttemptFailed(_connection_trouble(exc)) from None
        try:
            if response.status_code != 200:
                raise await _refused(response)
            await self._read(response, reader)
            return reader.reply()
        except _UNREADABLE as exc:
            why = f"the answer does not have the form of this API ({type(exc).__name__}: {exc})"
            raise AttemptFailed(why, 200) from None
        finally:
            with suppress(*ConnectionFailed):
                await response.aclose()

    async def _read(self, response: httpx.Response, reader: ReplyReader) -> None:
        encoded = "content-encoding" in response.headers
        kind = response.headers.get("content-type", "")
        chunks: AsyncIterator[bytes] = (
            response.aiter_bytes() if encoded else aiter(response.stream)  # type: ignore[arg-type]
        )
        try:
            if kind.startswith("application/json"):
                reader.whole(read_event(b"".join([chunk async for chunk in chunks])))
                return
            await _feed(chunks, reader)
        except ConnectionFailed as exc:
            if not reader.complete:
                raise broken(_connection_trouble(exc)) from None
            return
        if not reader.complete and "event-stream" not in kind:
            raise AttemptFailed(f"the answer is {kind or 'untyped'}, not a stream of events", 200)
        with suppress(*ConnectionFailed):
            async with asyncio.timeout(_LINGER):
                async for _ in chunks:
                    pass

    def _judge(
        self, failure: AttemptFailed, attempt: int, partial: str
    ) -> tuple[float | None, ModelFailed]:
        """The seconds until the next attempt (None: there is none) and the error of this one."""
        provider = self._provider
        too_long = failure.retryable and (failure.wait or 0.0) > provider.max_retry_after
        common: dict[str, Any] = {
            "status": failure.status,
            "base_url": without_secrets(provider.base_url, provider.api_key),
            "attempts": attempt,
            "partial": partial,
            "detail": without_secrets(failure.detail, provider.api_key),
        }
        if failure.rate_limited or too_long:
            error: ModelFailed = ModelRateLimited(failure.wait, **common)
        else:
            error = ModelFailed(**common, retryable=failure.retryable)
        if too_long or not failure.retryable or attempt >= provider.attempts:
            return None, error
        return (spread(failure.wait) if failure.wait else backoff(attempt)), error

    async def _cost(
        self, request: ModelRequest, reply: ModelReply, reader: ReplyReader
    ) -> float | None:
        cost = reported_cost(reader.usage)
        if cost is None:
            model = reply.model or request.model
            cost = await list_price(self._provider.base_url, model, reply.usage, reader.tier)
        return cost


async def _feed(chunks: AsyncIterator[bytes], reader: ReplyReader) -> None:
    parser = SseParser()
    feed = reader.feed
    async for chunk in chunks:
        for event in parser.feed(chunk):
            feed(event)
            if reader.done:
                return
    for event in parser.finish():
        feed(event)


async def _refused(response: httpx.Response) -> AttemptFailed:
    """The failure an HTTP status stands for, with what the body says about it."""
    body = bytearray()
    with suppress(*ConnectionFailed):
        async with asyncio.timeout(_ERROR_PATIENCE):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _ERROR_BODY:
                    break
    return from_status(response.status_code, bytes(body), asked_wait(response.headers))


def _connection_trouble(exc: BaseException) -> str:
    cause = exc.__cause__ or exc
    said = " ".join(str(cause).split()) or "no answer in time"
    return f"{type(cause).__name__}: {said}"
