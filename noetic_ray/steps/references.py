"""Sends steps and tools by name when the other side can import them.

A decorator puts its result where the function was, so the function alone can no longer be found by
name and would travel by value, with copies of the globals it uses. The decorated object can be
found, and stays one object per process.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from noetic_ray.errors import ConfigError

_MAIN = ("__main__", "__mp_main__")
_CLOUDPICKLES = ("ray.cloudpickle.cloudpickle", "cloudpickle.cloudpickle")


def importable(obj: object, like: object) -> tuple[str, str] | None:
    """The module and qualified name of `like`, when `obj` itself is what stands there."""
    module = getattr(like, "__module__", None)
    name = getattr(like, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if module in _MAIN or "<" in name or sent_by_value(module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is obj else None


def sent_by_value(module: str) -> bool:
    """Whether the user asked the pickler to copy this module's functions."""
    for name in _CLOUDPICKLES:
        registered = getattr(sys.modules.get(name), "_PICKLE_BY_VALUE_MODULES", ())
        if any(module == each or module.startswith(f"{each}.") for each in registered):
            return True
    return False


def load(module: str, name: str, kind: type) -> Any:
    """Find a step or tool by name. Raises ConfigError `UNKNOWN_REFERENCE` when it is not there."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, kind):
        raise ConfigError(
            "UNKNOWN_REFERENCE",
            f"{module}.{name} is {found!r} in this process, not a {kind.__name__}",
            "Both sides must run the same version of the module.",
        )
    return found


def reduce(obj: Any, fn: Callable[..., Any], kind: type) -> tuple[Any, ...] | None:
    """What `__reduce_ex__` returns for an importable object, or None."""
    place = importable(obj, fn)
    return (load, (*place, kind)) if place else None
