"""Items: the entries of a context's log, in the wire names of the Open Responses format.

Models are frozen. Input may use camelCase names, unknown fields are kept, an absent id becomes a
UUIDv7 and an absent status ``completed``. Text is stored in the form that can be written as UTF-8
(see :mod:`noetic_ray.canonical`), free-form data in the form JSON reads back, so an item equals
what its JSON gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import uuid_utils
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    field_validator,
)
from pydantic_core import core_schema
from pydantic_core import to_json as _write

from noetic_ray.canonical import canonical, clean_text, from_json, to_json_bytes
from noetic_ray.errors import ConfigError, ItemSchemaMismatch

if TYPE_CHECKING:
    from pydantic import ValidationInfo

__all__ = [
    "ContentPart",
    "ExtensionItem",
    "FileSearchCallItem",
    "FunctionCallItem",
    "FunctionCallOutputItem",
    "ImageGenerationCallItem",
    "InputFile",
    "InputImage",
    "InputText",
    "Item",
    "ItemBase",
    "ItemTypes",
    "MessageItem",
    "OutputText",
    "ReasoningItem",
    "ReasoningText",
    "Refusal",
    "SummaryText",
    "WebSearchCallItem",
    "assistant_message",
    "check_extension",
    "check_item_types",
    "developer_message",
    "item_from_json",
    "item_json",
    "item_text",
    "last_assistant_text",
    "new_id",
    "parse_item",
    "system_message",
    "user_message",
]

Role: TypeAlias = Literal["user", "assistant", "system", "developer"]
Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]
#: Models of extension items by type: ``{"prefix:name": Model}``.
ItemTypes: TypeAlias = Mapping[str, type[BaseModel]]


def new_id() -> str:
    """A UUIDv7: unique, and in order of time."""
    return str(uuid_utils.uuid7())


class _Utf8:
    """A str that UTF-8 can hold; checked natively, repaired in Python only when it must be."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        # A length limit makes the validator look at the text, which fails on lone surrogates.
        checked = core_schema.str_schema(min_length=0)
        repaired = core_schema.no_info_after_validator_function(
            clean_text, core_schema.str_schema()
        )
        return core_schema.union_schema(
            [checked, repaired],
            mode="left_to_right",
            serialization=core_schema.simple_ser_schema("str"),
            custom_error_type="string_type",
        )


def _is_none(value: Any) -> bool:
    return value is None


def _also(name: str) -> AliasChoices:
    head, *tail = name.split("_")
    return AliasChoices(name, head + "".join(part.title() for part in tail))


Text = Annotated[str, _Utf8()]
Data = Annotated[Any, AfterValidator(canonical)]
_T = TypeVar("_T")
#: A field that is left out of the JSON while it is None.
Maybe = Annotated[_T | None, Field(exclude_if=_is_none)]


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        defer_build=True,
        ser_json_bytes="base64",
        ser_json_inf_nan="strings",
    )
    if not TYPE_CHECKING:
        __pydantic_extra__: dict[str, Data]


class OutputText(_Frozen):
    """What a model wrote, in a message of role assistant."""

    type: Literal["output_text"] = "output_text"
    text: Text
    annotations: Maybe[Data] = None
    logprobs: Maybe[Data] = None


class InputText(_Frozen):
    """What a model is given to read, in a message of any other role."""

    type: Literal["input_text"] = "input_text"
    text: Text


class InputImage(_Frozen):
    """``image_url`` is an address or a ``data:`` URL."""

    type: Literal["input_image"] = "input_image"
    image_url: Text = Field(validation_alias=_also("image_url"))
    detail: Literal["auto", "low", "high"] = "auto"


class InputFile(_Frozen):
    """A file by id, by address, or as a ``data:`` URL in ``file_data``."""

    type: Literal["input_file"] = "input_file"
    file_id: Maybe[Text] = Field(default=None, validation_alias=_also("file_id"))
    file_url: Maybe[Text] = Field(default=None, validation_alias=_also("file_url"))
    file_data: Maybe[Text] = Field(default=None, validation_alias=_also("file_data"))
    filename: Maybe[Text] = None


class Refusal(_Frozen):
    """A model's words for not answering."""

    type: Literal["refusal"] = "refusal"
    refusal: Text


class ReasoningText(_Frozen):
    """What a model thought, where the provider shows it."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: Text


class SummaryText(_Frozen):
    """A provider's summary of what a model thought."""

    type: Literal["summary_text"] = "summary_text"
    text: Text


ContentPart: TypeAlias = (
    OutputText | InputText | InputImage | InputFile | Refusal | ReasoningText | SummaryText
)
_Part = Annotated[ContentPart, Field(discriminator="type")]


class ItemBase(_Frozen):
    """What all items share. ``provider_id`` is the id a provider gave, when it was taken."""

    id: Text = Field(default_factory=new_id, min_length=1)
    status: Status = "completed"
    provider_id: Maybe[Text] = Field(default=None, validation_alias=_also("provider_id"))


class MessageItem(ItemBase):
    """``content`` may be given as one text: output of the assistant, input of anybody else."""

    type: Literal["message"] = "message"
    role: Role
    content: tuple[_Part, ...]

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            role: Role,
            content: str | Sequence[ContentPart | Mapping[str, Any]],
            id: str = ...,
            status: Status = ...,
            **extra: Any,
        ) -> None: ...

    @field_validator("content", mode="before")
    @classmethod
    def _one_text(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        assistant = info.data.get("role") == "assistant"
        return ({"type": "output_text" if assistant else "input_text", "text": value},)


class FunctionCallItem(ItemBase):
    """A tool call. ``arguments`` is JSON text as the model wrote it, possibly malformed."""

    type: Literal["function_call"] = "function_call"
    call_id: Text = Field(validation_alias=_also("call_id"))
    name: Text
    arguments: Text
    provider_call_id: Maybe[Text] = Field(default=None, validation_alias=_also("provider_call_id"))


class FunctionCallOutputItem(ItemBase):
    """What a tool gave for the call with the same ``call_id``, as text."""

    type: Literal["function_call_output"] = "function_call_output"
    call_id: Text = Field(validation_alias=_also("call_id"))
    output: Text


class ReasoningItem(ItemBase):
    """``content`` and ``summary`` may each be given as one text."""

    type: Literal["reasoning"] = "reasoning"
    content: tuple[_Part, ...]
    summary: Maybe[tuple[_Part, ...]] = None
    encrypted_content: Maybe[Text] = Field(
        default=None, validation_alias=_also("encrypted_content")
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            content: str | Sequence[ContentPart | Mapping[str, Any]],
            summary: str | Sequence[ContentPart | Mapping[str, Any]] | None = None,
            encrypted_content: str | None = None,
            id: str = ...,
            status: Status = ...,
            **extra: Any,
        ) -> None: ...

    @field_validator("content", mode="before")
    @classmethod
    def _one_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return ({"type": "reasoning_text", "text": value},)
        return () if value is None else value

    @field_validator("summary", mode="before")
    @classmethod
    def _one_summary(cls, value: Any) -> Any:
        return ({"type": "summary_text", "text": value},) if isinstance(value, str) else value


class WebSearchCallItem(ItemBase):
    """A search the provider made; ``action`` is its search, open_page or find_in_page."""

    type: Literal["web_search_call"] = "web_search_call"
    action: Maybe[Data] = None


class FileSearchCallItem(ItemBase):
    """A search in files the provider keeps, made by the provider."""

    type: Literal["file_search_call"] = "file_search_call"
    queries: tuple[Text, ...] = ()
    results: Maybe[Data] = None


class ImageGenerationCallItem(ItemBase):
    """``result`` is the image in base64, or None when there is none."""

    type: Literal["image_generation_call"] = "image_generation_call"
    result: Text | None = None


class ExtensionItem(ItemBase):
    """An item of your own: ``type`` is ``prefix:name``, ``data`` any JSON object."""

    type: Annotated[str, Field(pattern=r"^[^:\s]+:\S+$")]
    data: Annotated[dict[str, Any], AfterValidator(canonical)] = Field(default_factory=dict)


Item: TypeAlias = (
    MessageItem
    | FunctionCallItem
    | FunctionCallOutputItem
    | ReasoningItem
    | WebSearchCallItem
    | FileSearchCallItem
    | ImageGenerationCallItem
    | ExtensionItem
)

_MODELS: dict[str, type[Item]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionCallOutputItem,
    "reasoning": ReasoningItem,
    "web_search_call": WebSearchCallItem,
    "file_search_call": FileSearchCallItem,
    "image_generation_call": ImageGenerationCallItem,
}
_CATEGORIES = {"function_call": "toolCalls", "function_call_output": "toolResults"}


def parse_item(
    raw: Mapping[str, Any] | Item,
    *,
    extension_types: ItemTypes | None = None,
    strict: bool = False,
) -> Item:
    """Turn a dict into an item; an item is only checked and comes back as it is.

    Only ``id`` and ``status`` may be absent. A ``prefix:name`` item must fit its model in
    ``extension_types``; ``strict`` refuses one without a model, ``openrouter:`` ones excepted.
    Raises ItemSchemaMismatch.
    """
    item = raw if isinstance(raw, Item) else _parse(raw)
    if isinstance(item, ExtensionItem) and (strict or extension_types):
        check_extension(item, extension_types or {}, strict)
    return item


def _parse(raw: Any) -> Item:
    if not isinstance(raw, Mapping):
        raise ItemSchemaMismatch("items", None, f"a mapping is needed, not {type(raw).__name__}")
    kind = raw.get("type")
    if not isinstance(kind, str) or not kind:
        raise ItemSchemaMismatch("items", None, "type is missing or no text")
    model = _MODELS.get(kind)
    if model is None:
        if ":" not in kind:
            known = ", ".join(_MODELS)
            raise ItemSchemaMismatch("items", kind, f"known types are {known} and prefix:name")
        model = ExtensionItem
    given = {k: v for k, v in raw.items() if not (k in ("id", "status") and v in (None, ""))}
    try:
        return model.model_validate(given)
    except ValidationError as wrong:
        raise ItemSchemaMismatch(_category(raw), kind, _said(wrong)) from None


def _category(raw: Mapping[str, Any]) -> str:
    if raw.get("type") == "message" and raw.get("role") == "developer":
        return "developerMessages"
    return _CATEGORIES.get(str(raw.get("type")), "items")


def _said(wrong: ValidationError) -> str:
    errors = wrong.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in errors[:3]]
    return "; ".join(shown)


def check_item_types(types: ItemTypes | None) -> dict[str, type[BaseModel]]:
    """A copy of ``{"prefix:name": Model}``, or ConfigError when it is something else."""
    for name, model in (types or {}).items():
        if not isinstance(name, str) or name.count(":") < 1 or name in _MODELS:
            raise ConfigError(
                "INVALID_ITEM_TYPE",
                f"{name!r} cannot be the type of an extension item.",
                "Name it prefix:name, such as 'acme:ticket'.",
            )
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise ConfigError(
                "INVALID_ITEM_TYPE",
                f"item type {name!r} needs a pydantic model, not {model!r}.",
                "Give a subclass of pydantic.BaseModel.",
            )
    return dict(types or {})


def check_extension(item: ExtensionItem, types: ItemTypes, strict: bool) -> None:
    """Hold an extension item against its model; a gate only, the item stays as it is.

    A model with a ``data`` field, and one for items without data, describes the whole item; any
    other describes ``data``. Raises ItemSchemaMismatch.
    """
    model = types.get(item.type)
    if model is None:
        if strict and not item.type.startswith("openrouter:"):
            raise ItemSchemaMismatch("items", item.type, "this type is not in item_types")
        return
    whole = "data" in model.model_fields or "data" not in item.model_fields_set
    try:
        model.model_validate(item.model_dump() if whole else item.data)
    except ValidationError as wrong:
        raise ItemSchemaMismatch("items", item.type, _said(wrong)) from None


def item_json(item: Item) -> bytes:
    """The item's canonical JSON; fields that are None are left out."""
    try:
        return _write(item)
    except Exception:
        return to_json_bytes(item)


def item_from_json(data: bytes | str) -> Item:
    """Read what :func:`item_json` wrote. Raises ItemSchemaMismatch when it is no item."""
    try:
        raw = from_json(data)
    except ValueError as wrong:
        raise ItemSchemaMismatch("items", None, f"not JSON: {wrong}") from None
    return parse_item(raw)


def user_message(text: str) -> MessageItem:
    """A message from the user."""
    return MessageItem(role="user", content=text)


def assistant_message(text: str) -> MessageItem:
    """A message the model wrote, for a conversation to begin with."""
    return MessageItem(role="assistant", content=text)


def system_message(text: str) -> MessageItem:
    """Instructions that stand in the log."""
    return MessageItem(role="system", content=text)


def developer_message(text: str) -> MessageItem:
    """Instructions of the program to the model, which stand in the log."""
    return MessageItem(role="developer", content=text)


def _spoken(part: ContentPart) -> str:
    if isinstance(part, Refusal):
        return part.refusal
    return "" if isinstance(part, InputImage | InputFile) else part.text


def item_text(item: Item) -> str:
    """What a reader would see: a message's texts and refusals, reasoning (else its summary), a
    tool's output; empty for other items."""
    if isinstance(item, MessageItem):
        return "".join(map(_spoken, item.content))
    if isinstance(item, ReasoningItem):
        return "".join(map(_spoken, item.content or item.summary or ()))
    return item.output if isinstance(item, FunctionCallOutputItem) else ""


def last_assistant_text(items: Sequence[Item]) -> str:
    """The output text of the last assistant message, empty when there is none."""
    for item in reversed(items):
        if isinstance(item, MessageItem) and item.role == "assistant":
            return "".join(part.text for part in item.content if isinstance(part, OutputText))
    return ""
