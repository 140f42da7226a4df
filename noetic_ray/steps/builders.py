"""The functions that make steps. Wrong options raise ConfigError here, where they are written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, TypeAlias, TypeVar, overload

from typing_extensions import ParamSpec

from noetic_ray.channels import Channel
from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.placement import Placement
from noetic_ray.signatures import is_async, name_of, read_step
from noetic_ray.steps.base import Retry, Step
from noetic_ray.steps.kinds import (
    CallModel,
    Conditional,
    Every,
    InParallel,
    InvokeTool,
    Loop,
    Mode,
    OnEveryError,
    OnLoopError,
    OnRefusal,
    RunCode,
    Spawn,
    StepSequence,
    WithContext,
    steps_of,
)
from noetic_ray.until import Predicate, Verdict

if TYPE_CHECKING:
    from noetic_ray.context import Context
    from noetic_ray.layers.base import ContextLayer
    from noetic_ray.layers.window import Window
    from noetic_ray.tools import LayerTools, Tool

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
OnError: TypeAlias = "Callable[[NoeticError, Context], OnLoopError | Awaitable[OnLoopError]]"


class StepDecorator:
    """What `@nr.step(...)` with options gives: it turns one function into a step."""

    __slots__ = ("_id", "_retry")

    def __init__(self, id: str | None, retry: Retry | None) -> None:
        self._id = id
        self._retry = retry

    @overload
    def __call__(
        self, fn: Callable[Concatenate[A, P], Coroutine[Any, Any, B]], /
    ) -> RunCode[A, B, P, Coroutine[Any, Any, B]]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[A, P], B], /) -> RunCode[A, B, P, B]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        return run_code(name_of(fn) if self._id is None else self._id, fn, self._retry)


@overload
def step(
    fn: Callable[Concatenate[A, P], Coroutine[Any, Any, B]], /
) -> RunCode[A, B, P, Coroutine[Any, Any, B]]: ...
@overload
def step(fn: Callable[Concatenate[A, P], B], /) -> RunCode[A, B, P, B]: ...
@overload
def step(*, id: str | None = None, retry: Retry | None = None) -> StepDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    id: str | None = None,
    retry: Retry | None = None,
) -> Any:
    """Make a step of a function, with `@step` or `@step(id=..., retry=...)`.

    The id is the function's name unless given; the rest is as in `run_code`.
    """
    decorate = StepDecorator(id, retry)
    return decorate if fn is None else decorate(fn)


@overload
def run_code(
    id: str,
    execute: Callable[Concatenate[A, P], Coroutine[Any, Any, B]],
    retry: Retry | None = None,
) -> RunCode[A, B, P, Coroutine[Any, Any, B]]: ...
@overload
def run_code(
    id: str, execute: Callable[Concatenate[A, P], B], retry: Retry | None = None
) -> RunCode[A, B, P, B]: ...
def run_code(id: str, execute: Callable[..., Any], retry: Retry | None = None) -> Any:
    """A step made of a function `fn(input, ctx)` or `fn(input)`, sync or async.

    The context goes to the second positional parameter if that must be given, is annotated
    `Context` or is named `ctx`, or to a keyword-only parameter of the last two kinds. Without
    `retry` there is one attempt.
    """
    if isinstance(execute, RunCode):
        execute = execute.execute
    takes_context, name = read_step(execute, f"the function of step {id!r}")
    return RunCode(id, execute, retry, takes_context, is_async(execute), name)


@overload
def call_model(
    id: str,
    model: str = "",
    instructions: str | Callable[[Context], str] | None = None,
    tools: Sequence[Tool | LayerTools] | None = None,
    output: None = None,
    settings: Mapping[str, Any] | None = None,
    emit: bool = True,
    max_rounds: int = 32,
    window: Window | None = None,
    output_retries: int = 0,
    on_refusal: OnRefusal = "raise",
) -> CallModel[Any, str]: ...
@overload
def call_model(
    id: str,
    model: str = "",
    instructions: str | Callable[[Context], str] | None = None,
    tools: Sequence[Tool | LayerTools] | None = None,
    *,
    output: type[A],
    settings: Mapping[str, Any] | None = None,
    emit: bool = True,
    max_rounds: int = 32,
    window: Window | None = None,
    output_retries: int = 0,
    on_refusal: OnRefusal = "raise",
) -> CallModel[Any, A]: ...
@overload
def call_model(
    id: str,
    model: str = "",
    instructions: str | Callable[[Context], str] | None = None,
    tools: Sequence[Tool | LayerTools] | None = None,
    output: Any = None,
    settings: Mapping[str, Any] | None = None,
    emit: bool = True,
    max_rounds: int = 32,
    window: Window | None = None,
    output_retries: int = 0,
    on_refusal: OnRefusal = "raise",
) -> CallModel[Any, Any]: ...
def call_model(
    id: str,
    model: str = "",
    instructions: str | Callable[[Context], str] | None = None,
    tools: Sequence[Tool | LayerTools] | None = None,
    output: Any = None,
    settings: Mapping[str, Any] | None = None,
    emit: bool = True,
    max_rounds: int = 32,
    window: Window | None = None,
    output_retries: int = 0,
    on_refusal: OnRefusal = "raise",
) -> CallModel[Any, Any]:
    """A conversation with a model; it runs the tool calls the model asks for, round by round.

    `model` is the name sent to the provider, `settings` what else the request carries
    (temperature, max_output_tokens, tool_choice, parallel_tool_calls, ...). `tools` None offers
    all tools of the harness and of the active layers, a list only those in it (`nr.layer_tools`
    stands for layers). `window` overrides the harness's. With `output`, a type pydantic
    understands, the answer is validated and returned as such; `output_retries` is how often the
    model is asked again when it does not fit. `emit` False leaves the step's own events out. A
    refusal raises ModelRefused, or is the output with `on_refusal="return"`.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            "INVALID_SETTINGS", f"the settings of step {id!r} are {settings!r}", "Give a dict."
        )
    own, of_layers = (None, ()) if tools is None else _tools_of(tools, id)
    return CallModel(
        id,
        model,
        instructions,
        own,
        of_layers,
        output,
        dict(settings or {}),
        emit,
        max_rounds,
        _check_window(window, id),
        output_retries,
        on_refusal,
    )


def _tools_of(tools: object, id: str) -> tuple[tuple[Tool, ...], tuple[str, ...] | None]:
    """The tools of a list, and the layers whose functions it asks for."""
    from noetic_ray.tools import LayerTools, wire_names

    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise ConfigError(
            "INVALID_TOOL", f"the tools of step {id!r} are {tools!r}", "Give a list of tools."
        )
    asked = [each for each in tools if isinstance(each, LayerTools)]
    plain = [each for each in tools if not isinstance(each, LayerTools)]
    for each in plain:
        _check_tool(each, id)
    of_layers: tuple[str, ...] | None = None
    if asked:
        everything = any(not each.ids for each in asked)
        of_layers = () if everything else tuple(dict.fromkeys(i for a in asked for i in a.ids))
    return tuple(wire_names(plain).values()), of_layers


def _check_window(window: object, id: str) -> Window | None:
    if window is None:
        return None
    from noetic_ray.layers.window import Window

    if not isinstance(window, Window):
        raise ConfigError(
            "INVALID_WINDOW", f"the window of step {id!r} is {window!r}", "Give nr.Window(...)."
        )
    return window


def _check_tool(given: object, id: str) -> None:
    from noetic_ray.tools import Tool

    if isinstance(given, Tool):
        return
    if isinstance(given, Step):
        hint = "Offer a step with nr.as_tool(step), or run it with ctx.run."
    else:
        hint = "Make a tool of a typed function with @nr.tool."
    raise ConfigError("INVALID_TOOL", f"step {id!r} was given {given!r}, not a tool", hint)


def invoke_tool(id: str, tool: Tool, args: Mapping[str, Any] | None = None) -> InvokeTool[Any, Any]:
    """A tool as a step: the input is its arguments, as a dict, unless `args` are given here."""
    _check_tool(tool, id)
    return InvokeTool(id, tool, args)


def conditional(
    id: str,
    route: Callable[[A, Context], Step[A, B] | None]
    | Callable[[A, Context], Awaitable[Step[A, B] | None]],
) -> Conditional[A, B]:
    """Run the step `route(input, ctx)` returns; with None the input is the output."""
    return Conditional(id, route)


@overload
def in_parallel(
    id: str,
    paths: Sequence[Step[A, B]],
    mode: Literal["all"] = "all",
    merge: None = None,
    concurrency: int | None = None,
    placement: Placement | str | None = None,
) -> InParallel[A, list[B]]: ...
@overload
def in_parallel(
    id: str,
    paths: Sequence[Step[A, B]],
    mode: Literal["race"],
    merge: None = None,
    concurrency: int | None = None,
    placement: Placement | str | None = None,
) -> InParallel[A, B]: ...
@overload
def in_parallel(
    id: str,
    paths: Sequence[Step[Any, Any]] | Callable[[Any, Context], Any],
    mode: Mode = "all",
    merge: Callable[[Any, Context], Any] | None = None,
    concurrency: int | None = None,
    placement: Placement | str | None = None,
) -> InParallel[Any, Any]: ...
def in_parallel(
    id: str,
    paths: Any,
    mode: Mode = "all",
    merge: Callable[[Any, Context], Any] | None = None,
    concurrency: int | None = None,
    placement: Placement | str | None = None,
) -> InParallel[Any, Any]:
    """Run steps side by side, each in a child context whose log starts as this one's.

    `paths` is a list of steps or `fn(input, ctx)` that returns one; every path gets the input.
    `all` fails with ParallelFailed at the first failure and gives the outputs in path order,
    `settle` lets all end and gives SettleResults, `race` gives the first success and aborts the
    others. `merge(results, ctx)` turns what the mode gives into the output.
    """
    given = paths if callable(paths) else steps_of(f"paths of step {id!r}", paths)
    where = None if placement is None else Placement.of(placement)
    return InParallel(id, given, mode, merge, concurrency, where)


def spawn(
    id: str,
    child: Step[A, B] | None = None,
    layers: Sequence[ContextLayer[Any]] | None = None,
    timeout: float | None = None,
    placement: Placement | str | None = None,
) -> Spawn[A, B]:
    """Run a step in a child context with an empty log and a copy of the state.

    The child has the layers active where it is spawned, or `layers` in their place. After
    `timeout` seconds it is aborted and StepFailed raised, with cause type TimeoutError.
    """
    where = None if placement is None else Placement.of(placement)
    own = None if layers is None else _layers_of(layers, id)
    return Spawn(id, child, own, timeout, where)  # type: ignore[arg-type]


def with_context(
    id: str, child: Step[A, B], layers: Sequence[ContextLayer[Any]]
) -> WithContext[A, B]:
    """Run a step in the same context with `layers` active beside those that are.

    One with the id of an outer layer takes its place. They begin when they are first entered and
    end with the context; entered again in the same context they go on where they were.
    """
    return WithContext(id, child, _layers_of(layers, id))


def _layers_of(layers: object, id: str) -> tuple[ContextLayer[Any], ...]:
    from noetic_ray.layers.base import check_layers

    return check_layers(layers, f"step {id!r}")


@overload
def loop(
    id: str,
    steps: Step[A, B],
    until: Predicate | None = None,
    max_iterations: int = 1000,
    max_history: int = 100,
    prepare_next: Callable[[Any, Verdict, Context], Any] | None = None,
    on_error: OnError | None = None,
    inbox: Channel[Any] | None = None,
    park_timeout: float | None = 0.0,
) -> Loop[A, B]: ...
@overload
def loop(
    id: str,
    steps: Sequence[Step[Any, Any]] = (),
    until: Predicate | None = None,
    max_iterations: int = 1000,
    max_history: int = 100,
    prepare_next: Callable[[Any, Verdict, Context], Any] | None = None,
    on_error: OnError | None = None,
    inbox: Channel[Any] | None = None,
    park_timeout: float | None = 0.0,
) -> Loop[Any, Any]: ...
def loop(
    id: str,
    steps: Step[Any, Any] | Sequence[Step[Any, Any]] = (),
    until: Predicate | None = None,
    max_iterations: int = 1000,
    max_history: int = 100,
    prepare_next: Callable[[Any, Verdict, Context], Any] | None = None,
    on_error: OnError | None = None,
    inbox: Channel[Any] | None = None,
    park_timeout: float | None = 0.0,
) -> Loop[Any, Any]:
    """Repeat a step, or a list of steps, each output the next input, until `until` says stop.

    `prepare_next(output, verdict, ctx)` makes the next input. `on_error(error, ctx)` answers
    `retry` (the same input again), `skip` (go on from the last output) or `abort` (raise it); both
    count as iterations, and more than `max_iterations` is StepFailed. It is not asked about
    Cancelled and ConfigError. When `until` says stop, a
    message in `inbox`, waited for up to `park_timeout` seconds (None: for ever), keeps the loop
    going.
    """
    body = steps_of(f"the body of step {id!r}", steps)
    return Loop(
        id,
        body,
        until,  # type: ignore[arg-type]
        max_iterations,
        max_history,
        prepare_next,
        on_error,
        inbox,
        park_timeout,
    )


def sequence(id: str, steps: Sequence[Step[Any, Any]]) -> StepSequence[Any, Any]:
    """Run steps one after the other, each output the next input; none gives the input back."""
    return StepSequence(id, steps_of(f"the steps of step {id!r}", steps))


def every(
    id: str,
    step: Step[A, Any],
    interval: float,
    jitter: float = 0.0,
    wake: Channel[Any] | None = None,
    on_error: OnEveryError = "continue",
) -> Every[A]:
    """Run a step now, then again each `interval` seconds, give or take `jitter`, without end.

    It ends by an abort, by `ctx.complete`, or, with `on_error="raise"`, by an error; `continue`
    goes on after errors. A send to the channel `wake` ends a wait early; the value stays for the
    step to receive.
    """
    return Every(id, step, interval, jitter, wake, on_error)
