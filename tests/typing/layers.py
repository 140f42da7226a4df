"""Read by mypy in test_typing.py, never run: the types users of layers see."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, assert_type

import noetic_ray as nr


class CounterHandle(Protocol):
    @property
    def count(self) -> int: ...

    def add(self, *, n: int) -> Awaitable[int]: ...


class Counter(nr.ContextLayer[CounterHandle]):
    id = "counter"
    scope = "execution"
    budget = (0, 100)

    async def init(self, params: nr.layers.InitParams) -> int:
        return await params.storage.get("start", 0)  # type: ignore[no-any-return]

    async def recall(self, params: nr.layers.RecallParams) -> str | nr.Recall | None:
        return f"{params.state} of {params.budget}: {params.query}"

    async def store(self, params: nr.layers.StoreParams) -> nr.Update:
        return nr.Update(params.state + len(params.new_items))


counter = Counter()


@nr.step
async def counts(n: int, ctx: nr.Context) -> int:
    handle = ctx.context[counter]
    assert_type(handle, CounterHandle)
    assert_type(await handle.add(n=n), int)
    assert_type(ctx.context["counter"], Any)
    usage = ctx.last_layer_usage
    if usage is not None and usage.epoch is not None:
        assert_type(usage.epoch.reanchor_reason, str | None)
    return handle.count


inside = nr.with_context("w", counts, [counter])
assert_type(inside.id, str)
takes: nr.Step[int, int] = inside
child: nr.Step[int, int] = nr.spawn("s", counts, [counter])
