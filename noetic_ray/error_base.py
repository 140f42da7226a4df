"""The root of the library's errors, and what its subclasses need to travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from noetic_ray.error_record import MAX_MESSAGE, clip, text_of

MAX_NESTING = 12


class NoeticError(Exception):
    """Root of the tree. ``kind`` is a stable name for programs, the text is for people."""

    __module__ = "noetic_ray.errors"
    kind: str = "noetic_error"
    #: Field names with the value a field takes when it never arrived.
    _fields: ClassVar[dict[str, Any]] = {}

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.args, dict(self.__dict__))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, NoeticError) or type(other) is not type(self):
            return NotImplemented
        return self.args == other.args and self._held() == other._held()

    def __hash__(self) -> int:
        return hash((type(self), self.kind, text_of(self)))

    def _held(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "__notes__"}

    def _field_values(self) -> dict[str, Any]:
        held = self.__dict__
        return {name: held.get(name, default) for name, default in self._fields.items()}

    def _dump(self, depth: int) -> dict[str, Any]:
        return {name: plain(value, depth) for name, value in self._field_values().items()}

    @classmethod
    def _load(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return fields


def rebuild(cls: type[NoeticError], args: tuple[Any, ...], held: dict[str, Any]) -> NoeticError:
    """Make an instance without its constructor, whose signature a subclass may have changed."""
    exc: NoeticError = cls.__new__(cls, *args)
    exc.args = args
    exc.__dict__.update(held)
    return exc


def plain(value: Any, depth: int) -> Any:
    """What of a field travels: plain data as it is, anything else as its text."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if depth < MAX_NESTING:
        if isinstance(value, list | tuple):
            return [plain(each, depth + 1) for each in value]
        if isinstance(value, Mapping):
            return {str(key): plain(each, depth + 1) for key, each in value.items()}
    try:
        return clip(repr(value), MAX_MESSAGE)
    except Exception:
        return f"<{type(value).__name__}>"
