"""The kinds of step, as plain data. The builders make them; the engine runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias

from typing_extensions import ParamSpec, TypeVar

from noetic_ray.channels import Channel
from noetic_ray.errors import ConfigError
from noetic_ray.placement import Placement
from noetic_ray.signatures import check_callback, is_async
from noetic_ray.steps import references
from noetic_ray.steps.base import In, Out, Retry, Step, is_step, one_of, seconds, whole
from noetic_ray.until import Predicate

if TYPE_CHECKING:
    from noetic_ray.context import Context
    from noetic_ray.layers.base import ContextLayer
    from noetic_ray.layers.window import Window
    from noetic_ray.tools import Tool

P = ParamSpec("P", default=...)
R = TypeVar("R", covariant=True, default=Any)
Mode: TypeAlias = Literal["all", "settle", "race"]
OnRefusal: TypeAlias = Literal["raise", "return"]
OnEveryError: TypeAlias = Literal["continue", "raise"]
OnLoopError: TypeAlias = Literal["retry", "skip", "abort"]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RunCode(Step[In, Out], Generic[In, Out, P, R]):
    """A function as a step. Calling the step calls the function.

    `context_name` is set when the function takes the context as a keyword of that name.
    """

    kind: ClassVar[str] = "run_code"
    execute: Callable[..., Any]
    retry: Retry | None
    takes_context: bool
    is_async: bool
    context_name: str | None = None

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise ConfigError(
                "INVALID_RETRY",
                f"the retry of step {self.id!r} is {self.retry!r}",
                "Give nr.Retry(attempts=..., delay=...).",
            )

    def invoke(self, input: Any, ctx: Any) -> Any:
        """Call the function the way it wants: its value, or a coroutine when `is_async`."""
        if self.context_name is not None:
            return self.execute(input, **{self.context_name: ctx})
        return self.execute(input, ctx) if self.takes_context else self.execute(input)

    if TYPE_CHECKING:

        def __call__(self, input: In, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:

        def __call__(self, *args, **kwargs):
            return self.execute(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return references.reduce(self, self.execute, RunCode) or object.__reduce_ex__(
            self, protocol
        )


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class CallModel(Step[In, Out]):
    """A conversation with a model, tool rounds included.

    `tools` None offers every tool of the harness, an empty tuple none. `layer_tools` are the ids
    of the layers whose functions are offered; an empty tuple all that are active, None none.
    `output` is a type the answer is validated against.
    """

    kind: ClassVar[str] = "call_model"
    model: str
    instructions: str | Callable[[Context], str] | None
    tools: tuple[Tool, ...] | None
    layer_tools: tuple[str, ...] | None
    output: Any
    settings: Mapping[str, Any]
    emit: bool
    max_rounds: int
    window: Window | None
    output_retries: int
    on_refusal: OnRefusal

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        what = f"of step {self.id!r}"
        _check_model(self.model, what)
        _check_instructions(self.instructions, what)
        whole("INVALID_MAX_ROUNDS", f"max_rounds {what}", self.max_rounds, least=1)
        whole("INVALID_OUTPUT_RETRIES", f"output_retries {what}", self.output_retries, least=0)
        one_of("UNKNOWN_MODE", f"on_refusal {what}", self.on_refusal, OnRefusal)
        if not all(isinstance(name, str) for name in self.settings):
            raise ConfigError(
                "INVALID_SETTINGS", f"settings {what} have a name that is no text: {self.settings}"
            )


def _check_model(model: object, what: str) -> None:
    if model is None or (isinstance(model, str) and not model.strip()):
        raise ConfigError(
            "MISSING_MODEL",
            f"the model {what} is missing",
            "Name the model as the provider knows it.",
        )
    if not isinstance(model, str):
        raise ConfigError(
            "INVALID_MODEL",
            f"the model {what} is {model!r}",
            "Give its name; the provider goes to Harness(model_provider=...).",
        )


def _check_instructions(instructions: object, what: str) -> None:
    if instructions is None or isinstance(instructions, str):
        return
    check_callback(f"instructions {what}", instructions, "ctx")
    if callable(instructions) and is_async(instructions):
        raise ConfigError(
            "INVALID_INSTRUCTIONS",
            f"instructions {what} are an async function",
            "Give a text, or a plain function of the context that returns one.",
        )


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class InvokeTool(Step[In, Out]):
    """A tool as a step. `args`, when given, are used in place of the input."""

    kind: ClassVar[str] = "invoke_tool"
    tool: Tool
    args: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        if self.args is not None and not isinstance(self.args, Mapping):
            raise ConfigError(
                "INVALID_ARGS",
                f"the args of step {self.id!r} are {self.args!r}",
                "Give a dict of argument names and values.",
            )


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Conditional(Step[In, Out]):
    """Runs the step its route chooses; None passes the input through."""

    kind: ClassVar[str] = "conditional"
    route: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        check_callback(f"route of step {self.id!r}", self.route, "input", "ctx")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class InParallel(Step[In, Out]):
    """Runs paths side by side, each in a child context. `paths` may be computed from the input."""

    kind: ClassVar[str] = "in_parallel"
    paths: tuple[Step[Any, Any], ...] | Callable[[Any, Any], Any]
    mode: Mode
    merge: Callable[[Any, Any], Any] | None
    concurrency: int | None
    placement: Placement | None

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        what = f"of step {self.id!r}"
        if isinstance(self.paths, tuple):
            for path in self.paths:
                is_step("INVALID_STEP", f"a path {what}", path)
        else:
            check_callback(f"paths {what}", self.paths, "input", "ctx")
        one_of("UNKNOWN_MODE", f"mode {what}", self.mode, Mode)
        if self.merge is not None:
            check_callback(f"merge {what}", self.merge, "results", "ctx")
        if self.concurrency is not None:
            whole("INVALID_CONCURRENCY", f"concurrency {what}", self.concurrency, least=1)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Spawn(Step[In, Out]):
    """Runs a step in a child context. `timeout` is in seconds; the child is aborted after it."""

    kind: ClassVar[str] = "spawn"
    child: Step[In, Out]
    layers: tuple[ContextLayer[Any], ...] | None
    timeout: float | None
    placement: Placement | None

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        code = "MISSING_CHILD_STEP" if self.child is None else "INVALID_STEP"
        is_step(code, f"the child of step {self.id!r}", self.child)
        if self.timeout is not None:
            what = f"timeout of step {self.id!r}"
            seconds("INVALID_TIMEOUT", what, self.timeout, above_zero=True)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class WithContext(Step[In, Out]):
    """Runs a step in the same context, with more layers active while it runs."""

    kind: ClassVar[str] = "with_context"
    child: Step[In, Out]
    layers: tuple[ContextLayer[Any], ...]

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        is_step("INVALID_STEP", f"the child of step {self.id!r}", self.child)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Loop(Step[In, Out]):
    """Repeats its steps, each output the next input, until its predicate says stop."""

    kind: ClassVar[str] = "loop"
    steps: tuple[Step[Any, Any], ...]
    until: Predicate
    max_iterations: int
    max_history: int
    prepare_next: Callable[[Any, Any, Any], Any] | None
    on_error: Callable[[Any, Any], Any] | None
    inbox: Channel[Any] | None
    park_timeout: float | None

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        what = f"of step {self.id!r}"
        if not self.steps:
            raise ConfigError(
                "MISSING_LOOP_BODY",
                f"the body {what} is missing",
                "Give the step to repeat, or a list of steps.",
            )
        for each in self.steps:
            is_step("INVALID_STEP", f"a body {what}", each)
        _check_until(self.until, what)
        whole("INVALID_MAX_ITERATIONS", f"max_iterations {what}", self.max_iterations, least=1)
        whole("INVALID_MAX_HISTORY", f"max_history {what}", self.max_history, least=0)
        if self.prepare_next is not None:
            check_callback(f"prepare_next {what}", self.prepare_next, "output", "verdict", "ctx")
        if self.on_error is not None:
            check_callback(f"on_error {what}", self.on_error, "error", "ctx")
        _check_channel(f"the inbox {what}", self.inbox)
        if self.park_timeout is not None:
            seconds("INVALID_TIMEOUT", f"park_timeout {what}", self.park_timeout)


def _check_until(until: object, what: str) -> None:
    if until is None:
        raise ConfigError(
            "MISSING_UNTIL_PREDICATE",
            f"the until {what} is missing",
            "Say when to stop: nr.until.max_steps(5), or nr.until.never() on purpose.",
        )
    if not isinstance(until, Predicate):
        raise ConfigError(
            "INVALID_UNTIL",
            f"the until {what} is {until!r}",
            "Call a factory, as in nr.until.no_tool_calls(), and combine with | and &.",
        )


def _check_channel(what: str, channel: object) -> None:
    if channel is not None and not isinstance(channel, Channel):
        raise ConfigError(
            "INVALID_CHANNEL", f"{what} is {channel!r}", "Give what nr.channel(...) returned."
        )


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class StepSequence(Step[In, Out]):
    """Runs steps one after the other, each output the next input; none gives the input back."""

    kind: ClassVar[str] = "sequence"
    steps: tuple[Step[Any, Any], ...]

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        for each in self.steps:
            is_step("INVALID_STEP", f"a part of step {self.id!r}", each)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Every(Step[In, Any]):
    """Runs a step now and then again and again, until its context is aborted.

    Between runs it waits `interval` seconds, more or less by up to `jitter`, never less than 0;
    a send to `wake` ends the wait early and consumes nothing.
    """

    kind: ClassVar[str] = "every"
    step: Step[In, Any]
    interval: float
    jitter: float
    wake: Channel[Any] | None
    on_error: OnEveryError

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        what = f"of step {self.id!r}"
        code = "MISSING_BODY_STEP" if self.step is None else "INVALID_STEP"
        is_step(code, f"the body {what}", self.step)
        seconds("INVALID_INTERVAL", f"interval {what}", self.interval, above_zero=True)
        seconds("INVALID_JITTER", f"jitter {what}", self.jitter)
        _check_channel(f"the wake channel {what}", self.wake)
        one_of("UNKNOWN_MODE", f"on_error {what}", self.on_error, OnEveryError)


def steps_of(what: str, steps: object) -> tuple[Any, ...]:
    """A step or an iterable of steps as a tuple. Raises ConfigError `INVALID_STEP`."""
    if steps is None:
        return ()
    if isinstance(steps, Step):
        return (steps,)
    if isinstance(steps, Sequence) and not isinstance(steps, str):
        return tuple(steps)
    raise ConfigError("INVALID_STEP", f"{what} is {steps!r}", "Give a step, or a list of steps.")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class MapStep(Step[Any, Any]):
    """One step over a sequence of inputs, a child context each: what `Harness.map` runs."""

    kind: ClassVar[str] = "map"
    step: Step[Any, Any]
    concurrency: int | None
    mode: Mode

    @classmethod
    def of(cls, step: Any, concurrency: int | None, on_error: str) -> MapStep:
        """Check what `Harness.map` was given."""
        is_step("INVALID_STEP", "what is mapped", step)
        if concurrency is not None:
            whole("INVALID_CONCURRENCY", "concurrency of map", concurrency, least=1)
        if on_error not in ("raise", "collect"):
            raise ConfigError(
                "UNKNOWN_MODE", f"on_error of map is {on_error!r}", "use 'raise' or 'collect'"
            )
        mode: Mode = "all" if on_error == "raise" else "settle"
        return cls(f"map {step.id}", step, concurrency, mode)
