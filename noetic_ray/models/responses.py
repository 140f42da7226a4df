"""The Responses wire: items go out much as they are and come back the same way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from noetic_ray.canonical import clean_text, to_json_bytes
from noetic_ray.errors import ItemSchemaMismatch
from noetic_ray.items import (
    ContentPart,
    ExtensionItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputFile,
    InputImage,
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    Refusal,
    parse_item,
)
from noetic_ray.models.cache_hints import Hint, key_of, marked
from noetic_ray.models.failures import AttemptFailed, broken, from_error_object, read_event
from noetic_ray.models.protocol import DeltaKind, ModelEvents, ModelReply, ModelRequest
from noetic_ray.models.sse import SseEvent
from noetic_ray.models.wire import (
    FILTERED,
    CallIds,
    Json,
    Pieces,
    cut_off,
    is_empty,
    is_mode,
    named_tool,
    output_format,
    round_usage,
    settings_of,
    spoken,
    take_max_tokens,
    tool_call,
)

#: Models that think and can give their thoughts encrypted, for the next request to carry.
_THINKERS = re.compile(r"^(?:openai/)?(?:o\d|gpt-[5-9](?!.*-chat)|codex)")
_ENCRYPTED = "reasoning.encrypted_content"
_STATUSES = frozenset({"in_progress", "completed", "incomplete", "failed"})
#: Extension items of these prefixes are the provider's own and are sent back to it.
_RETURNED = ("openai:", "openrouter:")
_DELTAS: dict[str, DeltaKind] = {
    "response.function_call_arguments.delta": "arguments",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.refusal.delta": "refusal",
}
#: Events that carry nothing the final items do not; the common ones are not even parsed.
_IGNORED = frozenset(
    {
        b"response.content_part.added",
        b"response.content_part.done",
        b"response.output_text.done",
        b"response.function_call_arguments.done",
        b"response.output_item.added",
        b"response.in_progress",
        b"response.created",
    }
)


class Responses:
    """The wire. Nothing is stored by the provider unless a setting says so."""

    path = "/responses"

    def body(self, request: ModelRequest, hint: Hint = None) -> bytes:
        """The JSON body of a request."""
        settings = settings_of(request)
        stop = request.cache_boundary if hint == "mark" else None
        body: Json = {"model": request.model, "input": _input(request, stop), "store": False}
        if hint == "key" and request.cache_key:
            body["prompt_cache_key"] = key_of(request.cache_key)
        if request.instructions:
            body["instructions"] = request.instructions
        tools = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
        tools += settings.pop("tools", ())
        if tools:
            body["tools"] = tools
        limit = take_max_tokens(settings)
        if limit is not None:
            body["max_output_tokens"] = limit[1]
        choice = named_tool(settings.pop("tool_choice", None))
        if choice is not None:
            named = {"type": "function", "name": choice}
            body["tool_choice"] = choice if is_mode(choice) else named
        _put_text(body, settings, request)
        _put_reasoning(body, settings, request.model)
        return to_json_bytes({**body, **settings, "stream": True})

    def reader(self, request: ModelRequest, events: ModelEvents) -> ResponsesReader:
        """A reader for one attempt."""
        return ResponsesReader(request, events)


def _input(request: ModelRequest, stop: int | None) -> list[Json]:
    """The items, with a mark on the last message of the first `stop`."""
    input: list[Json] = []
    for number, item in enumerate(request.items, 1):
        wire = _wire(item)
        if wire is not None:
            input.append(wire)
        if number == stop:
            _mark(input)
    return input


def _mark(input: list[Json]) -> None:
    for wire in reversed(input):
        content = wire.get("content")
        if wire.get("type") == "message" and wire.get("role") != "assistant":
            wire["content"] = marked(content, "input_text")
            if wire["content"] is not content:
                return


def _put_text(body: Json, settings: Json, request: ModelRequest) -> None:
    text: Json = {}
    if "verbosity" in settings:
        text["verbosity"] = settings.pop("verbosity")
    if request.output is not None:
        text["format"] = {"type": "json_schema", **output_format(request.output)}
    text |= settings.pop("text", {})
    if text:
        body["text"] = text


def _put_reasoning(body: Json, settings: Json, model: str) -> None:
    reasoning: Json = {}
    if "reasoning_effort" in settings:
        reasoning["effort"] = settings.pop("reasoning_effort")
    reasoning |= settings.pop("reasoning", {})
    if reasoning:
        body["reasoning"] = reasoning
    include = list(settings.pop("include", ()))
    if (reasoning or _THINKERS.match(model)) and _ENCRYPTED not in include:
        include.append(_ENCRYPTED)
    if include:
        body["include"] = include


def _wire(item: Item) -> Json | None:
    """An item as input, or None when the provider has no use for it.

    Ids are left out where the API allows it: ours are not in its form, and its own mean nothing
    to it when it stores nothing.
    """
    if isinstance(item, MessageItem):
        return _message(item)
    if isinstance(item, FunctionCallItem):
        return {
            "type": "function_call",
            "call_id": item.call_id,
            "name": item.name,
            "arguments": item.arguments,
        }
    if isinstance(item, FunctionCallOutputItem):
        return {"type": "function_call_output", "call_id": item.call_id, "output": item.output}
    if isinstance(item, ReasoningItem):
        return _reasoning(item)
    if isinstance(item, ExtensionItem):
        return _extension(item)
    wire = item.model_dump(exclude={"provider_id"}, exclude_none=True)
    return {**wire, "id": item.provider_id or item.id}


def _message(item: MessageItem) -> Json | None:
    if item.role != "assistant":
        return {"type": "message", "role": item.role, "content": _content(item.content)}
    text = spoken(item)
    if not text:
        return None
    wire = {"type": "message", "role": "assistant", "content": text}
    phase = (item.model_extra or {}).get("phase")
    return wire if phase is None else {**wire, "phase": phase}


def _content(parts: Sequence[ContentPart]) -> Any:
    if len(parts) == 1:
        text = getattr(parts[0], "text", None)
        if text is not None:
            return text
    return [_part(part) for part in parts]


def _part(part: ContentPart) -> Json:
    if isinstance(part, InputImage):
        return {"type": "input_image", "image_url": part.image_url, "detail": part.detail}
    if isinstance(part, InputFile):
        file = {"file_id": part.file_id, "file_url": part.file_url, "file_data": part.file_data}
        file["filename"] = part.filename or ("file" if part.file_data else None)
        return {"type": "input_file", **{k: v for k, v in file.items() if v is not None}}
    return {"type": "input_text", "text": part.refusal if isinstance(part, Refusal) else part.text}


def _reasoning(item: ReasoningItem) -> Json | None:
    """Thoughts go back when they carry something; a summary alone refers to what was not stored."""
    if not item.encrypted_content and not item.content:
        return None
    wire: Json = {"type": "reasoning", "summary": [_thought(p) for p in item.summary or ()]}
    if item.content:
        wire["content"] = [_thought(part) for part in item.content]
    if item.encrypted_content:
        wire["encrypted_content"] = item.encrypted_content
    id = item.provider_id or item.id
    return {**wire, "id": id} if id.startswith("rs_") else wire


def _thought(part: ContentPart) -> Json:
    return part.model_dump(exclude_none=True)


def _extension(item: ExtensionItem) -> Json | None:
    if not item.type.startswith(_RETURNED):
        return None
    if item.type.startswith("openai:"):
        return item.data or None
    wire = item.model_dump(exclude={"provider_id", "data"} if not item.data else {"provider_id"})
    return {**wire, "id": item.provider_id or item.id}


class ResponsesReader:
    """Reads one streamed answer."""

    __slots__ = (
        "_done_items",
        "_emit",
        "_end",
        "_items",
        "_response",
        "_text",
        "done",
        "tier",
        "usage",
    )

    def __init__(self, request: ModelRequest, events: ModelEvents) -> None:
        self.done = False
        self.usage: Mapping[str, Any] | None = None
        self.tier: str | None = None
        self._emit = events.delta
        self._items = request.items
        self._response: Json = {}
        self._end = ""
        self._text = Pieces()
        self._done_items: dict[int, Json] = {}

    @property
    def complete(self) -> bool:
        return self.done

    @property
    def partial(self) -> str:
        return str(self._text)

    def feed(self, event: SseEvent) -> None:
        name, data = event
        if name in _IGNORED:
            return
        if data.startswith(b"{"):
            payload = read_event(data)
            self._event(payload, payload.get("type") or name.decode("latin-1"))
        elif name == b"error":
            raise from_error_object(data.decode("utf-8", "replace"))

    def whole(self, payload: Json) -> None:
        """An answer that came in one piece although a stream was asked for."""
        if payload.get("status") == "failed" or payload.get("object") == "error":
            raise from_error_object(payload.get("error") or payload)
        error = payload.get("error")
        if error:
            raise from_error_object(error)
        self._finish(payload)

    def reply(self) -> ModelReply:
        """The finished answer. Raises AttemptFailed when it ended early or is empty."""
        if not self.done:
            raise broken("it ended before the answer did")
        items, warnings = self._built()
        if is_empty(items) and not warnings:
            raise AttemptFailed("the model answered with nothing", 200)
        usage = round_usage(self.usage, "input_tokens", "output_tokens")
        response = self._response
        finished = self._end or response.get("status")
        return ModelReply(
            items,
            usage,
            None,
            response.get("model"),
            warnings,
            response.get("id"),
            (finished,) if finished else (),
        )

    def _event(self, payload: Json, kind: str) -> None:
        if kind == "response.output_text.delta":
            if delta := payload.get("delta"):
                self._emit("text", self._text.add(delta))
        elif kind in _DELTAS:
            if delta := payload.get("delta"):
                self._emit(_DELTAS[kind], clean_text(delta))
        elif kind == "response.output_item.done":
            index = payload.get("output_index")
            place = index if isinstance(index, int) else len(self._done_items)
            self._done_items[place] = payload.get("item") or {}
        elif kind in ("response.completed", "response.incomplete", "response.done"):
            self._finish(payload.get("response") or {})
        elif kind == "response.failed":
            response = payload.get("response") or {}
            raise from_error_object(response.get("error") or "the response failed")
        elif kind == "error" or ("error" in payload and "type" not in payload):
            raise from_error_object(payload.get("error") or {**payload, "type": None})

    def _finish(self, response: Json) -> None:
        self._response = response
        self.usage = response.get("usage")
        self.tier = response.get("service_tier")
        details = response.get("incomplete_details") or {}
        self._end = details.get("reason") or ""
        if not self._end and response.get("status") == "incomplete":
            self._end = "unknown reason"
        self.done = True

    def _built(self) -> tuple[list[Item], list[str]]:
        raw = self._response.get("output")
        if not raw:
            raw = [self._done_items[place] for place in sorted(self._done_items)]
        ids = CallIds(self._items)
        items = [_item(each, ids) for each in raw]
        if not items and self._text:
            # Some gateways send the text as deltas only.
            part = OutputText(text=self.partial)
            items.append(MessageItem(role="assistant", content=(part,)))
        if self._end == "content_filter":
            return _filtered(items), []
        if self._end:
            return items, [cut_off(items, self._end)]
        return items, []


def _filtered(items: list[Item]) -> list[Item]:
    """Without the calls, and with a refusal when there is none yet."""
    kept = [item for item in items if item.type != "function_call"]
    last = kept[-1] if kept else None
    if not isinstance(last, MessageItem):
        refusal = Refusal(refusal=FILTERED)
        return [*kept, MessageItem(role="assistant", content=(refusal,))]
    if not any(isinstance(part, Refusal) for part in last.content):
        said = tuple(part for part in last.content if getattr(part, "text", ""))
        content = (*said, Refusal(refusal=FILTERED))
        kept[-1] = last.model_copy(update={"content": content, "status": "completed"})
    return kept


def _item(raw: Json, ids: CallIds) -> Item:
    """An output item as one of ours; what we have no model for becomes an extension item."""
    kind = raw.get("type")
    fields = {**raw, "status": _status(raw.get("status"))}
    if kind == "function_call":
        return _call(fields, ids)
    if kind == "reasoning":
        fields["content"] = raw.get("content") or ()
    elif kind == "message":
        fields["content"] = raw.get("content") or ()
        fields.setdefault("role", "assistant")
    try:
        return parse_item(fields)
    except ItemSchemaMismatch:
        return ExtensionItem(type=f"openai:{kind or 'unknown'}", data=raw)


def _call(fields: Json, ids: CallIds) -> Item:
    """A call; arguments that are no text, or null, are written as text."""
    arguments = fields.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else to_json_bytes(arguments).decode()
    standard = ("type", "call_id", "name", "arguments", "provider_call_id")
    more = {name: value for name, value in fields.items() if name not in standard}
    if not more.get("id"):
        more.pop("id", None)
    return tool_call(ids, fields.get("call_id"), fields.get("name") or "", arguments, **more)


def _status(status: Any) -> str:
    """Provider statuses without a counterpart belong to items that are finished by now."""
    return status if status in _STATUSES and status != "in_progress" else "completed"
