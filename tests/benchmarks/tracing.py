"""What a trace node costs the body that adds it: recorded here, sent later, nothing awaited."""

from __future__ import annotations

import statistics
import time

import noetic_ray as nr

NODES = 400
ROUNDS = 5


@nr.step
async def adding(rounds: int, ctx: nr.Context) -> list[float]:
    """Microseconds per `ctx.trace.add`, once a round; rounds begin with an empty buffer."""
    figures: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        for index in range(NODES):
            ctx.trace.add(
                {"query": "latest news", "index": index},
                label="Search",
                type="search",
                icon="search",
                description="Searching for articles",
            )
        figures.append((time.perf_counter() - started) / NODES * 1e6)
        await ctx.checkpoint()
    return figures


def run() -> dict[str, float]:
    """`trace_add_us`: in a context actor on Ray, the median of the rounds."""
    with nr.Harness("bench-tracing") as harness:
        harness.run(adding, 1)
        return {"trace_add_us": statistics.median(harness.run(adding, ROUNDS))}
