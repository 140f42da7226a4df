"""Looks at what a step or tool would drag into another process, before it is sent there.

Functions of importable modules travel by name and bring nothing. Others, written in a notebook, a
script or inside another function, travel with the variables they capture: those are looked at, and
the first that belongs to this process alone is named.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copyreg
import dataclasses
import dis
import functools
import inspect
import io
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from noetic_ray.errors import ConfigError
from noetic_ray.steps import Step
from noetic_ray.steps.references import importable
from noetic_ray.tools import FunctionTool, StepTool, Tool

__all__ = ["check"]

_MAX_DEPTH = 24
_MAX_OBJECTS = 20_000
_MAX_MEMBERS = 256
_MAX_TRIED = 200

_MAKE_INSIDE = "Make it inside the function"
_TAKE_CTX = "Take the context as a parameter, ctx: nr.Context"
_KINDS: tuple[tuple[tuple[type, ...], str, str], ...] = (
    (
        (
            type(threading.Lock()),
            type(threading.RLock()),
            threading.Condition,
            threading.Semaphore,
            threading.Event,
            threading.Barrier,
            asyncio.Lock,
            asyncio.Condition,
            asyncio.Semaphore,
            asyncio.Event,
        ),
        "a lock",
        "A lock guards one process only; pass values through a channel",
    ),
    ((threading.Thread,), "a thread", _MAKE_INSIDE),
    ((subprocess.Popen,), "a process", _MAKE_INSIDE),
    ((socket.socket,), "a socket", _MAKE_INSIDE),
    (
        (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper),
        "an open file",
        "Open it inside the function",
    ),
    ((asyncio.AbstractEventLoop,), "an event loop", _MAKE_INSIDE),
    ((asyncio.Future, concurrent.futures.Future), "a task or future", "Pass its result"),
    ((concurrent.futures.Executor,), "an executor", _MAKE_INSIDE),
    (
        (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
        "a generator or coroutine",
        "Pass a list of values, or the function that makes it",
    ),
)
_CLIENTS = {("httpx", "Client"), ("httpx", "AsyncClient"), ("aiohttp.client", "ClientSession")}


@dataclasses.dataclass(frozen=True, slots=True)
class _Slotted:
    pass


#: What dataclasses with slots are given; it takes every field along.
_dataclass_getstate = _Slotted.__getstate__


class _Found(NamedTuple):
    """One object on the way: the step or tool it belongs to, and the variable it is held by."""

    value: Any
    owner: str
    variable: str
    depth: int


def check(obj: object, dumps: Callable[[object], bytes] | None = None) -> None:
    """Raise ConfigError `UNPICKLABLE_CAPTURE` when `obj` cannot be sent to another process.

    The error names the step or tool, the captured variable and what it is. `dumps` is the pickler
    that will be used; it has the last word on what looked harmless.
    """
    seen = list(_walk(obj))
    if dumps is None:
        return
    try:
        dumps(obj)
    except ConfigError:
        raise
    except Exception as problem:
        found, why = _culprit(seen, dumps, problem)
        raise _refusal(found, f"cannot be pickled ({why})", _MAKE_INSIDE) from problem


def _walk(obj: object) -> Iterator[_Found]:
    """Everything that would travel with `obj`, each once. Raises at what must not."""
    seen: set[int] = set()
    kept: list[Any] = []
    pending = [_Found(obj, _label(obj) or f"{type(obj).__name__} object", "", 0)]
    while pending and len(seen) < _MAX_OBJECTS:
        found = pending.pop()
        if id(found.value) in seen or _plain(found.value):
            continue
        seen.add(id(found.value))
        kept.append(found.value)  # ids are only unique among the living
        _refuse(found)
        yield found
        if found.depth < _MAX_DEPTH:
            inside = [_step_into(found, name, value) for name, value in _members(found.value)]
            pending.extend(reversed(inside))


def _step_into(found: _Found, name: str, value: Any) -> _Found:
    label = _label(value)
    if label is not None:
        return _Found(value, label, "", found.depth + 1)
    return _Found(value, found.owner, _variable(found, name, value), found.depth + 1)


def _variable(found: _Found, name: str, value: Any) -> str:
    """How the author of the function would write what holds `value`."""
    ours = type(found.value).__module__.startswith("noetic_ray.")
    if not name or (ours and callable(value)):
        return found.variable
    if not found.variable or name.startswith("["):
        return f"{found.variable}{name}"
    return f"{found.variable}.{name}"


def _label(value: object) -> str | None:
    if isinstance(value, Step):
        return f"step {value.id!r}"
    if isinstance(value, Tool):
        return f"tool {value.name!r}"
    return None


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str | bytes | int | float | complex | bytearray)


def _refuse(found: _Found) -> None:
    value, kind = found.value, type(found.value)
    if isinstance(value, type | types.ModuleType):
        return
    refused = getattr(kind, "__noetic_refuse__", None)
    if isinstance(refused, str):
        hint = _TAKE_CTX if refused == "context" else "Give it what it needs as input instead"
        raise _refusal(found, f"is {_article(refused)}, which stays in this process", hint)
    if any((base.__module__, base.__name__) in _CLIENTS for base in kind.__mro__):
        raise _refusal(found, "is an HTTP client, whose connections stay here", _MAKE_INSIDE)
    for types_, what, hint in _KINDS:
        if issubclass(kind, types_) and not _standard_stream(value):
            raise _refusal(found, f"is {what} ({kind.__name__})", hint)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _standard_stream(value: object) -> bool:
    return any(value is each for each in (sys.stdout, sys.stderr))


def _refusal(found: _Found, what: str, hint: str) -> ConfigError:
    captured = f"captured variable {found.variable!r} " if found.variable else "it "
    return ConfigError(
        "UNPICKLABLE_CAPTURE",
        f"{found.owner} cannot be sent to another process: {captured}{what}",
        f"{hint}.",
    )


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """What a pickler would take along with `value`, by name."""
    if isinstance(value, types.FunctionType):
        yield from _captures(value)
    elif isinstance(value, types.MethodType):
        yield "self", value.__self__
        yield value.__name__, value.__func__
    elif isinstance(value, functools.partial):
        yield "partial", value.func
        yield from ((f"[{place}]", each) for place, each in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, Step):
        yield from _step_members(value)
    elif isinstance(value, FunctionTool):
        if importable(value, value.fn) is None:
            yield "fn", value.fn
    elif isinstance(value, StepTool):
        yield "step", value.step
    elif isinstance(value, Mapping):
        yield from _some((f"[{key!r:.60}]", each) for key, each in _items(value))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from _some((f"[{place}]", each) for place, each in enumerate(value))
    elif isinstance(value, type):
        yield from _class_members(value)
    elif not isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        yield from _attributes(value)


def _items(value: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Plain dicts and their like only: other mappings may compute, or change, on a look."""
    return iter(value.items()) if isinstance(value, dict | types.MappingProxyType) else iter(())


def _some(members: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The first few hundred; what hides further back is left to the pickler."""
    for _, member in zip(range(_MAX_MEMBERS), members, strict=False):
        yield member


def _step_members(step: Step[Any, Any]) -> Iterator[tuple[str, Any]]:
    execute = getattr(step, "execute", None)
    if execute is not None and importable(step, execute) is not None:
        return
    for name in _slots(type(step)):
        yield name, getattr(step, name, None)


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names.extend((slots,) if isinstance(slots, str) else slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _captures(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    if importable(function, function) is not None:
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            yield name, parameter.default
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from function.__dict__.items()


def _global_names(code: types.CodeType) -> set[str]:
    """Globals a function reads or sets, those of functions inside it included."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname.endswith("_GLOBAL")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _global_names(constant)
    return found


def _class_members(kind: type) -> Iterator[tuple[str, Any]]:
    if importable(kind, kind) is not None or kind.__module__ == "builtins":
        return
    for name, value in list(vars(kind).items()):
        if isinstance(value, staticmethod | classmethod):
            yield name, value.__func__
        elif isinstance(value, property):
            yield name, value.fget
        elif isinstance(value, types.FunctionType) or not name.startswith("__"):
            yield name, value
    yield from (("", base) for base in kind.__bases__)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """An instance's attributes, unless it decides itself how it is pickled, and its class."""
    kind = type(value)
    if not _pickles_itself(kind):
        for name in _slots(kind):
            with contextlib.suppress(AttributeError):
                yield name, object.__getattribute__(value, name)
        with contextlib.suppress(TypeError):
            yield from _some(iter(list(vars(value).items())))
    if importable(kind, kind) is None:
        yield "", kind


def _pickles_itself(kind: type) -> bool:
    if kind in copyreg.dispatch_table:
        return True
    for name in ("__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs_ex__"):
        own = getattr(kind, name, None)
        if own is not getattr(object, name, None) and own is not _dataclass_getstate:
            return True
    return False


def _culprit(
    seen: list[_Found], dumps: Callable[[object], bytes], problem: Exception
) -> tuple[_Found, str]:
    """The innermost thing that cannot be pickled by itself, and why."""
    worst, why = seen[0] if seen else _Found(None, "the object", "", 0), _first_line(problem)
    for found in seen[1:_MAX_TRIED]:
        if found.depth <= worst.depth:
            continue
        try:
            dumps(found.value)
        except Exception as own:
            worst, why = found, _first_line(own)
    return worst, why


def _first_line(problem: Exception) -> str:
    lines = str(problem).splitlines() or [""]
    return f"{type(problem).__name__}: {lines[0][:200]}"
