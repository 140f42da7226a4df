"""What one step costs: a scripted model call and a tool call, with log, journal and tracing on."""

from __future__ import annotations

import statistics
import time
from typing import Any

import noetic_ray as nr


@nr.tool
def lookup(key: str) -> str:
    """Look a key up."""
    return f"value of {key}"


@nr.tool
async def alookup(key: str) -> str:
    """Look a key up."""
    return f"value of {key}"


async def script(request: Any) -> Any:
    """One tool call, then an answer."""
    last = request.items[-1]
    if last.type == "function_call_output":
        return nr.testing.reply("done", input_tokens=10, output_tokens=2)
    return nr.testing.reply(
        calls=[nr.testing.call("alookup", key="k")], input_tokens=10, output_tokens=2
    )


turn = nr.call_model("turn", "bench", tools=[alookup])


@nr.step
async def turns(count: int, ctx: nr.Context) -> float:
    """Seconds per step over the last 20 steps of a context of `count` steps."""
    for i in range(count - 20):
        await ctx.run(turn, f"question {i}")
    started = time.perf_counter()
    for i in range(20):
        await ctx.run(turn, f"last question {i}")
    return (time.perf_counter() - started) / 20


@nr.step
async def contexts(rounds: int, ctx: nr.Context) -> tuple[list[float], list[float]]:
    """Contexts of 20 and of 200 steps in turn, so that both see the journal at work.

    Ten short ones stand against one long one: each kind takes about as many steps.
    """
    short: list[float] = []
    long: list[float] = []
    for _ in range(rounds):
        short += [await ctx.spawn(turns, 20, placement="inline") for _ in range(10)]
        long.append(await ctx.spawn(turns, 200, placement="inline"))
    return short, long


class Discard:
    """An exporter that takes everything and keeps nothing."""

    def export(self, spans: Any) -> None:
        """Take spans."""

    def shutdown(self) -> None:
        """End."""


def run() -> dict[str, float]:
    """step_us_200 and step_200_over_20."""
    model = nr.testing.ScriptedModel(script)
    with nr.Harness("bench-step", model, exporter=Discard()) as harness:
        harness.run(contexts, 2)
        short, long = harness.run(contexts, 25)
    at_20, at_200 = statistics.median(short), statistics.median(long)
    return {
        "step_us_200": at_200 * 1e6,
        "step_200_over_20": at_200 / at_20,
        "step_us_20": at_20 * 1e6,
    }
