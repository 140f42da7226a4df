"""Standing instructions: a text, a file, or what a function says at the start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from noetic_ray.errors import ConfigError
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, PlacementWish, Scope, check_layer
from noetic_ray.layers.builtin.calling import called
from noetic_ray.layers.builtin.rendering import tagged
from noetic_ray.layers.hooks import InitParams, RecallParams, SpawnParams, SpawnSeed
from noetic_ray.layers.provides import layer_data
from noetic_ray.signatures import check_callback

Source: TypeAlias = "str | Path | Callable[[Any], str | Awaitable[str]]"


class Instructions(ContextLayer[Any]):
    """Standing instructions, read once per context tree and shown before the history.

    `source` is a text, a `pathlib.Path` to a file in UTF-8, or a function of the context that
    returns the text. Over `budget` (tokens) the text is cut; 0 and None are no limit.

    Example: `nr.layers.instructions(Path("AGENTS.md"), budget=2_000)`.

    State: the text, once read.
    """

    def __init__(
        self,
        source: Source,
        *,
        id: str = "instructions",
        slot: float = slots.INSTRUCTIONS,
        scope: Scope = "resource",
        budget: BudgetWish = "auto",
        placement: PlacementWish = "anchor",
    ) -> None:
        if callable(source):
            check_callback(f"the source of layer {id!r}", source, "ctx")
        elif not isinstance(source, str | Path) or source == "" or str(source).isspace():
            raise ConfigError(
                "INVALID_LAYER",
                f"the source of layer {id!r} is {source!r}",
                "Give a text, a Path, or a function of the context.",
            )
        self.id = id
        self.slot = slot
        self.scope = scope
        self.budget = budget
        self.placement = placement
        # Where the run starts may not be where this process stands.
        self.source = source.absolute() if isinstance(source, Path) else source
        self.provides = {"text": layer_data(_text)}
        check_layer(self)

    async def init(self, params: InitParams) -> str:
        """Read it once. Raises ConfigError `INSTRUCTIONS_UNREADABLE`."""
        source = self.source
        if isinstance(source, str):
            return source
        if isinstance(source, Path):
            return await asyncio.to_thread(_read, self.id, source)
        said = await called(source, params.ctx)
        if not isinstance(said, str):
            raise TypeError(f"the source of layer {self.id!r} gave {type(said).__name__}, no text")
        return said

    async def recall(self, params: RecallParams) -> str | None:
        """The text in a tag, which is there to the end also when the text is cut."""
        return tagged("instructions", params.state, params.budget or None) if params.state else None

    async def on_spawn(self, params: SpawnParams) -> SpawnSeed:
        """Children are told the same, without reading it again."""
        return SpawnSeed(params.parent_state)


def _read(id: str, path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "INSTRUCTIONS_UNREADABLE",
            f"layer {id!r} cannot read {path}: {error}",
            "The file must be there, in UTF-8, on the node where the run starts.",
        ) from None


def _text(state: Any) -> str:
    return state or ""
