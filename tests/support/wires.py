"""Canned provider answers on both wires, as dicts and as the bytes of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

CHAT_USAGE: Json = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 0},
}
RESPONSES_USAGE: Json = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 120,
}


def dump(value: Any) -> str:
    """JSON on one line, not escaped where JSON permits raw characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sse(payloads: Iterable[Json | str], *, named: bool = False, done: bool = False) -> bytes:
    """A stream; strings go out as they are, `named` writes each payload's type as event name."""
    out = []
    for payload in payloads:
        if isinstance(payload, str):
            out.append(payload)
            continue
        name = f"event: {payload['type']}\n" if named else ""
        out.append(f"{name}data: {dump(payload)}\n\n")
    if done:
        out.append("data: [DONE]\n\n")
    return "".join(out).encode()


# Chat Completions


def chat_chunk(delta: Json | None = None, finish: str | None = None, **extra: Any) -> Json:
    """One chunk of a stream with one choice."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "fake-1",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
        **extra,
    }


def chat_usage(usage: Json | None = None) -> Json:
    """The last chunk: no choice, only usage."""
    return {**chat_chunk(), "choices": [], "usage": CHAT_USAGE if usage is None else usage}


def chat_text(*pieces: str, finish: str = "stop", usage: Json | None = None) -> bytes:
    """The stream of a text answer."""
    chunks = [chat_chunk({"role": "assistant", "content": ""})]
    chunks += [chat_chunk({"content": piece}) for piece in pieces]
    return sse([*chunks, chat_chunk({}, finish), chat_usage(usage)], done=True)


def chat_stream(*deltas: Json, finish: str | None = "stop") -> bytes:
    """The stream of given deltas, a finish chunk, usage and the end mark."""
    chunks = [chat_chunk(delta) for delta in deltas]
    return sse([*chunks, chat_chunk({}, finish), chat_usage()], done=True)


def call_delta(
    index: int | None = 0,
    id: str | None = None,
    name: str | None = None,
    arguments: Any = None,
) -> Json:
    """A delta with one fragment of a tool call; None leaves a key out."""
    function = {"name": name, "arguments": arguments}
    fragment: Json = {"function": {k: v for k, v in function.items() if v is not None}}
    if index is not None:
        fragment["index"] = index
    if id is not None:
        fragment |= {"id": id, "type": "function"}
    return {"tool_calls": [fragment]}


def chat_call(name: str, arguments: str, id: str = "call_1") -> bytes:
    """The stream of an answer that calls one tool."""
    return chat_stream(call_delta(0, id, name, ""), call_delta(0, arguments=arguments))


def chat_whole(message: Json, finish: str = "stop") -> Json:
    """The answer without streaming."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake-1",
        "choices": [choice],
        "usage": CHAT_USAGE,
    }


# Responses


def message_item(text: str, id: str = "msg_1", **extra: Any) -> Json:
    """An assistant message as a provider writes it."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": id,
        "status": "completed",
        "role": "assistant",
        "content": [part],
        **extra,
    }


def refusal_item(text: str) -> Json:
    """A message that holds a refusal only."""
    return {**message_item(""), "content": [{"type": "refusal", "refusal": text}]}


def call_item(name: str, arguments: str, call_id: str = "call_1", id: str = "fc_1") -> Json:
    """A function call as a provider writes it."""
    return {
        "type": "function_call",
        "id": id,
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def response_whole(items: Sequence[Json], status: str = "completed", **extra: Any) -> Json:
    """A response object."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "fake-1",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": list(items),
        "usage": RESPONSES_USAGE,
        **extra,
    }


def responses_events(items: Sequence[Json], end: Json | None = None, pieces: int = 1) -> list[Json]:
    """All events of a response with these items; `end` replaces the terminal event."""
    start = response_whole([], status="in_progress", usage=None)
    events: list[Json] = [
        {"type": "response.created", "response": start},
        {"type": "response.in_progress", "response": start},
    ]
    for index, item in enumerate(items):
        events += _item_events(index, item, pieces)
    events.append(end or {"type": "response.completed", "response": response_whole(items)})
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


def responses_stream(
    items: Sequence[Json], end: Json | None = None, pieces: int = 1, named: bool = True
) -> bytes:
    """The stream of a response with these items."""
    return sse(responses_events(items, end, pieces), named=named)


def _item_events(index: int, item: Json, pieces: int) -> list[Json]:
    at = {"output_index": index, "item_id": item.get("id", "")}
    started = {**item, "status": "in_progress"}
    middle: list[Json] = []
    if item["type"] == "message":
        started["content"] = []
        for number, part in enumerate(item["content"]):
            where = {**at, "content_index": number}
            field = "refusal" if part["type"] == "refusal" else "text"
            kind = "refusal" if field == "refusal" else "output_text"
            middle.append({"type": "response.content_part.added", **where, "part": part})
            for piece in _cut(part[field], pieces):
                middle.append({"type": f"response.{kind}.delta", **where, "delta": piece})
            middle.append({"type": f"response.{kind}.done", **where, field: part[field]})
            middle.append({"type": "response.content_part.done", **where, "part": part})
    elif item["type"] == "function_call":
        started["arguments"] = ""
        prefix = "response.function_call_arguments"
        for piece in _cut(item["arguments"], pieces):
            middle.append({"type": f"{prefix}.delta", **at, "delta": piece})
        middle.append({"type": f"{prefix}.done", **at, "arguments": item["arguments"]})
    return [
        {"type": "response.output_item.added", "output_index": index, "item": started},
        *middle,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _cut(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[i : i + size] for i in range(0, len(text), size)]
