"""Calls a layer's hooks and functions by hand, with a context that has just what they read."""

from __future__ import annotations

from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

from noetic_ray.layers.base import ContextLayer
from noetic_ray.layers.hooks import (
    UNSET,
    ChildInfo,
    CompleteParams,
    InitParams,
    ProjectParams,
    Provided,
    RecallParams,
    Response,
    ReturnParams,
    SpawnParams,
    StoreParams,
)
from noetic_ray.layers.storage import ScopedStorage

CHILD = ChildInfo("child", 1, "t", "step")


class Memory:
    """Keys and bytes in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def load(self, keys: Any) -> dict[str, bytes]:
        return {key: self.values[key] for key in keys if key in self.values}

    async def save(self, changes: Any) -> None:
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    async def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.values if key.startswith(prefix))


class Hosted:
    """A layer in one context."""

    def __init__(self, layer: ContextLayer[Any], memory: Memory | None = None) -> None:
        self.layer = layer
        self.memory = memory or Memory()
        self.storage = ScopedStorage(self.memory, f"layers/{layer.id}/")
        self.ctx: Any = SimpleNamespace(id="ctx", thread_id="t")
        self.log: list[Any] = []
        self.state: Any = None

    async def init(self) -> Hosted:
        self.state = await self.layer.init(InitParams(self.ctx, self.storage, self.log))
        return self

    async def recall(self, query: str = "", budget: int | None = None) -> Any:
        params = RecallParams(self.ctx, self.storage, self.state, self.log, query, budget)
        return await self.layer.recall(params)

    async def store(self, *items: Any) -> None:
        self.log += items
        params = StoreParams(
            self.ctx, self.storage, self.state, self.log, items, Response(tuple(items))
        )
        update = await self.layer.store(params)
        if update is not None:
            self.state = update.state

    async def complete(self, outcome: Any = "completed") -> None:
        params = CompleteParams(self.ctx, self.storage, self.state, self.log, outcome)
        await self.layer.on_complete(params)

    async def project(self, items: Any) -> Any:
        params = ProjectParams(self.ctx, self.storage, self.state, items)
        return await self.layer.project_history(params)

    async def spawn(self) -> Hosted:
        seed = await self.layer.on_spawn(SpawnParams(self.ctx, self.storage, self.state, CHILD))
        assert seed is not None
        child = Hosted(self.layer, self.memory)
        child.state = seed.state
        return child

    async def take_back(self, child: Hosted) -> None:
        merge = await self.layer.on_return(
            ReturnParams(self.ctx, self.storage, self.state, child.state, (), CHILD, None)
        )
        if merge is not None and merge.state is not UNSET:
            self.state = merge.state

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        function: Any = self.layer.provides[name]
        given = function.validate(f"{self.layer.id}/{name}", args, kwargs)
        answer = function.call(given, self.state, self.ctx)
        if isawaitable(answer):
            answer = await answer
        if not isinstance(answer, Provided):
            return answer
        if answer.state is not UNSET:
            self.state = answer.state
        return answer.result

    def data(self, name: str) -> Any:
        part: Any = self.layer.provides[name]
        return part.read(self.state)
