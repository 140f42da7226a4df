"""Tools: what a model may call."""

from __future__ import annotations

import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, overload

from typing_extensions import ParamSpec, TypeVar

from noetic_ray.canonical import clean_text, from_json, to_json_bytes
from noetic_ray.errors import ConfigError
from noetic_ray.signatures import is_async, name_of
from noetic_ray.steps import RunCode, Step, references
from noetic_ray.tools.arguments import (
    Arguments,
    Parameters,
    check_signature,
    names_used,
    parse_arguments,
    read_parameters,
)

P = ParamSpec("P", default=...)
R = TypeVar("R", covariant=True, default=Any)
LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tool(ABC):
    """Something a model may call. Immutable; tools compare by identity.

    `is_async` says that `invoke` gives an awaitable.
    """

    __slots__ = ("__weakref__", "description", "is_async", "name", "needs_approval")

    name: str
    description: str
    needs_approval: bool
    is_async: bool

    def __init__(self, name: str, description: str, needs_approval: bool, is_async: bool) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError("INVALID_TOOL_NAME", f"a tool's name is {name!r}", "Give a text.")
        if not isinstance(needs_approval, bool):
            raise ConfigError(
                "INVALID_TOOL", f"needs_approval of tool {name!r} is {needs_approval!r}"
            )
        self._set("name", name)
        self._set("description", description)
        self._set("needs_approval", needs_approval)
        self._set("is_async", is_async)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"tools are immutable; make another instead of changing {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments, of type object. Made on first use.

        Raises ConfigError `INVALID_TOOL_SIGNATURE` or `INVALID_TOOL_TYPE`.
        """
        return self._arguments().schema

    @property
    def takes_context(self) -> bool:
        """Whether `invoke` uses its context."""
        return self._arguments().parameters.context_name is not None

    @abstractmethod
    def _arguments(self) -> Arguments: ...

    def parse(self, arguments_text: str) -> dict[str, Any]:
        """The JSON object in a call's `arguments`. Raises ToolArgumentsError."""
        return parse_arguments(self.name, arguments_text, self.parameters)

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as validated keywords for `invoke`. Raises ToolArgumentsError."""
        return self._arguments().validate(args)

    @abstractmethod
    def invoke(self, kwargs: Mapping[str, Any], ctx: Any) -> Any:
        """Call with validated keywords; gives the result, or an awaitable of it."""
        ...


class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool. Calling the tool calls the function."""

    __slots__ = ("_made", "_scope", "fn")

    fn: Callable[P, R]
    _made: Arguments | None
    _scope: Mapping[str, Any] | Parameters

    def __init__(
        self,
        name: str,
        description: str,
        needs_approval: bool,
        fn: Callable[P, R],
        scope: Mapping[str, Any] | Parameters,
    ) -> None:
        """`scope` holds local names the annotations use, or the parameters as already read."""
        Tool.__init__(self, name, description, needs_approval, is_async(fn))
        self._set("fn", fn)
        self._set("_scope", scope)
        self._set("_made", None)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def _arguments(self) -> Arguments:
        if self._made is None:
            self._set("_made", Arguments(self.name, self._parameters()))
            assert self._made is not None
        return self._made

    def _parameters(self) -> Parameters:
        if not isinstance(self._scope, Parameters):
            self._set("_scope", read_parameters(self.name, self.fn, self._scope))
            assert isinstance(self._scope, Parameters)
        return self._scope

    def invoke(self, kwargs: Mapping[str, Any], ctx: Any) -> Any:
        given: dict[str, Any] = dict(kwargs)
        context_name = self._parameters().context_name
        if context_name is not None:
            given[context_name] = ctx
        call: Callable[..., Any] = self.fn
        return call(**given)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Types travel resolved: a function sent by value arrives without the names of its hints.
        return references.reduce(self, self.fn, FunctionTool) or (
            FunctionTool,
            (self.name, self.description, self.needs_approval, self.fn, self._parameters()),
        )


class StepTool(Tool):
    """A step as a tool with one argument, `input`. Each call is a child context of its own."""

    __slots__ = ("_made", "step")

    step: Step[Any, Any]
    _made: Arguments

    def __init__(self, name: str, description: str, step: Step[Any, Any]) -> None:
        Tool.__init__(self, name, description, False, True)
        self._set("step", step)
        taken = Parameters({"input": str}, frozenset({"input"}), {}, "ctx")
        self._set("_made", Arguments(name, taken))

    def _arguments(self) -> Arguments:
        return self._made

    def invoke(self, kwargs: Mapping[str, Any], ctx: Any) -> Any:
        return ctx.spawn(self.step, kwargs["input"])

    def __reduce_ex__(self, protocol: Any) -> Any:
        return StepTool, (self.name, self.description, self.step)


class ToolDecorator:
    """What `@nr.tool(...)` with options gives: it turns one function into a tool."""

    __slots__ = ("_description", "_name", "_needs_approval")

    def __init__(self, name: str | None, description: str | None, needs_approval: bool) -> None:
        self._name = name
        self._description = description
        self._needs_approval = needs_approval

    def __call__(self, fn: Callable[P, R], /) -> FunctionTool[P, R]:
        return self.make(fn, sys._getframe(1).f_locals)

    def make(self, fn: Callable[P, R], scope: Mapping[str, Any]) -> FunctionTool[P, R]:
        """Make the tool; `scope` are the names where the function was written."""
        if not callable(fn) or isinstance(fn, Tool):
            raise ConfigError(
                "INVALID_TOOL", f"a tool cannot be made of {fn!r}", "Give a typed function."
            )
        if isinstance(fn, RunCode):
            raise ConfigError("INVALID_TOOL", f"{fn!r} is a step", "Offer it with nr.as_tool.")
        name = name_of(fn) if self._name is None else _legal(self._name)
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ConfigError(
                "INVALID_TOOL", f"tool {name!r} is a generator", "A tool returns one value."
            )
        check_signature(name, fn)
        description = _doc(fn) if self._description is None else self._description
        return FunctionTool(name, description, self._needs_approval, fn, names_used(fn, scope))


@overload
def tool(fn: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, needs_approval: bool = False
) -> ToolDecorator: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool = False,
) -> Any:
    """Make a tool of a typed function, with `@tool` or `@tool(name=..., ...)`.

    The schema comes from the type hints (`Annotated[str, Field(description=...)]` describes a
    parameter, one without a hint may be anything), the description from the docstring. A parameter
    annotated `Context` receives the context and is not shown to the model. With `needs_approval`
    each call waits until a person allows it.
    """
    decorate = ToolDecorator(name, description, needs_approval)
    return decorate if fn is None else decorate.make(fn, sys._getframe(1).f_locals)


def as_tool(
    step: Step[Any, Any], name: str | None = None, description: str | None = None
) -> StepTool:
    """Offer a step as a tool with one text argument, `input`.

    Each call runs the step in a child context and gives its output. The name is the step's id
    unless given, the description its function's docstring or a sentence with the id.
    """
    if not isinstance(step, Step):
        raise ConfigError(
            "INVALID_STEP", f"as_tool was given {step!r}, not a step", "Use @nr.tool on functions."
        )
    if description is None:
        written = _doc(step.execute) if isinstance(step, RunCode) else ""
        description = written or f"Give {step.id} a task and get its answer."
    return StepTool(step.id if name is None else _legal(name), description, step)


def _legal(name: object) -> str:
    if not isinstance(name, str) or not LEGAL_NAME.fullmatch(name):
        raise ConfigError(
            "INVALID_TOOL_NAME",
            f"{name!r} cannot be a tool's name",
            "Use 1 to 64 letters, digits, _ and -, which is what providers accept.",
        )
    return name


def _doc(fn: Callable[..., Any]) -> str:
    own = getattr(fn, "__doc__", None)
    if own is None or own == getattr(type(fn), "__doc__", None):
        return ""
    return inspect.cleandoc(own)


def tool_output(value: Any) -> str:
    """A result as the text a model gets: text as it is, everything else as JSON.

    What JSON writes as one text (dates, enums of texts, unknown objects by their repr) is given
    without quotes.
    """
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    written = to_json_bytes(value)
    if written.startswith(b'"'):
        return str(from_json(written))
    return written.decode()
