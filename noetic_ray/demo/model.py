"""A model for the demo that needs no provider: it really reads, but by rules.

It is an ordinary provider: one request in, one answer out, nothing remembered in between. All it
knows is the conversation: what it was asked, what it called, and what its tools gave.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import noetic_ray as nr
from noetic_ray.demo.words import sentences, terms, weigh
from noetic_ray.items import item_text
from noetic_ray.models.protocol import ModelEvents, ModelReply, ModelRequest
from noetic_ray.testing import call, reply
from noetic_ray.usage import estimate_tokens

LONG = 6
"""With more chunks than this it asks for help, if it may."""
TERMS = 8
NOTES = 3
_AT_ONCE = 3
_TASK = re.compile(r"Read (.*)\. Its chunks are (\d+) to (\d+)\.")


@dataclass(frozen=True, slots=True)
class ReaderModel:
    """Takes `pace` seconds over each answer. It costs nothing; its tokens are estimates."""

    pace: float = 0.15

    async def generate(self, request: ModelRequest, events: ModelEvents) -> ModelReply:
        """One round."""
        await asyncio.sleep(self.pace)
        text, calls = respond(request)
        if text is not None:
            events.delta("text", text)
        said = text or "".join(each.arguments for each in calls)
        return reply(
            text,
            calls=calls,
            input_tokens=sum(estimate_tokens(_written(item)) for item in request.items),
            output_tokens=estimate_tokens(said),
            cost=0.0,
        )


Calls = list[nr.FunctionCallItem]


def respond(request: ModelRequest) -> tuple[str | None, Calls]:
    """An answer, or the next tool calls: read all, count, note, and then sum up."""
    talk = Conversation.of(request.items)
    mine = [number for number in talk.wanted if number not in talk.delegated]
    calls: Calls = []
    if len(mine) > LONG and not talk.used and any(t.name == "delegate" for t in request.tools):
        half = len(mine) // 2
        calls.append(call("delegate", first=mine[half], last=mine[-1]))
        mine = mine[:half]
    unread = [number for number in mine if number not in talk.chunks]
    if unread:
        calls += (call("read_chunk", number=number) for number in unread[:_AT_ONCE])
    elif "count_terms" not in talk.used:
        calls.append(call("count_terms", terms=terms(talk.chunks.values(), TERMS)))
    elif "note" not in talk.used:
        best = _best(talk)
        calls += (call("note", chunk=chunk, sentence=sentence) for chunk, sentence in best)
    return (None, calls) if calls else (_summary(talk), [])


class Conversation(NamedTuple):
    """What can be known from the items of a request."""

    title: str
    wanted: range
    used: set[str]
    """The tools called so far."""
    chunks: dict[int, str]
    """What was read, by number; "" where reading failed."""
    delegated: set[int]
    helped: list[str]
    counts: dict[str, int]
    noted: list[str]

    @classmethod
    def of(cls, items: Sequence[nr.Item]) -> Conversation:
        """Put together calls and their outputs."""
        task = next(filter(None, (_TASK.search(_written(item)) for item in items)), None)
        title, first, last = task.groups() if task else ("the text", "1", "0")
        talk = cls(title, range(int(first), int(last) + 1), set(), {}, set(), [], {}, [])
        outputs = {
            item.call_id: item for item in items if isinstance(item, nr.FunctionCallOutputItem)
        }
        for item in items:
            if isinstance(item, nr.FunctionCallItem) and item.call_id in outputs:
                output = outputs[item.call_id]
                good = output.status == "completed"
                talk.take(item.name, json.loads(item.arguments), output.output, good)
        return talk

    def take(self, tool: str, args: dict[str, Any], output: str, good: bool) -> None:
        """Learn from one call."""
        self.used.add(tool)
        if tool == "read_chunk":
            self.chunks[args["number"]] = output if good else ""
        elif tool == "delegate" and good:
            self.delegated.update(range(args["first"], args["last"] + 1))
            self.helped.append(output)
        elif tool == "count_terms" and good:
            self.counts.update(json.loads(output))
        elif tool == "note" and good:
            self.noted.append(args["sentence"])


def _best(talk: Conversation) -> list[tuple[int, str]]:
    """The sentences with most of the counted terms, as (chunk, sentence)."""
    found = [
        (weigh(sentence, talk.counts), chunk, sentence)
        for chunk, text in talk.chunks.items()
        for sentence in sentences(text)
    ]
    found.sort(key=lambda each: (-each[0], each[1]))
    return [(chunk, sentence) for _, chunk, sentence in found[:NOTES]]


def _summary(talk: Conversation) -> str:
    ranked = sorted(talk.counts.items(), key=lambda pair: (-pair[1], pair[0]))
    named = ", ".join(f"{term} ({n})" for term, n in ranked[:5] if n)
    said = [f"{talk.title} is about {named}." if named else f"{talk.title} has no terms to count."]
    if talk.noted:
        said.append(f"At its heart: “{talk.noted[0]}”")
    said += (f"A helper adds: {each}" for each in talk.helped)
    return " ".join(said)


def _written(item: nr.Item) -> str:
    """An item's text, as far as it has one."""
    if isinstance(item, nr.FunctionCallItem):
        return item.arguments
    return item.output if isinstance(item, nr.FunctionCallOutputItem) else item_text(item)
