"""What the two OpenAI wires have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from pydantic_core import from_json

from noetic_ray.canonical import clean_text, to_json_bytes
from noetic_ray.items import FunctionCallItem, Item, MessageItem, OutputText, Refusal, new_id
from noetic_ray.models.cache_hints import Hint
from noetic_ray.models.protocol import ModelReply, ModelRequest, OutputSpec
from noetic_ray.models.sse import SseEvent
from noetic_ray.models.strict import strict_schema
from noetic_ray.usage import RoundUsage

Json = dict[str, Any]

FILTERED = "The provider's content filter stopped this answer."
TRUNCATED = "The answer was cut off by the output token limit ({})."
_MAX_TOKENS = ("max_output_tokens", "max_completion_tokens", "max_tokens")
_NEED_TOOLS = ("tool_choice", "parallel_tool_calls")
#: What servers call the tokens read from their cache and those written to it.
_READ = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
_WRITTEN = ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")


class ReplyReader(Protocol):
    """Reads one streamed answer. Its methods raise AttemptFailed.

    `done` is set by the event that ends the stream, `complete` already when nothing of the
    answer itself can follow.
    """

    done: bool
    usage: Mapping[str, Any] | None
    tier: str | None

    @property
    def complete(self) -> bool: ...
    @property
    def partial(self) -> str: ...
    def feed(self, event: SseEvent) -> None: ...
    def whole(self, payload: Json) -> None: ...
    def reply(self) -> ModelReply: ...


class Wire(Protocol):
    """One of the two APIs: a path, a body, a reader."""

    path: str

    def body(self, request: ModelRequest, hint: Hint = None) -> bytes: ...
    def reader(self, request: ModelRequest, events: Any) -> ReplyReader: ...


class Pieces:
    """A text that arrives in pieces, which may cut a surrogate pair in two."""

    __slots__ = ("_held", "_parts")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._held = ""

    def add(self, piece: str) -> str:
        """Take a piece and return what can be shown now."""
        if self._held:
            piece, self._held = self._held + piece, ""
        if not piece.isascii():
            if "\ud800" <= piece[-1] <= "\udbff":
                piece, self._held = piece[:-1], piece[-1]
            piece = clean_text(piece)
        self._parts.append(piece)
        return piece

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __str__(self) -> str:
        return "".join(self._parts) + clean_text(self._held)


# Requests


def settings_of(request: ModelRequest) -> Json:
    """The settings that are set, without those that a request with no tools must not carry."""
    settings = {name: value for name, value in request.settings.items() if value is not None}
    if not request.tools and not settings.get("tools"):
        for name in _NEED_TOOLS:
            settings.pop(name, None)
    return settings


def take_max_tokens(settings: MutableMapping[str, Any]) -> tuple[str, Any] | None:
    """Remove every way to say the output limit; the one that counts, with the name it had."""
    given = [(name, settings.pop(name)) for name in _MAX_TOKENS if name in settings]
    return given[0] if given else None


def named_tool(choice: Any) -> Any:
    """The tool name a tool choice asks for in either API's form, or the choice unchanged."""
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        function = choice.get("function")
        return function.get("name") if isinstance(function, Mapping) else choice.get("name")
    return choice


def is_mode(choice: Any) -> bool:
    """Whether a tool choice is no single function."""
    return not isinstance(choice, str) or choice in ("auto", "none", "required")


def output_format(output: OutputSpec) -> Json:
    """Name, schema and strictness of a structured output; strict when the schema allows it."""
    schema, strict = _strict(to_json_bytes(dict(output.schema)))
    return {"name": output.name, "schema": schema, "strict": strict}


@lru_cache(maxsize=128)
def _strict(schema: bytes) -> tuple[Json, bool]:
    plain = from_json(schema)
    strict = strict_schema(plain)
    return (plain, False) if strict is None else (strict, True)


def spoken(message: MessageItem) -> str:
    """An assistant message as one text."""
    parts = message.content
    return "".join(
        part.text
        if isinstance(part, OutputText)
        else (part.refusal if isinstance(part, Refusal) else getattr(part, "text", ""))
        for part in parts
    )


# Replies


def count(value: Any) -> int | None:
    """A token count as reported, None for anything that is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 1e15 else None


def round_usage(
    usage: Mapping[str, Any] | None, input_key: str, output_key: str
) -> RoundUsage | None:
    """Usage from a provider's object; None when neither figure stands in it."""
    if not isinstance(usage, Mapping):
        return None
    given, made = count(usage.get(input_key)), count(usage.get(output_key))
    if given is None and made is None:
        return None
    details = usage.get(input_key.replace("tokens", "tokens_details"))
    places = (details if isinstance(details, Mapping) else {}, usage)
    return RoundUsage(given or 0, made or 0, _first(places, _READ), _first(places, _WRITTEN))


def _first(places: Iterable[Mapping[str, Any]], names: Sequence[str]) -> int | None:
    """The first count under one of these names; those of a later place come after."""
    counts = (count(place.get(name)) for place in places for name in names)
    return next((n for n in counts if n is not None), None)


class CallIds:
    """Gives the calls of a reply ids that are new in their conversation."""

    __slots__ = ("_items", "_taken")

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._taken: set[str] | None = None

    def settle(self, given: str | None) -> tuple[str, str | None]:
        """The id to use, and the provider's own when that is another."""
        if self._taken is None:
            calls = (item for item in self._items if isinstance(item, FunctionCallItem))
            self._taken = {call.call_id for call in calls}
        kept = given is not None and given != "" and given not in self._taken
        id = given if kept and given is not None else f"call_{new_id().replace('-', '')}"
        self._taken.add(id)
        return id, None if kept else given


def tool_call(ids: CallIds, given: str | None, name: str, arguments: str, **more: Any) -> Item:
    """A call item with an id that is unique in its conversation."""
    call_id, provider_call_id = ids.settle(given)
    return FunctionCallItem(
        call_id=call_id,
        name=name,
        arguments=arguments,
        provider_call_id=provider_call_id,
        **more,
    )


def cut_off(items: list[Item], reason: str) -> str:
    """Mark the last item as incomplete, making an empty one if need be; returns the warning."""
    if items:
        items[-1] = items[-1].model_copy(update={"status": "incomplete"})
    else:
        empty = OutputText(text="")
        items.append(MessageItem(role="assistant", content=(empty,), status="incomplete"))
    return TRUNCATED.format(reason)


def is_empty(items: Iterable[Item]) -> bool:
    """Whether an answer has nothing in it for anybody: no text, no refusal, no call."""
    return all(
        item.type == "reasoning" or (isinstance(item, MessageItem) and not spoken(item))
        for item in items
    )
