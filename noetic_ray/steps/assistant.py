"""Assistants: a model step with hooks before and after it, and the means to hand on to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from noetic_ray.errors import ConfigError
from noetic_ray.items import Item
from noetic_ray.signatures import check_callback
from noetic_ray.steps.base import In, Out, Step, is_step
from noetic_ray.steps.builders import call_model
from noetic_ray.steps.kinds import CallModel, OnRefusal
from noetic_ray.usage import TokenUsage

if TYPE_CHECKING:
    from noetic_ray.context import Context
    from noetic_ray.errors import NoeticError
    from noetic_ray.layers.window import Window
    from noetic_ray.tools import LayerTools, Tool

__all__ = [
    "Assistant",
    "AssistantReply",
    "Completion",
    "Delegated",
    "ToolOutcome",
    "assistant",
    "check_assistants",
]

#: What an assistant is given, and hooks may give as messages.
#: (A list of them is `Sequence[Any]`: mixed literals would fit nothing narrower.)
Said: TypeAlias = "str | Item | Mapping[str, Any] | Sequence[Any] | AssistantReply | None"
CreateHook: TypeAlias = "Callable[[Context, tuple[Item, ...]], Any]"
NextHook: TypeAlias = "Callable[[Context, tuple[Item, ...], Completion, list[ToolOutcome]], Any]"
DoneHook: TypeAlias = "Callable[[Context, AssistantReply | None, NoeticError | None], Any]"


@dataclass(frozen=True, slots=True)
class AssistantReply:
    """What an assistant gives. `items` is what its call added to the log, the input included.

    `text` is the model's last answer, `usage` covers the rounds of this call. `next` is the data
    of the hook `next` ({} when it returned an empty dict, None when it returned none), `metadata`
    its metadata.
    """

    text: str = ""
    items: tuple[Item, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    next: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model did in this call: its last text, the items and tokens of all its rounds."""

    text: str
    items: tuple[Item, ...]
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool call of this turn. `server` names the MCP server behind the tool, if there is one.

    `result` is the tool's output: a text, or the value when the text is JSON; None when the call
    failed. `error` then says why.
    """

    call_id: str
    server: str | None
    tool: str
    arguments: dict[str, Any]
    result: Any = None
    error: str | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Assistant(Step[In, Out]):
    """Create, model and tools, next, done. `call` is the model step in the middle."""

    kind: ClassVar[str] = "assistant"
    call: CallModel[Any, str]
    create: CreateHook | None
    next: NextHook | None
    done: DoneHook | None

    def __post_init__(self) -> None:
        Step.__post_init__(self)
        self._check("create", self.create, "ctx", "messages")
        self._check("next", self.next, "ctx", "messages", "completion", "tools")
        self._check("done", self.done, "ctx", "result", "error")

    def _check(self, hook: str, fn: object, *names: str) -> None:
        if fn is not None:
            check_callback(f"{hook} of step {self.id!r}", fn, *names)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Delegated(Step[In, Out]):
    """Runs a step that an assistant handed its work to, and gives an AssistantReply.

    It tells of itself in no events: the target does.
    """

    kind: ClassVar[str] = "delegated"
    emit: ClassVar[bool] = False
    target: Step[Any, Any]


def assistant(
    id: str,
    model: str = "",
    instructions: str | Callable[[Context], str] | None = None,
    tools: Sequence[Tool | LayerTools] | None = None,
    *,
    create: CreateHook | None = None,
    next: NextHook | None = None,
    done: DoneHook | None = None,
    settings: Mapping[str, Any] | None = None,
    max_rounds: int = 32,
    window: Window | None = None,
    on_refusal: OnRefusal = "raise",
) -> Assistant[Said, AssistantReply]:
    """A model step with hooks, each called once: create, then model and tools, next, done.

    The input is a text, an item, a dict (`{"role": ..., "content": ...}` or an item's) or a list
    of those; it is logged first. Of a reply the text counts. What the model has just said is not
    logged again. The first arguments and the last four are those of `call_model`. Hooks are sync
    or async; an error in one fails the step, after `done` has seen it.

    `create(ctx, messages)` gets the log and may return a dict with `messages`, `temperature`,
    `max_tokens` or `max_completion_tokens` (which wins) for this call, and `connector`, `locale`,
    `theme`, `route`, `metadata` (merged), which change `ctx.request` from then on. Empty texts
    and lists and None change nothing. Messages that begin with what is in the log add the rest to
    it; any others are what the model is shown instead of the log, in this call only.

    `next(ctx, messages, completion, tools)` gets the messages as the model was asked with them,
    its `Completion` and a list of `ToolOutcome`s, and may return a dict with `data`, `metadata`
    and `delegate`. With `delegate={"agent_id": ..., "messages": ...}` an assistant of the harness,
    or a step given in its place, answers instead, in a child context; `messages` default to those
    `next` was given. A step that is no assistant gets the last one's text as its input.

    `done(ctx, result, error)` runs at the end, with the reply or with the error, an exception of
    ours (neither, when `ctx.complete` ended the context). What it returns is ignored; an error in
    it fails a step that had succeeded. After an abort it runs as clean-up code does: what it
    awaits is cut short after a second.
    """
    call = call_model(
        id,
        model,
        instructions,
        tools,
        settings=settings,
        max_rounds=max_rounds,
        window=window,
        on_refusal=on_refusal,
    )
    return Assistant(id, call, create, next, done)


def check_assistants(given: Iterable[Step[Any, Any]]) -> dict[str, Step[Any, Any]]:
    """Assistants by their ids. Raises ConfigError `INVALID_ASSISTANT` or `DUPLICATE_ASSISTANT`."""
    if isinstance(given, str | Mapping | Step) or not isinstance(given, Iterable):
        raise ConfigError(
            "INVALID_ASSISTANT",
            f"the assistants of the harness are {given!r}",
            "Give a list of nr.assistant(...) steps.",
        )
    by_id: dict[str, Step[Any, Any]] = {}
    for each in given:
        is_step("INVALID_ASSISTANT", "an assistant of the harness", each)
        if by_id.setdefault(each.id, each) is not each:
            raise ConfigError(
                "DUPLICATE_ASSISTANT",
                f"two assistants of the harness have the id {each.id!r}",
                "Others delegate by id: give each its own.",
            )
    return by_id
