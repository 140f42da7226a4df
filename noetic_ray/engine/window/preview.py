"""The request a model step would send next, put together and not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from noetic_ray.engine.layers.stack import enter
from noetic_ray.items import Item
from noetic_ray.models.protocol import ToolSpec
from noetic_ray.steps.kinds import WithContext
from noetic_ray.usage import LastLayerUsage

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell


class Previewed(NamedTuple):
    """A request, and the figures of its window; `picture` as an event carries them."""

    model: str
    instructions: str | None
    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...]
    picture: dict[str, Any]
    usage: LastLayerUsage


async def preview(cell: Cell, step: Any, input: Any) -> Previewed:
    """Do all a model step does before it asks. The context it runs in keeps nothing."""
    from noetic_ray.engine.model_call import Conversation

    inner = step.child
    while isinstance(inner, WithContext):
        await enter(cell, inner.layers)
        inner = inner.child
    call = Conversation(cell, inner, None)
    await call.open(input)
    request = call.request()
    return Previewed(
        inner.model,
        call.instructions,
        tuple(request.items),
        tuple(request.tools),
        call.open_window.picture(),
        call.open_window.usage(),
    )
