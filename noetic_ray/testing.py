"""Models that follow a script, for tests of your own agents: no network, no key, no cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from noetic_ray.errors import ConfigError
from noetic_ray.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    Item,
    ItemBase,
    MessageItem,
    OutputText,
    ReasoningItem,
    Refusal,
    assistant_message,
    new_id,
)
from noetic_ray.models.protocol import DeltaKind, ModelEvents, ModelReply, ModelRequest
from noetic_ray.signatures import check_callback, is_async
from noetic_ray.usage import RoundUsage

__all__ = ["Answer", "ScriptedModel", "call", "reply"]

#: What a script may answer with.
Answer: TypeAlias = str | Item | Sequence[Item] | ModelReply
Script: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]


def call(name: str, /, **args: Any) -> FunctionCallItem:
    """A model's call of a tool; put it in a reply's `calls`, or answer with it alone."""
    return FunctionCallItem(call_id=f"call_{new_id()}", name=name, arguments=json.dumps(args))


def reply(
    text: str | None = None,
    *,
    calls: Iterable[FunctionCallItem] = (),
    refusal: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cached_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    cost: float | None = None,
) -> ModelReply:
    """A model's answer: text, then a refusal, then tool calls.

    Without any token figure usage is "not reported"; with one, input and output default to 0, the
    cache figures stay unreported. `cost` is in dollars.
    """
    items: list[Item] = []
    if text is not None:
        items.append(assistant_message(text))
    if refusal is not None:
        items.append(MessageItem(role="assistant", content=[Refusal(refusal=refusal)]))
    items.extend(calls)
    usage = None
    if (input_tokens, output_tokens, cached_tokens, cache_write_tokens) != (None,) * 4:
        usage = RoundUsage(input_tokens or 0, output_tokens or 0, cached_tokens, cache_write_tokens)
    return ModelReply(items, usage, cost)


@dataclass(frozen=True, slots=True)
class ScriptedModel:
    """A model whose answers are made by `fn(request)`, sync or async.

    The request has `model`, `instructions`, `items`, `tools` (each with `name`, `description`,
    `parameters`) and `settings`. Answer with a text, an item, a list of items, or `reply(...)`.
    Runs in other processes work on copies of `fn`, so it should answer from the request alone. Its
    texts are streamed in a few pieces.
    """

    fn: Script

    def __post_init__(self) -> None:
        check_callback("the script of a ScriptedModel", self.fn, "request")

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> ScriptedModel:
        """A model that gives these answers in turn, in each conversation from the first.

        How far a conversation has come is told by what the model wrote in it so far, so every
        context follows the script for itself. After the last answer, ConfigError
        `SCRIPT_EXHAUSTED`.
        """
        return cls(_Turns(tuple(answers)))

    async def generate(self, request: ModelRequest, events: ModelEvents) -> ModelReply:
        """Ask the script, announce what it answered piece by piece, and return it."""
        answer = _as_reply(await self._answer(request, events))
        async for kind, text in _pieces(answer.items):
            events.delta(kind, text)
        return answer

    async def _answer(self, request: ModelRequest, events: ModelEvents) -> Any:
        run_sync = getattr(events, "run_sync", None)
        if run_sync is None or is_async(self.fn) or isinstance(self.fn, _Turns):
            given = self.fn(request)
        else:
            given = await run_sync(self.fn, request)
        return await given if isinstance(given, Awaitable) else given


def _as_reply(answer: object) -> ModelReply:
    if isinstance(answer, ModelReply):
        return answer
    if isinstance(answer, str):
        return ModelReply([assistant_message(answer)])
    if isinstance(answer, ItemBase):
        return ModelReply([cast(Item, answer)])
    if isinstance(answer, list | tuple) and all(isinstance(each, ItemBase) for each in answer):
        return ModelReply(list(answer))
    raise ConfigError(
        "INVALID_SCRIPT_ANSWER",
        f"the script of a ScriptedModel answered {answer!r:.200}",
        "Answer with a text, an item, a list of items, or nr.testing.reply(...).",
    )


async def _pieces(items: Sequence[Item]) -> AsyncIterator[tuple[DeltaKind, str]]:
    for item in items:
        for kind, text in _texts(item):
            size = -(-len(text) // 3)
            for start in range(0, len(text), size or 1):
                yield kind, text[start : start + size]
                await asyncio.sleep(0)


def _texts(item: Item) -> list[tuple[DeltaKind, str]]:
    if isinstance(item, FunctionCallItem):
        return [("arguments", item.arguments)]
    if isinstance(item, ReasoningItem):
        return [("reasoning", getattr(part, "text", "")) for part in item.content]
    found: list[tuple[DeltaKind, str]] = []
    for part in item.content if isinstance(item, MessageItem) else ():
        if isinstance(part, OutputText):
            found.append(("text", part.text))
        elif isinstance(part, Refusal):
            found.append(("refusal", part.refusal))
    return found


@dataclass(frozen=True, slots=True)
class _Turns:
    answers: tuple[Answer, ...]

    def __call__(self, request: ModelRequest) -> ModelReply:
        written = sum(_by_model(item) for item in request.items)
        expected = 0
        for answer in self.answers:
            turn = _as_reply(answer)
            if expected >= written:
                return turn
            expected += len(turn.items)
        raise ConfigError(
            "SCRIPT_EXHAUSTED",
            f"a conversation went past the {len(self.answers)} answers of a ScriptedModel",
            "Add answers, or let the agent stop earlier.",
        )


def _by_model(item: Item) -> bool:
    if isinstance(item, MessageItem):
        return item.role == "assistant"
    return not isinstance(item, FunctionCallOutputItem)
