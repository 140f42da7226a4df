"""`POST /v1/chat/completions`: an agent as a model of OpenAI's API."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noetic_ray.client.frames import DONE, Framer, sse
from noetic_ray.errors import NoeticError
from noetic_ray.serve.answers import JsonAnswer, StreamAnswer
from noetic_ray.serve.asking import address_of, flag, request_info
from noetic_ray.serve.bodies import read_body
from noetic_ray.serve.conversation import check_supported, take_apart
from noetic_ray.serve.following import pages
from noetic_ray.serve.narration import Narration, Said
from noetic_ray.serve.problems import Problem, json_response, of_error
from noetic_ray.serve.service import SHUTDOWN, Entry, Service
from noetic_ray.serve.shapes import ChatRequest
from noetic_ray.serve.showing import OUTPUT_ID, Shown, frames, gathered
from noetic_ray.usage import TokenUsage

GONE = "client disconnected"
_SERVER_ERROR = 500


class ChatRoute:
    """Starts a run for each request and shows what comes of it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, request: Request) -> Response:
        """Answer in one piece, or as a stream."""
        service = self._service
        asked = await read_body(request, ChatRequest, service.max_body)
        check_supported(asked)
        name, step = service.agents.named(asked.model, "model")
        input, items = take_apart(asked.messages)
        info, thread_id = request_info(request, asked.model_dump(exclude={"messages"}), name)
        detached = bool(asked.detached) or flag(request.headers.get("x-noetic-detached"))
        entry = await service.start(
            name, step, input, items=items, thread_id=thread_id, request=info, follow=True
        )
        answer = _ChatAnswer(entry, info.accept, partial(address_of, request, entry.run.id))
        return self._answer(entry, answer, asked, detached)

    def _answer(
        self, entry: Entry, answer: _ChatAnswer, asked: ChatRequest, detached: bool
    ) -> Response:
        service = self._service

        def leave() -> None:
            if not detached and not entry.over:
                service.abort_soon(entry.run, SHUTDOWN if service.closing.is_set() else GONE)

        headers = {"X-Noetic-Run": entry.run.id}
        if not asked.stream:
            return JsonAnswer(partial(answer.whole, headers), service.closing, leave)
        options = asked.stream_options
        with_usage = options is not None and bool(options.include_usage)
        return StreamAnswer(answer.parts(with_usage), answer.error, service.closing, leave, headers)


class _ChatAnswer:
    """One run on its way to one client."""

    def __init__(self, entry: Entry, accept: str, view: Callable[[str], str]) -> None:
        self._entry = entry
        self._run = entry.run
        self._created = int(time.time())
        self._framer = Framer(accept, entry.run.id, entry.agent, self._created, view)
        self._view = view
        self._shown = Shown()

    async def parts(self, with_usage: bool) -> AsyncGenerator[bytes | None, None]:
        """The frames, each an event of the stream; None where nothing happened for a while."""
        framer, shown = self._framer, self._shown
        narration = Narration(self._run.id, replaces=framer.accept != "standard")
        async for page in pages(self._run, deltas=True):
            if page.gap:
                narration.miss()
            told = [said for event in page.events for said in narration.feed(event)]
            for said in told:
                shown.take(said)
                for frame in frames(framer, said):
                    yield sse(frame)
            if not page.events:
                yield None
        text = shown.missing(await self._run.aresult())
        if text is not None:
            for frame in frames(framer, Said(OUTPUT_ID, "text", text)):
                yield sse(frame)
        reason = "length" if narration.cut_off else "stop"
        for frame in framer.finish(reason, self._run.usage if with_usage else None):
            yield sse(frame)
        if framer.accept == "standard":
            yield DONE

    def error(self, problem: Problem) -> bytes:
        """The last frame of a stream that failed."""
        framer = self._framer
        told = [{"error": problem.as_dict()}]
        if framer.accept != "standard":
            told = framer.error(problem.kind, problem.message, problem.code)
        return b"".join(map(sse, [*framer.rest(), *told]))

    async def whole(self, headers: Mapping[str, str]) -> Response:
        """The answer in one piece, replaced messages in their last form."""
        shown = self._shown
        narration = Narration(self._run.id, replaces=True)
        async for page in pages(self._run, deltas=True):
            if page.gap:
                narration.miss()
            for event in page.events:
                for said in narration.feed(event):
                    shown.take(said)
        try:
            text = shown.missing(await self._run.aresult())
        except NoeticError as error:
            problem = of_error(error, ran=True)
            problem.headers.update(headers)
            return problem.response()
        if text is not None:
            shown.take(Said(OUTPUT_ID, "text", text))
        message, error_shown = gathered(shown.messages(), self._view)
        if error_shown is not None:
            return _shown_error(error_shown, headers)
        reason = "length" if narration.cut_off else "stop"
        return json_response(self._completion(message, reason), headers=headers)

    def _completion(self, message: dict[str, Any], reason: str) -> dict[str, Any]:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return {
            "id": self._run.id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._entry.agent,
            "choices": [choice],
            "usage": _usage(self._run.usage),
        }


def _shown_error(shown: dict[str, Any], headers: Mapping[str, str]) -> Response:
    """A client of a stream would have stopped at the error the agent has shown."""
    problem = Problem(
        _SERVER_ERROR,
        str(shown["type"]),
        str(shown["message"]),
        code=str(shown["code"]),
        headers={**headers, "x-should-retry": "false"},
    )
    return problem.response()


def _usage(usage: TokenUsage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
    }
    if usage.cached is not None:
        told["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    return told
