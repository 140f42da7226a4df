"""What MCP servers answer, as agents get it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

__all__ = ["McpRecord", "Page", "Sample", "ToolResult", "record", "tool_result"]

T = TypeVar("T")

_HUMP = re.compile(r"_([a-z0-9])")


class McpRecord(dict[str, Any]):
    """A JSON object as the server sent it, whose keys are attributes too.

    ``tool["inputSchema"]``, ``tool.inputSchema`` and ``tool.input_schema`` are the same. A key that
    was not sent is an AttributeError, `get` gives a default; names that dict itself uses, such as
    ``items``, are reached with brackets only.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for key in _spellings(name):
                if key in self:
                    return self[key]
        known = ", ".join(map(str, self)) or "no keys at all"
        raise AttributeError(f"this record has no {name!r}; it has {known}", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a record's keys are set with brackets", name=name, obj=self)

    def __dir__(self) -> Iterator[str]:
        yield from super().__dir__()
        yield from (key for key in self if key.isidentifier())

    def __copy__(self) -> McpRecord:
        return McpRecord(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> McpRecord:
        return McpRecord({key: copy.deepcopy(value, memo) for key, value in self.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return McpRecord, (dict(self),)


def _spellings(name: str) -> tuple[str, ...]:
    camel = _HUMP.sub(lambda found: found[1].upper(), name)
    meta = ("_meta",) if name == "meta" else ()
    return (name, camel, *meta)


def record(value: Any) -> Any:
    """JSON data with every object in it an `McpRecord`."""
    if isinstance(value, Mapping):
        return McpRecord({key: record(each) for key, each in value.items()})
    if isinstance(value, list):
        return [record(each) for each in value]
    return value


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing; ``next_cursor`` is None on the last one."""

    items: list[T]
    next_cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class Sample:
    """One kept example of a resource; ``index`` counts from 0 per (client, uri).

    ``data`` is the whole sample as it was given, ``name`` and ``content`` what it had under those
    keys. ``created_at`` is seconds since the epoch.
    """

    index: int
    name: str | None
    uri: str
    content: Any
    data: dict[str, Any]
    created_at: float


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The whole answer of a tool.

    ``content`` has the blocks as the server sent them, unknown kinds included; ``is_error`` says
    that the tool failed; ``structured`` is the machine-readable answer or None. ``value`` is the
    convenient form: ``structured`` where there is one, else the content decoded (text that is JSON
    parsed, a picture as {type, data, mimeType}; one block alone, several as a list, nothing or an
    empty text None).
    """

    content: list[McpRecord] = field(default_factory=list)
    is_error: bool = False
    structured: Any = None
    value: Any = None

    @property
    def text(self) -> str:
        """The text blocks, joined by line ends."""
        return "\n".join(block["text"] for block in self.content if _is_text(block))


def tool_result(raw: Any, wrapped: bool | None = None) -> ToolResult:
    """A `ToolResult` of a tools/call answer; what is malformed in it is kept, not refused.

    `wrapped` says whether an answer that is no object was put into {"result": answer}, as the SDK
    does; None finds out by the content, which then repeats the bare answer.
    """
    answer = raw if isinstance(raw, Mapping) else {}
    listed = answer.get("content")
    blocks = listed if isinstance(listed, list) else [] if listed is None else [listed]
    content = [_block(each) for each in blocks]
    structured = record(answer.get("structuredContent"))
    failed = answer.get("isError") is True
    return ToolResult(content, failed, structured, _value(content, structured, wrapped))


def _block(raw: Any) -> McpRecord:
    """A content block as it came; what is no object at all is boxed."""
    if isinstance(raw, Mapping):
        block: McpRecord = record(raw)
        return block
    return McpRecord({"type": "unknown", "value": raw})


def _is_text(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _value(content: Sequence[McpRecord], structured: Any, wrapped: bool | None) -> Any:
    if structured is None:
        return _content_value(content)
    if not isinstance(structured, Mapping) or set(structured) != {"result"}:
        return structured
    bare = structured["result"]
    if wrapped is None:
        wrapped = _repeats(content, bare)
    return bare if wrapped else structured


def _content_value(content: Sequence[McpRecord]) -> Any:
    values = [_decoded(block) for block in content]
    return values[0] if len(values) == 1 else values or None


def _repeats(content: Sequence[McpRecord], bare: Any) -> bool:
    """Whether the content says just what `bare` says, a list as one block per entry."""
    said = bare if isinstance(bare, list) else [] if bare is None else [bare]
    one = len(content) == 1 and _says(content[0], bare)
    return one or (len(said) == len(content) and all(map(_says, content, said)))


def _says(block: McpRecord, value: Any) -> bool:
    if isinstance(value, str):
        return _is_text(block) and block["text"] in (value, json.dumps(value))
    return bool(_decoded(block) == value)


def _decoded(block: McpRecord) -> Any:
    kind = block.get("type")
    if _is_text(block):
        return _text_value(block["text"])
    if kind == "image":
        return McpRecord({key: block[key] for key in ("type", "data", "mimeType") if key in block})
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        return block["resource"]
    return block


def _text_value(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return record(json.loads(text))
    except (ValueError, RecursionError):
        return text
