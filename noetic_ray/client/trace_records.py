"""What a trace is made of: nodes, their logs, and key-value spaces, as plain records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from noetic_ray.canonical import canonical
from noetic_ray.error_record import type_name
from noetic_ray.errors import TraceError

__all__ = [
    "ParallelInput",
    "SpaceRecord",
    "TraceLog",
    "TraceNodeOption",
    "TraceNodeRecord",
]

_OPTION_TEXTS = ("label", "type", "icon", "description")
_OPTION_KEYS = (*_OPTION_TEXTS, "metadata")
_INPUT_KEYS = ("input", "option")


@dataclass(frozen=True, slots=True)
class TraceLog:
    """One line. `level` is info, debug, warn or error, `time` in seconds since the epoch."""

    level: str
    message: str
    data: Any = None
    time: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class TraceNodeRecord:
    """One node of a trace.

    `children` are records too, in the order they started; a node below several parents is the same
    object in each of their `children`. `status` is running, completed or failed, `error` the text
    of a failure. Times are seconds since the epoch; `ended_at` is None while the node runs.
    `trace_id` and `span_id` are those of the step it was made in, in hexadecimal.
    """

    id: str
    parent_ids: list[str] = field(default_factory=list)
    children: list[TraceNodeRecord] = field(default_factory=list)
    label: str = ""
    type: str = ""
    icon: str = ""
    description: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    status: str = "running"
    input: Any = None
    output: Any = None
    error: str | None = None
    logs: list[TraceLog] = field(default_factory=list)
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    context_id: str = ""
    trace_id: str = ""
    span_id: str = ""

    def walk(self) -> Iterator[TraceNodeRecord]:
        """This node and all below it, each once, however many ways lead there."""
        ahead, seen = [self], {id(self)}
        while ahead:
            node = ahead.pop()
            yield node
            for child in reversed(node.children):
                if id(child) not in seen:
                    seen.add(id(child))
                    ahead.append(child)

    def __repr__(self) -> str:
        return (
            f"TraceNodeRecord({self.id!r}, label={self.label!r}, type={self.type!r}, "
            f"status={self.status!r}, parents={len(self.parent_ids)}, "
            f"children={len(self.children)})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TraceNodeRecord):
            return NotImplemented
        # Each pair is compared once: the ways through joins multiply, the nodes do not.
        ahead, seen = [(self, other)], {(id(self), id(other))}
        while ahead:
            one, two = ahead.pop()
            if one is two:
                continue
            if _own_facts(one) != _own_facts(two) or len(one.children) != len(two.children):
                return False
            for pair in zip(one.children, two.children, strict=True):
                ids = id(pair[0]), id(pair[1])
                if ids not in seen:
                    seen.add(ids)
                    ahead.append(pair)
        return True

    # A record changes, so it has no hash.
    __hash__ = None  # type: ignore[assignment]


_FACTS = tuple(name for name in TraceNodeRecord.__dataclass_fields__ if name != "children")


def _own_facts(node: TraceNodeRecord) -> tuple[Any, ...]:
    return tuple(getattr(node, name) for name in _FACTS)


@dataclass(slots=True)
class SpaceRecord:
    """A key-value space as it stands: `data` are its keys in the order they were written."""

    id: str
    label: str = ""
    type: str = ""
    icon: str = ""
    description: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    created_at: float | None = None


@dataclass(frozen=True, slots=True)
class TraceNodeOption:
    """How a node is shown. All of it is optional; `icon` is the name of an icon.

    Raises TraceError for a value of a wrong type.
    """

    label: str = ""
    type: str = ""
    icon: str = ""
    description: str = ""
    metadata: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in _OPTION_TEXTS:
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TraceError(f"`{name}` must be a text, not {type_name(value.__class__)}")
        metadata: Any = self.metadata
        if metadata is None:
            return
        if not isinstance(metadata, Mapping):
            raise TraceError(f"`metadata` must be a dict, not {type_name(metadata.__class__)}")
        object.__setattr__(self, "metadata", canonical(dict(metadata)))

    @classmethod
    def of(cls, given: TraceNodeOption | Mapping[str, Any] | None) -> TraceNodeOption:
        """The option somebody wrote. Raises TraceError naming what is unknown or wrong."""
        if isinstance(given, TraceNodeOption):
            return given
        if given is None:
            return cls()
        return cls(**_known("option", given, _OPTION_KEYS))

    def as_dict(self) -> dict[str, Any]:
        """The five values by name; no metadata is an empty dict."""
        texts = {name: getattr(self, name) for name in _OPTION_TEXTS}
        return {**texts, "metadata": dict(self.metadata or {})}


@dataclass(frozen=True, slots=True, init=False)
class ParallelInput:
    """One entry for `parallel`: what its node works on, and how the node is shown.

    `option` may be given as a dict. Raises TraceError naming what is unknown or wrong in it.
    """

    input: Any
    option: TraceNodeOption

    def __init__(
        self, input: Any, option: TraceNodeOption | Mapping[str, Any] | None = None
    ) -> None:
        object.__setattr__(self, "input", input)
        object.__setattr__(self, "option", TraceNodeOption.of(option))

    @classmethod
    def of(cls, given: ParallelInput | Mapping[str, Any]) -> ParallelInput:
        """An entry, or a dict with `input` and, if need be, `option`. Raises TraceError."""
        if isinstance(given, ParallelInput):
            return given
        entry = _known("an entry of parallel", given, _INPUT_KEYS)
        if "input" not in entry:
            raise TraceError("an entry of parallel needs `input`; None will do")
        return cls(entry["input"], entry.get("option"))


def _known(what: str, given: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """What was given as a dict. Raises TraceError for another type and for other keys."""
    if not isinstance(given, Mapping):
        raise TraceError(f"{what} must be a dict, not {type_name(given.__class__)}")
    unknown = [key for key in given if key not in keys]
    if unknown:
        names = ", ".join(f"`{key}`" for key in unknown)
        raise TraceError(f"{what} has no {names}; known are {', '.join(keys)}")
    return dict(given)
