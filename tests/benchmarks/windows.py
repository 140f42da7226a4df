"""Windows: what assembling costs as a log grows, and what anchoring does to a prefix cache."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import noetic_ray as nr
from noetic_ray.engine.tool_calls import Toolbox
from noetic_ray.engine.window.step_window import StepWindow

TURNS = 100
STABLE_TOKENS = 1_000
TURN_TOKENS = 225
ask = nr.call_model("ask", "bench", instructions="You answer questions about harbours.", tools=[])


class Stable(nr.ContextLayer):
    """A thousand tokens that never change."""

    scope = "execution"

    def __init__(self, id: str, slot: float) -> None:
        self.id = id
        self.slot = slot

    async def recall(self, params: Any) -> str:
        """Always the same."""
        return (f"{self.id} knows this. " * 400)[: 4 * STABLE_TOKENS - 120]


class Clock(nr.ContextLayer):
    """Twelve tokens that change every turn."""

    id = "clock"
    slot = 120
    scope = "execution"

    async def recall(self, params: Any) -> str:
        """The turn's number as a time of day."""
        turn = len(params.log)
        return f"It is {turn // 60:02}:{turn % 60:02} by the harbour clock."


LAYERS = (Stable("notes", 100), Stable("guide", 105), Clock(), Stable("facts", 200))


class PrefixCache:
    """A provider that remembers its last request and counts what the next one repeats of it."""

    def __init__(self) -> None:
        self.last = ""
        self.prefixes: list[str] = []
        self.prompt = 0
        self.cached = 0

    def answer(self, request: Any) -> Any:
        """Count, and answer with a text of about half a turn."""
        parts = [str(request.instructions), *map(_text, request.items)]
        prompt = "".join(parts)
        same = _common(self.last, prompt) // 4
        self.last = prompt
        self.prompt += len(prompt) // 4
        self.cached += same
        self.prefixes.append("".join(parts[: 1 + _up_to_live(request.items)]))
        words = f"answer {len(self.prefixes)} " * (TURN_TOKENS // 6)
        return nr.testing.reply(
            words, input_tokens=len(prompt) // 4, output_tokens=100, cached_tokens=same
        )


def _text(item: Any) -> str:
    return json.dumps([getattr(item, "role", item.type), nr.item_text(item)])


def _up_to_live(items: Any) -> int:
    """How many items stand before the live band: what is shown after the history."""
    stop = len(items) - 1  # the question itself
    while stop and items[stop - 1].role == "developer" and _is_late(items[stop - 1]):
        stop -= 1
    return stop


def _is_late(item: Any) -> bool:
    text = nr.item_text(item)
    return "context_update" in text or text.startswith("It is")


def _common(a: str, b: str) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@nr.step
async def converse(_: Any, ctx: nr.Context) -> list[str | None]:
    """A hundred turns; for each why it re-anchored, if it did."""
    reasons: list[str | None] = []
    for turn in range(TURNS):
        await ctx.run(ask, f"question {turn} " * (TURN_TOKENS // 6))
        usage = ctx.last_layer_usage
        reasons.append(usage.epoch.reanchor_reason if usage and usage.epoch else None)
    return reasons


def _conversation(enabled: bool) -> tuple[PrefixCache, list[str | None]]:
    cache = PrefixCache()
    model = nr.testing.ScriptedModel(cache.answer)
    with nr.Harness(
        f"bench-cache-{enabled}",
        model,
        layers=LAYERS,
        placement="inline",
        context_cache=nr.ContextCache(enabled=enabled),
    ) as harness:
        return cache, harness.run(converse)


def _stable_share(cache: PrefixCache, reasons: list[str | None]) -> float:
    stable = [
        later.startswith(earlier)
        for earlier, later, reason in zip(
            cache.prefixes, cache.prefixes[1:], reasons[1:], strict=False
        )
        if reason is None
    ]
    return sum(stable) / len(stable)


@nr.step
async def assembling(lengths: tuple[int, ...], ctx: nr.Context) -> dict[int, float]:
    """Median seconds to assemble at each length of the log, which grows by a turn each time."""
    cell: Any = ctx._services.cell  # type: ignore[attr-defined]
    found: dict[int, float] = {}
    for length in lengths:
        while len(ctx.item_log) < length:
            ctx.item_log.append(nr.user_message(f"question {len(ctx.item_log)} " * 10))
            ctx.item_log.append(nr.assistant_message(f"answer {len(ctx.item_log)} " * 10))
        times = []
        for _ in range(300):
            ctx.item_log.append(nr.user_message("the next question " * 10))
            ctx.item_log.append(nr.assistant_message("the next answer " * 10))
            started = time.perf_counter()
            window = StepWindow(cell, ask, Toolbox.of(cell, ask), "be brief", len(ctx.item_log))
            await window.open("question")
            assert len(window.items) > 100
            times.append(time.perf_counter() - started)
        found[length] = statistics.median(times[20:])
    return found


def _assembly() -> tuple[float, float]:
    with nr.Harness(
        "bench-assembly",
        nr.testing.ScriptedModel(lambda request: "ok"),
        layers=LAYERS,
        placement="inline",
        window=nr.Window(token_budget=16_000),
    ) as harness:
        found = harness.run(assembling, (1_000, 10_000))
    return found[1_000], found[10_000]


def run() -> dict[str, float]:
    """assembly_10k_over_1k, prefix_stable_turns, cached_share."""
    pairs = [_assembly() for _ in range(5)]
    anchored, reasons = _conversation(True)
    plain, _ = _conversation(False)
    share = anchored.cached / anchored.prompt
    return {
        "assembly_10k_over_1k": statistics.median(long / short for short, long in pairs),
        "assembly_us_10k": statistics.median(long for _, long in pairs) * 1e6,
        "prefix_stable_turns": _stable_share(anchored, reasons),
        "cached_share": share / (plain.cached / plain.prompt),
        "cached_share_anchored": share,
        "reanchors": float(sum(reason is not None for reason in reasons)),
    }
