"""A model and an agent for conversations: what the user says decides what happens."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import noetic_ray as nr
from noetic_ray.channels import Channel
from noetic_ray.items import item_text

BOUND = 30.0


@dataclass(frozen=True)
class Talker:
    """Answers `echo <n>: <text>`, where n counts the user messages it was shown.

    hold: call the tool `hold` first. fail: raise. half: say half of it and hang. bare, cached,
    uncached: what is reported of tokens. think: reason first. whole: stream nothing.
    """

    async def generate(self, request: Any, events: Any) -> Any:
        """Answer the newest user message."""
        users = [each for each in request.items if getattr(each, "role", None) == "user"]
        text = item_text(users[-1]) if users else ""
        if "fail" in text:
            raise nr.ModelFailed(status=400, base_url="test", attempts=1)
        if "hold" in text and not _held(request.items):
            return nr.testing.reply(calls=[nr.testing.call("hold")], input_tokens=1)
        answer = f"echo {len(users)}: {text}"
        if "half" in text:
            events.delta("text", answer[:6])
            await asyncio.sleep(600)
        return await _say(text, answer, events)


def _held(items: Any) -> bool:
    """Whether the newest user message that asked for it was held already."""
    last = [n for n, each in enumerate(items) if "hold" in item_text(each) and _user(each)][-1]
    return any(each.type == "function_call_output" for each in items[last:])


def _user(item: Any) -> bool:
    return getattr(item, "role", None) == "user"


async def _say(text: str, answer: str, events: Any) -> Any:
    items: list[Any] = []
    if "think" in text:
        items.append(nr.ReasoningItem(content="let me see"))
    if "whole" not in text:
        for item in items:
            events.delta("reasoning", item_text(item))
        for word in answer.split(" ")[:-1]:
            events.delta("text", f"{word} ")
        events.delta("text", answer.split(" ")[-1])
    figures: dict[str, Any] = {"input_tokens": 3, "output_tokens": 2}
    if "bare" in text:
        figures = {}
    if "cached" in text:
        figures["cached_tokens"] = 0 if "uncached" in text else 2
    reply = nr.testing.reply(answer, **figures)
    reply.items[:0] = items
    return reply


def gate(thread_id: str) -> Channel[str]:
    """What the tool `hold` waits for."""
    return nr.channel(f"gate-{thread_id}", str, mode="queue", external=True)


def held(thread_id: str) -> Channel[str]:
    """Gets a word when the tool `hold` has begun to wait."""
    return nr.channel(f"held-{thread_id}", str, mode="queue", external=True)


@nr.tool
async def hold(ctx: nr.Context) -> str:
    """Wait until somebody opens the gate."""
    await ctx.send(held(ctx.thread_id), "here")
    return await ctx.recv(gate(ctx.thread_id), timeout=BOUND)


agent = nr.call_model("chat", "talker", tools=[hold])


class Talk:
    """A session with its gate."""

    def __init__(self, harness: nr.Harness, thread_id: str, step: Any = agent) -> None:
        self.harness = harness
        self.session = harness.session(thread_id, agent=step)
        self._held = harness.channel(held(thread_id)).stream()

    def hold(self, text: str = "hold", **options: Any) -> str:
        """Send a message whose turn stands still in a tool, and return when it does."""
        id = self.session.send(text, **options)
        self.until_held()
        return id

    def until_held(self) -> None:
        """Return when a turn stands still; fail with what there is instead."""
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, self._held)
            try:
                waiting.result(BOUND)
            except TimeoutError:
                self._held.close()
                raise AssertionError(f"no turn is held: {self.session}, {self.texts()}") from None

    def go(self) -> None:
        """Let one turn that stands still go on."""
        self.harness.channel(gate(self.session.thread_id)).send("open")

    def say(self, text: str, **options: Any) -> Any:
        """Send a message and wait for its turn."""
        self.session.send(text, **options)
        return self.session.response(BOUND)

    def texts(self) -> list[str]:
        """The texts of the messages in the history, with the first letter of their roles."""
        return texts(self.session.history)


def texts(items: Any) -> list[str]:
    """The texts of messages, with the first letter of their roles."""
    return [f"{each.role[0]}:{item_text(each)}" for each in items if each.type == "message"]
