"""The Chat Completions wire: requests as messages, answers from streamed choice deltas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from noetic_ray.canonical import to_json_bytes
from noetic_ray.items import (
    ContentPart,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputFile,
    InputImage,
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Refusal,
)
from noetic_ray.models.cache_hints import Hint, key_of, marked
from noetic_ray.models.failures import AttemptFailed, broken, from_error_object, read_event
from noetic_ray.models.protocol import ModelEvents, ModelReply, ModelRequest
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


class Chat:
    """The wire. `official` says the server is OpenAI's own, which knows newer names."""

    path = "/chat/completions"

    def __init__(self, official: bool = False) -> None:
        self._official = official

    def body(self, request: ModelRequest, hint: Hint = None) -> bytes:
        """The JSON body of a request.

        A setting `stream_options` of None leaves it out, for servers that do not know it.
        """
        settings = settings_of(request)
        marks = hint == "mark"
        body: Json = {"model": request.model, "messages": self._messages(request, marks)}
        if hint == "key" and request.cache_key:
            body["prompt_cache_key"] = key_of(request.cache_key)
        tools = [_tool(*each) for each in _specs(request)] + list(settings.pop("tools", ()))
        if tools:
            body["tools"] = tools
        if request.output is not None:
            format = output_format(request.output)
            body["response_format"] = {"type": "json_schema", "json_schema": format}
        limit = take_max_tokens(settings)
        if limit is not None:
            body[self._limit_name(limit[0])] = limit[1]
        choice = named_tool(settings.pop("tool_choice", None))
        if choice is not None:
            named = {"type": "function", "function": {"name": choice}}
            body["tool_choice"] = choice if is_mode(choice) else named
        options = request.settings.get("stream_options", {})
        if options is not None:
            settings["stream_options"] = {"include_usage": True, **options}
        return to_json_bytes({**body, **settings, "stream": True})

    def reader(self, request: ModelRequest, events: ModelEvents) -> ChatReader:
        """A reader for one attempt."""
        return ChatReader(request, events)

    def _limit_name(self, given: str) -> str:
        if given == "max_completion_tokens":
            return given
        return "max_completion_tokens" if self._official else "max_tokens"

    def _messages(self, request: ModelRequest, marks: bool) -> list[Json]:
        developer = "developer" if self._official else "system"
        transcript = _Transcript(developer)
        if request.instructions:
            transcript.say("system", request.instructions)
        stop = request.cache_boundary if marks else None
        if stop == 0:
            transcript.mark()
        for number, item in enumerate(request.items, 1):
            transcript.add(item)
            if number == stop:
                transcript.mark()
        return transcript.messages()


def _specs(request: ModelRequest) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
    return ((tool.name, tool.description, tool.parameters) for tool in request.tools)


def _tool(name: str, description: str, parameters: Mapping[str, Any]) -> Json:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


class _Transcript:
    """Messages in order, where each message with calls is followed by their outputs."""

    def __init__(self, developer: str) -> None:
        self._developer = developer
        self._turns: list[tuple[Json, list[Json]]] = []
        self._callers: dict[str, list[Json]] = {}

    def messages(self) -> list[Json]:
        return [each for turn, outputs in self._turns for each in (turn, *outputs)]

    def mark(self) -> None:
        """Say that nothing up to the last message changes from request to request."""
        for turn, _ in reversed(self._turns):
            content = turn["content"]
            if turn["role"] != "assistant":
                turn["content"] = marked(content, "text")
            if turn["content"] is not content:
                return

    def say(self, role: str, content: Any) -> None:
        self._turns.append(({"role": role, "content": content}, []))

    def add(self, item: Item) -> None:
        """Add one item; reasoning and what this API has no form for is left out."""
        if isinstance(item, MessageItem):
            if item.role == "assistant":
                self._assistant(spoken(item))
            else:
                role = self._developer if item.role == "developer" else item.role
                self.say(role, _content(item.content))
        elif isinstance(item, FunctionCallItem):
            self._call(item)
        elif isinstance(item, FunctionCallOutputItem):
            output = {"role": "tool", "tool_call_id": item.call_id, "content": item.output}
            outputs = self._callers.get(item.call_id)
            if outputs is None:
                self._turns.append((output, []))
            else:
                outputs.append(output)

    def _assistant(self, text: str) -> None:
        if not text:
            return
        turn = self._unanswered()
        if turn is None:
            self.say("assistant", text)
        else:
            turn["content"] = (turn["content"] or "") + text

    def _call(self, item: FunctionCallItem) -> None:
        function = {"name": item.name, "arguments": _arguments(item.arguments)}
        call = {"id": item.call_id, "type": "function", "function": function}
        if not self._turns or self._turns[-1][0]["role"] != "assistant" or self._turns[-1][1]:
            self.say("assistant", None)
        turn, outputs = self._turns[-1]
        turn.setdefault("tool_calls", []).append(call)
        self._callers[item.call_id] = outputs

    def _unanswered(self) -> Json | None:
        if self._turns:
            turn, outputs = self._turns[-1]
            if "tool_calls" in turn and not outputs:
                return turn
        return None


def _arguments(text: str) -> str:
    """Servers parse the arguments of past calls, so what is no JSON object is wrapped in one."""
    if not text.strip():
        return "{}"
    try:
        if isinstance(from_json(text), dict):
            return text
    except ValueError:
        pass
    return to_json_bytes({"malformed_arguments": text}).decode()


def _content(parts: Sequence[ContentPart]) -> Any:
    if len(parts) == 1:
        text = getattr(parts[0], "text", None)
        if text is not None:
            return text
    return [_part(part) for part in parts]


def _part(part: ContentPart) -> Json:
    if isinstance(part, InputImage):
        return {"type": "image_url", "image_url": {"url": part.image_url, "detail": part.detail}}
    if isinstance(part, InputFile):
        file = {"file_id": part.file_id, "file_data": part.file_data or part.file_url}
        file["filename"] = part.filename or ("file" if part.file_data else None)
        return {"type": "file", "file": {k: v for k, v in file.items() if v is not None}}
    return {"type": "text", "text": part.refusal if isinstance(part, Refusal) else part.text}


class _Call:
    """A call under construction."""

    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, index: Any) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.arguments = Pieces()

    def is_whole(self) -> bool:
        try:
            return isinstance(from_json(str(self.arguments)), dict)
        except ValueError:
            return False


class ChatReader:
    """Reads one streamed answer."""

    __slots__ = (
        "_calls",
        "_emit",
        "_finish",
        "_id",
        "_items",
        "_model",
        "_reasoning",
        "_refusal",
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
        self._id: str | None = None
        self._model: str | None = None
        self._finish: str | None = None
        self._text = Pieces()
        self._refusal = Pieces()
        self._reasoning = Pieces()
        self._calls: list[_Call] = []

    @property
    def complete(self) -> bool:
        return self.done or self._finish is not None

    @property
    def partial(self) -> str:
        return str(self._text)

    def feed(self, event: SseEvent) -> None:
        data = event.data
        if data.startswith(b"{"):
            self._chunk(read_event(data), event.name == b"error")
        elif data.strip() == b"[DONE]":
            self.done = True
        elif event.name == b"error":
            raise from_error_object(data.decode("utf-8", "replace"))

    def whole(self, payload: Json) -> None:
        """An answer that came in one piece although a stream was asked for."""
        self._chunk(payload, False)
        self.done = True

    def reply(self) -> ModelReply:
        """The finished answer. Raises AttemptFailed when it ended early or is empty."""
        if not self.complete:
            raise broken("it ended before the answer did")
        items, warnings = self._built()
        if is_empty(items) and not warnings:
            raise AttemptFailed("the model answered with nothing", 200)
        usage = round_usage(self.usage, "prompt_tokens", "completion_tokens")
        finished = (self._finish,) if self._finish else ()
        return ModelReply(items, usage, None, self._model, warnings, self._id, finished)

    def _chunk(self, chunk: Json, is_error: bool) -> None:
        error = chunk.get("error")
        if error or is_error or chunk.get("object") == "error":
            raise from_error_object(error or chunk)
        self._model = chunk.get("model") or self._model
        self._id = chunk.get("id") or self._id
        usage = chunk.get("usage")
        if usage:
            self.usage = usage
        if tier := chunk.get("service_tier"):
            self.tier = tier
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue
            delta = choice.get("delta") or choice.get("message")
            if delta:
                self._delta(delta)
            finish = choice.get("finish_reason")
            if finish:
                self._finish = finish
                if finish == "error":
                    raise from_error_object(choice.get("error") or "finish_reason error")

    def _delta(self, delta: Json) -> None:
        content = delta.get("content")
        if content:
            self._content(content)
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and isinstance(thought, str):
            self._emit("reasoning", self._reasoning.add(thought))
        refusal = delta.get("refusal")
        if refusal:
            self._emit("refusal", self._refusal.add(refusal))
        calls = delta.get("tool_calls")
        if calls:
            for place, fragment in enumerate(calls):
                index = fragment.get("index")
                if index is None and len(calls) > 1:
                    index = place
                self._fragment(index, fragment)
        legacy = delta.get("function_call")
        if legacy:
            self._fragment(0, {"function": legacy})

    def _content(self, content: Any) -> None:
        if isinstance(content, str):
            self._emit("text", self._text.add(content))
            return
        for part in content:
            if text := part.get("text"):
                self._emit("text", self._text.add(text))
            elif refusal := part.get("refusal"):
                self._emit("refusal", self._refusal.add(refusal))

    def _fragment(self, index: Any, fragment: Json) -> None:
        function = fragment.get("function") or {}
        id, name = fragment.get("id"), function.get("name")
        call = self._call_for(index, id, name)
        if call.id is None or (call.id == "" and id):
            call.id = id
        if name and name != call.name:
            call.name += name
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = to_json_bytes(arguments).decode()
        if arguments:
            self._emit("arguments", call.arguments.add(arguments))

    def _call_for(self, index: Any, id: str | None, name: str | None) -> _Call:
        """The call a fragment belongs to.

        Normally its index says so. Servers also leave it out, or give each call the same one and
        tell them apart by id: then another id and a name begin a new call, unless the call so far
        is unfinished, which means that the server changes the id with each fragment.
        """
        same = [call for call in self._calls if index is None or call.index == index]
        if id:
            same = [call for call in same if call.id == id] or same
        if same:
            call = same[-1]
            another = bool(id and name and call.id and call.id != id)
            if not another and index is None and not id and name and call.name:
                another = name != call.name or call.is_whole()
            if not (another and (not call.arguments or call.is_whole())):
                return call
        call = _Call(index)
        self._calls.append(call)
        return call

    def _built(self) -> tuple[list[Item], list[str]]:
        items: list[Item] = []
        if self._reasoning:
            thought = ReasoningText(text=str(self._reasoning))
            items.append(ReasoningItem(content=(thought,)))
        refused = str(self._refusal)
        if self._finish == "content_filter":
            refused = refused or FILTERED
        parts: list[ContentPart] = []
        if self._text:
            parts.append(OutputText(text=str(self._text)))
        if refused:
            parts.append(Refusal(refusal=refused))
        if parts:
            items.append(MessageItem(role="assistant", content=parts))
        if not refused:
            ids = CallIds(self._items)
            for call in self._calls:
                items.append(tool_call(ids, call.id, call.name, str(call.arguments)))
        if self._finish == "length" and not refused:
            return items, [cut_off(items, "length")]
        return items, []
