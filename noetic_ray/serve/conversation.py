"""From the messages of a chat completion to an agent's input and the items before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from noetic_ray.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    InputFile,
    InputImage,
    InputText,
    Item,
    MessageItem,
    OutputText,
    Refusal,
)
from noetic_ray.serve.problems import Problem
from noetic_ray.serve.shapes import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    FilePart,
    ImagePart,
    Part,
    RefusalPart,
    TextPart,
    ToolMessage,
    UserMessage,
)

#: What would change the form of the answer, and the values that leave it as it is.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "stop": ([], ""),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": ([], ["text"]),
    "audio": (),
    "response_format": ({"type": "text"},),
}


def check_supported(asked: ChatRequest) -> None:
    """Raise Problem for a parameter that cannot be ignored."""
    given = {"n": asked.n, **(asked.model_extra or {})}
    for name, harmless in _REFUSED.items():
        value = given.get(name)
        if value is not None and not any(value is each or value == each for each in harmless):
            raise Problem(
                400,
                "invalid_request",
                f"`{name}` is not supported: the agent decides how it works and answers",
                code="unsupported_parameter",
                param=name,
            )


def take_apart(messages: Sequence[ChatMessage]) -> tuple[str | None, list[Item]]:
    """The agent's input, and what its log begins with.

    The input is the text of a user's message that comes last; any other last message stays with
    the rest, and the input is None.
    """
    *before, last = messages
    text = _plain_text(last.content) if isinstance(last, UserMessage) else None
    kept = messages if text is None else before
    return text, [item for at, message in enumerate(kept) for item in _items(message, at)]


def _plain_text(content: str | list[Part]) -> str | None:
    """Texts as one; None when there is anything else."""
    if isinstance(content, str):
        return content
    texts = [part.text for part in content if isinstance(part, TextPart)]
    return "\n".join(texts) if len(texts) == len(content) else None


def _items(message: ChatMessage, at: int) -> Iterator[Item]:
    if isinstance(message, ToolMessage):
        text = _plain_text(message.content)
        if text is None:
            raise _unfit(at, "a tool's message has texts only")
        yield FunctionCallOutputItem(call_id=message.tool_call_id, output=text)
    elif isinstance(message, AssistantMessage):
        parts = _said(message, at)
        if parts:
            yield MessageItem(role="assistant", content=parts)
        for call in message.tool_calls or ():
            yield FunctionCallItem(
                call_id=call.id, name=call.function.name, arguments=call.function.arguments
            )
    else:
        yield MessageItem(role=message.role, content=_given(message.content, at))


def _said(message: AssistantMessage, at: int) -> list[Any]:
    """What an assistant said; an empty text beside calls is no message."""
    content = message.content
    if isinstance(content, str):
        empty = not content and bool(message.tool_calls)
        content = [] if empty else [TextPart(type="text", text=content)]
    said: list[Any] = []
    for part in content or ():
        if isinstance(part, TextPart):
            said.append(OutputText(text=part.text))
        elif isinstance(part, RefusalPart):
            said.append(Refusal(refusal=part.refusal))
        else:
            raise _unfit(at, "an assistant's message has texts and refusals only")
    if message.refusal:
        said.append(Refusal(refusal=message.refusal))
    return said


def _given(content: str | list[Part], at: int) -> str | list[Any]:
    if isinstance(content, str):
        return content
    given: list[Any] = []
    for part in content:
        if isinstance(part, TextPart):
            given.append(InputText(text=part.text))
        elif isinstance(part, ImagePart):
            image = part.image_url
            given.append(InputImage(image_url=image.url, detail=image.detail or "auto"))
        elif isinstance(part, FilePart):
            file = part.file
            given.append(
                InputFile(file_id=file.file_id, file_data=file.file_data, filename=file.filename)
            )
        else:
            raise _unfit(at, "only an assistant's message has refusals")
    return given


def _unfit(at: int, why: str) -> Problem:
    param = f"messages.{at}.content"
    return Problem(422, "invalid_request", f"{param}: {why}", code="invalid_shape", param=param)
