"""`ctx.context`: the layers of a context, each with the data and functions it provides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol, overload

from typing_extensions import TypeVar

from noetic_ray.layers.base import ContextLayer
from noetic_ray.layers.provides import LayerData, LayerFunction

H = TypeVar("H")


class LayerAccess(Protocol):
    """What a handle needs from the engine: the layer's state here, and a way to call."""

    def state(self) -> Any: ...
    def call(self, name: str, function: LayerFunction, args: Any) -> Awaitable[Any]: ...


class LayerCall:
    """A function of a layer. It validates its arguments at once and returns an awaitable."""

    __noetic_layer_call__ = True
    __slots__ = ("_access", "_function", "_name", "_shown")

    def __init__(self, access: LayerAccess, shown: str, name: str, function: LayerFunction) -> None:
        self._access = access
        self._shown = shown
        self._name = name
        self._function = function

    def __repr__(self) -> str:
        return f"<layer function {self._shown}>"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""
        return self._function.shape.schema

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Give the fields as keywords, or one value. Raises ToolArgumentsError (a ValueError)."""
        checked = self._function.validate(self._shown, args, kwargs)
        return self._access.call(self._name, self._function, checked)


class LayerHandle:
    """What a layer provides, as attributes: data is read live, functions are awaited."""

    __slots__ = ("_access", "_layer")

    def __init__(self, layer: ContextLayer[Any], access: LayerAccess) -> None:
        self._layer = layer
        self._access = access

    def __repr__(self) -> str:
        return f"LayerHandle({self._layer.id!r}, provides={sorted(self._layer.provides)})"

    def __dir__(self) -> list[str]:
        return sorted(self._layer.provides)

    def __getattr__(self, name: str) -> Any:
        part = None if name.startswith("__") else self._layer.provides.get(name)
        if isinstance(part, LayerData):
            return part.read(self._access.state())
        if isinstance(part, LayerFunction):
            return LayerCall(self._access, f"{self._layer.id}/{name}", name, part)
        known = ", ".join(sorted(self._layer.provides)) or "nothing"
        raise AttributeError(f"layer {self._layer.id!r} provides {known}, not {name!r}")


class LayerHandles(Mapping[str, Any]):
    """The layers that are active here, by id; index it with a layer to get its typed handle."""

    __slots__ = ("_get", "_ids")

    def __init__(self, ids: tuple[str, ...], get: Callable[[str], LayerHandle]) -> None:
        self._ids = ids
        self._get = get

    def __repr__(self) -> str:
        return f"LayerHandles({', '.join(self._ids)})"

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: ContextLayer[H]) -> H: ...
    def __getitem__(self, key: Any) -> Any:
        id = key.id if isinstance(key, ContextLayer) else key
        if id not in self._ids:
            known = ", ".join(self._ids) or "none"
            raise KeyError(f"no layer {id!r} is active in this context; active: {known}")
        return self._get(id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)
