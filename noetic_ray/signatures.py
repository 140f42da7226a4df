"""Reads functions: whether they are async, and which parameter receives the context.

The context's class is recognised by name, so that nothing here imports it and annotations may be
texts, also ones whose import stands under `TYPE_CHECKING`.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Annotated, Any, ForwardRef, NamedTuple, Union, get_args, get_origin

from noetic_ray.errors import ConfigError

_CONTEXT = ("noetic_ray.context", "Context")
_CONTEXT_TEXT = re.compile(
    r"^(?:(?:typing\.)?Optional\[)?(?:\w+\.)*Context(?:\[.*\])?\]?(?: *\| *None)?$"
)
_UNIONS = (Union, types.UnionType)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class StepSignature(NamedTuple):
    """How a body is called. `context_name` is set when it takes the context by keyword."""

    takes_context: bool
    context_name: str | None


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a coroutine. Partials and callable objects are looked into."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def function_of(fn: object) -> types.FunctionType | None:
    """The plain function below partials, methods, decorators and callable objects."""
    if isinstance(fn, functools.partial):
        return function_of(fn.func)
    if isinstance(fn, types.MethodType):
        return function_of(fn.__func__)
    if isinstance(fn, types.FunctionType):
        return function_of(inspect.unwrap(fn)) if hasattr(fn, "__wrapped__") else fn
    if isinstance(fn, type) or not callable(fn):
        return None
    call = type(fn).__call__
    return call if isinstance(call, types.FunctionType) else None


def name_of(fn: Callable[..., Any]) -> str:
    """A name for a callable: its own, its function's, or its type's."""
    own = getattr(fn, "__name__", None)
    if isinstance(own, str):
        return own
    inner = function_of(fn)
    if inner is not None and inner.__name__ != "__call__":
        return inner.__name__
    return type(fn).__name__


def globals_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The global names that annotations of `fn` may use."""
    inner = function_of(fn)
    return inner.__globals__ if inner is not None else {}


def is_context(
    annotation: Any, globalns: Mapping[str, Any], localns: Mapping[str, Any] | None = None
) -> bool:
    """Whether an annotation means the execution context, alone or as an optional."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        text = annotation.strip("'\" ")
        if "Context" not in text:
            known = (localns or {}).get(text, globalns.get(text))
            return isinstance(known, type) and is_context(known, globalns, localns)
        try:
            meant = eval(text, dict(globalns), dict(localns or {}))
        except Exception:  # a name that exists for type checkers only
            return _CONTEXT_TEXT.match(text) is not None
        return not isinstance(meant, str) and is_context(meant, globalns, localns)
    if isinstance(annotation, type):
        mro = getattr(annotation, "__mro__", ())
        return any((base.__module__, base.__name__) == _CONTEXT for base in mro)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_context(args[0], globalns, localns)
    return origin in _UNIONS and any(is_context(each, globalns, localns) for each in args)


def read_step(fn: Callable[..., Any], what: str) -> StepSignature:
    """How to call a step's body. Raises ConfigError `INVALID_STEP_FUNCTION` when nothing fits.

    The first positional parameter is the input. A second one that must be given, or is annotated
    `Context` or named `ctx`, is the context; other parameters need defaults.
    """
    if not callable(fn):
        raise _bad(what, f"{fn!r} cannot be called")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise _bad(what, "it is a generator; a step returns one value")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # some builtins do not tell
        return StepSignature(False, None)
    namespace = globals_of(fn)
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    takes_any = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    _check_input(positional[0] if positional else None, takes_any, namespace, what)
    by_keyword = _keyword_context(parameters, namespace, what)
    for extra in positional[2:]:
        if extra.default is Parameter.empty:
            raise _bad(what, f"nothing is passed for its parameter {extra.name!r}")
    second = positional[1] if len(positional) > 1 else None
    if second is None:
        return StepSignature(by_keyword is not None, by_keyword)
    if second.default is Parameter.empty or _means_context(second, namespace):
        return StepSignature(True, None)
    return StepSignature(by_keyword is not None, by_keyword)


def _check_input(
    first: Parameter | None, takes_any: bool, namespace: Mapping[str, Any], what: str
) -> None:
    if first is None:
        if not takes_any:
            raise _bad(what, "it takes no input")
    elif _means_context(first, namespace):
        raise _bad(what, f"its first parameter, {first.name!r}, would receive the input")


def _keyword_context(
    parameters: list[Parameter], namespace: Mapping[str, Any], what: str
) -> str | None:
    found: str | None = None
    for each in parameters:
        if each.kind is not Parameter.KEYWORD_ONLY:
            continue
        if _means_context(each, namespace):
            found = each.name
        elif each.default is Parameter.empty:
            raise _bad(what, f"nothing is passed for its parameter {each.name!r}")
    return found


def _means_context(parameter: Parameter, namespace: Mapping[str, Any]) -> bool:
    return parameter.name == "ctx" or is_context(parameter.annotation, namespace)


def _bad(what: str, why: str) -> ConfigError:
    return ConfigError(
        "INVALID_STEP_FUNCTION",
        f"{what} cannot be a step's body: {why}",
        "Write it as fn(input, ctx) or fn(input), sync or async.",
    )


def check_callback(what: str, fn: object, *names: str) -> None:
    """Raise ConfigError `INVALID_CALLBACK` unless `fn` can be called with that many arguments."""
    shape = f"fn({', '.join(names)})"
    if not callable(fn):
        raise ConfigError("INVALID_CALLBACK", f"{what} is {fn!r}", f"Give a function {shape}.")
    try:
        inspect.signature(fn).bind(*names)
    except ValueError:  # some builtins do not tell
        return
    except TypeError as problem:
        raise ConfigError(
            "INVALID_CALLBACK",
            f"{what} cannot be called as {shape}: {problem}",
            f"Write it as {shape}, sync or async.",
        ) from None
