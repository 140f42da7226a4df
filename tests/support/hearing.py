"""An ear for a model round, and short ways to run one."""

from __future__ import annotations

from typing import Any

from noetic_ray.errors import NoeticError
from noetic_ray.items import Item, user_message
from noetic_ray.models import ModelReply, ModelRequest, OpenAI, ToolSpec
from noetic_ray.models.sse import SseParser
from noetic_ray.models.wire import ReplyReader, Wire

LOOKUP = ToolSpec(
    "lookup",
    "Look something up.",
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)


class Heard:
    """Keeps what a model round announced."""

    def __init__(self) -> None:
        self.deltas: list[tuple[str, str]] = []
        self.retries: list[tuple[int, float, NoeticError]] = []

    def delta(self, kind: str, text: str) -> None:
        self.deltas.append((kind, text))

    def retried(self, attempt: int, delay: float, error: NoeticError) -> None:
        self.retries.append((attempt, delay, error))

    def text(self, kind: str = "text") -> str:
        return "".join(text for heard, text in self.deltas if heard == kind)


def request(*items: Item, **options: Any) -> ModelRequest:
    """A request of one user message unless items are given."""
    options.setdefault("instructions", None)
    return ModelRequest("fake-1", items=list(items) or [user_message("hello")], **options)


def read(
    wire: Wire,
    stream: bytes,
    heard: Heard | None = None,
    asked: ModelRequest | None = None,
) -> ModelReply:
    """Read a whole stream without a server."""
    reader: ReplyReader = wire.reader(asked or request(), heard or Heard())
    parser = SseParser()
    for event in [*parser.feed(stream), *parser.finish()]:
        if not reader.done:
            reader.feed(event)
    return reader.reply()


def provider(url: str, api: Any = "chat", **options: Any) -> OpenAI:
    """A provider on a test server."""
    return OpenAI(base_url=url, api_key="sk-test-secret", api=api, **options)


def plain(reply: ModelReply) -> list[dict[str, Any]]:
    """The items of a reply without the ids we made, to compare replies."""
    dumped = [item.model_dump(exclude_none=True) for item in reply.items]
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in dumped]
