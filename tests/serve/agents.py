"""Agents for clients to talk to, and the model they ask."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

import noetic_ray as nr
from noetic_ray.errors import ModelFailed, ModelRateLimited


def texts(request: Any) -> list[str]:
    """What the model was shown: the text of each item."""
    return [nr.item_text(item) for item in request.items]


def answer(request: Any) -> Any:
    """Ten tokens in, five out; what is said depends on the model's name."""
    shown = texts(request)
    if request.model == "failing":
        raise ModelFailed(status=500, base_url="http://models.test", detail="out of order")
    if request.model == "busy":
        raise ModelRateLimited(retry_after=7.0)
    if request.model == "count":
        return nr.testing.reply(f"{len(shown)}: {' | '.join(shown)}")
    return nr.testing.reply(f"echo: {shown[-1]}", input_tokens=10, output_tokens=5, cost=0.01)


def model() -> nr.testing.ScriptedModel:
    return nr.testing.ScriptedModel(answer)


talk = nr.call_model("talk", "echo", "Be kind.")
count = nr.call_model("count", "count")
failing = nr.call_model("failing", "failing")
busy = nr.call_model("busy", "busy")


class Size(BaseModel):
    city: str
    people: int


@nr.step
async def shows(text: str, ctx: nr.Context) -> str:
    """Messages of its own, one of them replaced."""
    first = ctx.messages.send("Thinking. ")
    ctx.messages.replace(first, "Thought. ")
    ctx.messages.append(first, "Twice. ")
    return await ctx.run(talk, text)


@nr.step
async def team(text: str, ctx: nr.Context) -> str:
    """A child that answers, and a parent that reports."""
    said = await ctx.spawn(talk, text)
    return f"they said {said}"


@nr.step
async def teller(text: str, ctx: nr.Context) -> str:
    """Its child sends a message."""
    return str(await ctx.spawn(shows, text))


@nr.step
async def table(text: str, ctx: nr.Context) -> Size:
    return Size(city="Oslo", people=717_710)


@nr.step
async def silent(text: str, ctx: nr.Context) -> None:
    return None


@nr.step
async def broken(text: str, ctx: nr.Context) -> None:
    raise ValueError("no luck")


@nr.step
async def late(text: str, ctx: nr.Context) -> None:
    ctx.messages.send("so far so good")
    raise ValueError("no luck")


@nr.step
async def waits(text: str, ctx: nr.Context) -> None:
    ctx.messages.send("waiting")
    await asyncio.sleep(600)


@nr.step
async def about(text: str, ctx: nr.Context) -> dict[str, Any]:
    """What the agent knows of its request."""
    asked = ctx.request
    return {
        "text": text,
        "chat": asked.chat_id,
        "thread": ctx.thread_id,
        "route": asked.route,
        "agent": asked.assistant_id,
        "client": asked.client.type,
        "metadata": asked.metadata,
        "items": [item.model_dump(exclude={"id"}) for item in ctx.item_log.items],
        "state": ctx.state,
    }


@nr.step
async def traces(text: str, ctx: nr.Context) -> str:
    node = ctx.trace.add({"q": text}, label="look")
    node.complete({"found": True})
    return "done"


@nr.step
async def greets(given: Any, ctx: nr.Context) -> Any:
    """Takes anything."""
    ctx.messages.send("hello")
    ctx.trace.add(given)
    return given


notes = nr.channel("notes", int, mode="queue", external=True)


@nr.step
async def listens(text: str, ctx: nr.Context) -> int:
    return await ctx.recv(notes, timeout=None)


@nr.step
async def told(text: str, ctx: nr.Context) -> str:
    """Waits for a number, then talks about it."""
    return await ctx.run(talk, f"{text} {await ctx.recv(notes, timeout=None)}")


ALL = [
    talk, count, failing, busy, shows, team, teller, table, silent, broken, late, waits, about,
    traces, listens, told,
]  # fmt: skip
