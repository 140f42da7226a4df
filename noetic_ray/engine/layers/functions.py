"""Layer functions: called by steps through `ctx.context`, and by models as tools."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.flow import callback
from noetic_ray.engine.layers.entry import LayerEntry
from noetic_ray.engine.layers.hooks import keep_state
from noetic_ray.engine.layers.stack import active
from noetic_ray.errors import NoeticError
from noetic_ray.layers.base import ContextLayer
from noetic_ray.layers.handle import LayerHandle, LayerHandles
from noetic_ray.layers.hooks import UNSET, Provided
from noetic_ray.layers.provides import LayerFunction
from noetic_ray.tools import Tool
from noetic_ray.tools.arguments import parse_arguments

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell


class _Access:
    """Implements `LayerAccess` for one layer of one context."""

    __slots__ = ("_cell", "_entry")

    def __init__(self, cell: Cell, entry: LayerEntry) -> None:
        self._cell = cell
        self._entry = entry

    def state(self) -> Any:
        """The layer's state now."""
        return self._entry.state

    def call(self, name: str, function: LayerFunction, args: Any) -> Awaitable[Any]:
        """Run a function with checked arguments."""
        return call_function(self._cell, self._entry, function, args)


def handles(cell: Cell) -> LayerHandles:
    """`ctx.context` where the caller stands."""
    here = {entry.layer.id: entry for entry in active(cell) if entry.live}

    def get(id: str) -> LayerHandle:
        entry = here[id]
        return LayerHandle(entry.layer, _Access(cell, entry))

    return LayerHandles(tuple(here), get)


async def call_function(cell: Cell, entry: LayerEntry, function: LayerFunction, args: Any) -> Any:
    """Run a layer's function on its state; `nr.Provided` may change the state."""
    cell.check()

    async def call() -> Any:
        answer = await callback_of(cell, function, args, entry)
        if isinstance(answer, Provided):
            if answer.state is not UNSET:
                keep_state(cell, entry, answer.state)
            return answer.result
        return answer

    return await entry.serial.run(call)


async def callback_of(cell: Cell, function: LayerFunction, args: Any, entry: LayerEntry) -> Any:
    """Call the function itself, in a thread when it is a plain one."""
    if function.is_async:
        return await function.call(args, entry.state, cell.ctx)
    return await callback(cell, function.call, args, entry.state, cell.ctx)


class LayerTool(Tool):
    """A layer's function as a model sees it, named `<layer id>/<function>`."""

    __slots__ = ("function", "layer_id")

    function: LayerFunction
    layer_id: str

    def __init__(self, layer: ContextLayer[Any], name: str, function: LayerFunction) -> None:
        said = function.description or f"{name} of {layer.id}."
        Tool.__init__(self, f"{layer.id}/{name}", said, False, True)
        self._set("function", function)
        self._set("layer_id", layer.id)

    def _arguments(self) -> Any:
        raise NoeticError(f"the arguments of {self.name} are read by its layer")

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the function's arguments."""
        return self.function.shape.schema

    @property
    def takes_context(self) -> bool:
        """It is found by the context."""
        return True

    def parse(self, arguments_text: str) -> dict[str, Any]:
        """The JSON object in a call's `arguments`. Raises ToolArgumentsError."""
        return parse_arguments(self.name, arguments_text, self.parameters)

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The checked first argument of the function. Raises ToolArgumentsError."""
        return {"args": self.function.validate(self.name, (), args)}

    async def invoke(self, kwargs: Mapping[str, Any], ctx: Any) -> Any:
        """Call it on the layer as it is here."""
        cell: Cell = ctx._services.cell
        for entry in active(cell):
            if entry.layer.id == self.layer_id and entry.live:
                return await call_function(cell, entry, self.function, kwargs["args"])
        raise NoeticError(f"layer {self.layer_id!r} is not active here")


def layer_tools(layers: Iterable[ContextLayer[Any]]) -> list[Tool]:
    """The functions of layers as tools."""
    return [
        LayerTool(layer, name, part)
        for layer in layers
        for name, part in layer.provides.items()
        if isinstance(part, LayerFunction)
    ]
