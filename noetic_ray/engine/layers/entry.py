"""A layer in one context: its state there, and what becomes of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from noetic_ray.engine.layers.serial import Serial
from noetic_ray.layers.base import ContextLayer
from noetic_ray.layers.storage import STATE_KEY, ScopedStorage, plain_json, scope_prefix

if TYPE_CHECKING:
    from noetic_ray.context import Context
    from noetic_ray.layers.writer import StateWriter
    from noetic_ray.protocols import KeyValues


class LayerEntry:
    """`ready` once the layer works here; `key` is where its state is saved, if it is."""

    __slots__ = (
        "completed",
        "disposed",
        "eventual",
        "key",
        "layer",
        "ready",
        "serial",
        "state",
        "storage",
    )

    def __init__(self, layer: ContextLayer[Any], ctx: Context, values: KeyValues) -> None:
        prefix = scope_prefix(layer.id, layer.scope, ctx.thread_id, ctx.resource_id, ctx.id)
        self.layer = layer
        self.state: Any = None
        self.ready = False
        self.completed = False
        self.disposed = False
        self.eventual: Any = None
        self.key: str | None = None
        self.serial = Serial()
        self.storage = ScopedStorage(values, prefix)

    def __repr__(self) -> str:
        return f"LayerEntry({self.layer.id!r}, ready={self.ready})"

    @property
    def live(self) -> bool:
        """Whether hooks are called."""
        return self.ready and not self.disposed

    def keep(self, state: Any, writer: StateWriter | None) -> None:
        """Take a new state; save it when this context is the one that saves it.

        Raises ConfigError when it cannot be saved as it is; it is taken all the same.
        """
        self.state = state
        self.eventual = None
        if self.key is not None and writer is not None:
            writer.put(self.key, None if state is None else encode(self.layer, state))


def state_key(layer: ContextLayer[Any], ctx: Context) -> str:
    """Where a layer's state is saved."""
    prefix = scope_prefix(layer.id, layer.scope, ctx.thread_id, ctx.resource_id, ctx.id)
    return prefix + STATE_KEY


def encode(layer: ContextLayer[Any], state: Any) -> bytes:
    """A state as JSON. Raises ConfigError `LAYER_VALUE_NOT_JSON` or what pydantic raises."""
    if layer.state_type is not None:
        return bytes(TypeAdapter(layer.state_type).dump_json(state))
    return plain_json(state, f"the state of layer {layer.id!r}")


def decode(layer: ContextLayer[Any], data: bytes) -> Any:
    """The state that was saved. Raises ValueError when it does not fit the layer any more."""
    kind = Any if layer.state_type is None else layer.state_type
    return TypeAdapter(kind).validate_json(data)
