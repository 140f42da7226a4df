"""The swarm: a planner, its readers, their helpers, and a collector.

    planner                deals the documents out, waits, merges
    ├── collector          receives every finding over a channel
    ├── reader             one for each share: model call, tool calls, answer
    │   └── helper         reads part of a long share for its reader
    └── reader ...

Every line of this tree is a context: an actor with a log of its own. Nothing here says where it
runs; that is the harness's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import noetic_ray as nr
from noetic_ray.demo.documents import Document
from noetic_ray.demo.report import Finding, Report, merge
from noetic_ray.demo.shares import Share, deal
from noetic_ray.demo.tools import Desk, count_terms, note, read_chunk

FINDINGS = nr.channel("findings", Finding, mode="queue")

INSTRUCTIONS = """\
You are a careful reader. Read every chunk of your text with read_chunk, several in one go. Then
choose about eight terms the text is about and count them with count_terms. Then keep the three
sentences that say most with note. At last answer with two sentences on what the text says.
"""
DELEGATING = """\
If you have more than six chunks, ask for help with the second half first: call delegate once,
together with your first read_chunk calls, and do not read those chunks yourself.
"""


@dataclass(frozen=True, slots=True)
class Task:
    """What to read, and by how many readers (None: one for each document)."""

    documents: Sequence[Document]
    readers: int | None = None


@cache
def reading(model: str, may_delegate: bool) -> nr.Step[str, str]:
    """The conversation with the model: it calls tools, round by round, until it answers."""
    tools: list[nr.Tool] = [read_chunk, count_terms, note]
    if not may_delegate:
        return nr.call_model("read", model, INSTRUCTIONS, tools)
    return nr.call_model("read", model, INSTRUCTIONS + DELEGATING, [*tools, delegate])


@nr.step
async def helper(chunks: tuple[int, int], ctx: nr.Context) -> Finding:
    """Read some chunks of a share: a child starts with a copy of its parent's state."""
    desk = ctx.state = ctx.state.part(*chunks)
    answer = await ctx.run(reading(ctx.params["model"], False), desk.task)
    return Finding.on(desk, answer)


@nr.tool
async def delegate(first: int, last: int, ctx: nr.Context) -> str:
    """Let a helper read the chunks from first to last; gives what the helper found."""
    desk: Desk = ctx.state
    desk.part(first, last)
    found = await ctx.spawn(helper, (first, last))
    desk.take(found.terms, found.notes)
    return found.answer


@nr.step
async def reader(share: Share, ctx: nr.Context) -> None:
    """Read a share and send what was found to the collector."""
    desk = ctx.state = Desk.for_share(share)
    answer = await ctx.run(reading(ctx.params["model"], True), desk.task)
    await ctx.send(FINDINGS, Finding.on(desk, answer))


@nr.step
async def collector(readers: int, ctx: nr.Context) -> list[Finding]:
    """Wait until every reader has been heard of."""
    found: dict[int, Finding] = {}
    while len(found) < readers:
        for finding in await ctx.recv_many(FINDINGS, readers, timeout=None):
            found[finding.share] = finding
    return [found[share] for share in sorted(found)]


@nr.step
async def planner(task: Task, ctx: nr.Context) -> Report:
    """Start a collector and all readers, and merge what they found."""
    shares = deal(task.documents, task.readers)
    collecting = ctx.detach(collector, len(shares))
    await asyncio.gather(*(_supervise(share, ctx) for share in shares))
    return merge(task.documents, await collecting)


async def _supervise(share: Share, ctx: nr.Context) -> None:
    """Run one reader; when it fails, or its process dies, the collector hears of it from here."""
    try:
        await ctx.spawn(reader, share)
    except nr.NoeticError as error:
        ctx.raise_if_aborted()
        await ctx.send(FINDINGS, Finding.failed(share, error))
