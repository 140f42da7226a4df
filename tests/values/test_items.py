from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ValidationError

from noetic_ray.errors import ConfigError, ItemSchemaMismatch
from noetic_ray.items import (
    ContentPart,
    ExtensionItem,
    FileSearchCallItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    ImageGenerationCallItem,
    InputFile,
    InputImage,
    InputText,
    Item,
    ItemBase,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Refusal,
    SummaryText,
    WebSearchCallItem,
    assistant_message,
    check_item_types,
    developer_message,
    item_from_json,
    item_json,
    item_text,
    last_assistant_text,
    parse_item,
    system_message,
    user_message,
)

EVERY_KIND: list[Item] = [
    user_message("hello"),
    assistant_message("hi"),
    MessageItem(
        role="user",
        content=[
            InputText(text="see"),
            InputImage(image_url="https://x/y.png"),
            InputFile(file_id="f1", filename="a.pdf"),
        ],
    ),
    MessageItem(role="assistant", content=[Refusal(refusal="no")], status="incomplete"),
    FunctionCallItem(call_id="c1", name="add", arguments='{"a": 1}', provider_call_id="c0"),
    FunctionCallOutputItem(call_id="c1", output="2"),
    ReasoningItem(content="thinking", summary="short", encrypted_content="zzz"),
    WebSearchCallItem(action={"type": "search", "query": "ray"}),
    FileSearchCallItem(queries=("a", "b"), results=[{"file": "x"}]),
    ImageGenerationCallItem(result=None),
    ExtensionItem(type="acme:ticket", data={"n": 1, "tags": ["a", None]}),
]
every_kind = pytest.mark.parametrize("item", EVERY_KIND, ids=lambda item: item.type)


@every_kind
def test_json_gives_the_same_item_again(item: Item) -> None:
    written = item_json(item)
    assert item_from_json(written) == item
    assert item_json(item_from_json(written)) == written
    assert json.loads(written) == item.model_dump(mode="json")


@every_kind
def test_items_pickle(item: Item) -> None:
    assert pickle.loads(pickle.dumps(item)) == item


@every_kind
def test_items_cannot_be_changed(item: Item) -> None:
    with pytest.raises(ValidationError):
        item.status = "failed"


@every_kind
def test_a_ready_item_is_parsed_to_itself(item: Item) -> None:
    assert parse_item(item) is item


def test_id_is_a_fresh_uuid7_and_status_completed_unless_given() -> None:
    one, other = user_message("a"), user_message("a")
    assert one.id != other.id
    assert UUID(one.id).version == 7
    assert sorted([other.id, one.id]) == [one.id, other.id]
    assert one.status == "completed"
    given = MessageItem(role="user", content="a", id="x", status="in_progress")
    assert (given.id, given.status) == ("x", "in_progress")


@pytest.mark.parametrize("absent", [{}, {"id": None, "status": None}, {"id": ""}])
def test_only_id_and_status_may_be_absent(absent: dict[str, Any]) -> None:
    item = parse_item({"type": "message", "role": "user", "content": "x", **absent})
    assert UUID(item.id).version == 7
    assert item.status == "completed"


def test_a_text_is_one_part_whose_type_follows_from_the_role() -> None:
    assert assistant_message("t").content == (OutputText(text="t"),)
    for make in (user_message, system_message, developer_message):
        message = make("t")
        assert message.content == (InputText(text="t"),)
    assert system_message("t").role == "system"
    assert developer_message("t").role == "developer"
    reasoning = ReasoningItem(content="a", summary="b")
    assert reasoning.content == (ReasoningText(text="a"),)
    assert reasoning.summary == (SummaryText(text="b"),)


def test_wire_names_are_snake_case_and_absent_options_are_left_out() -> None:
    call = FunctionCallItem(id="i", call_id="c", name="n", arguments="{}")
    assert json.loads(item_json(call)) == {
        "id": "i",
        "status": "completed",
        "type": "function_call",
        "call_id": "c",
        "name": "n",
        "arguments": "{}",
    }
    assert b"annotations" not in item_json(assistant_message("x"))


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ({"type": "function_call", "callId": "c", "name": "n", "arguments": "{}"}, ["call_id"]),
        ({"type": "function_call_output", "callId": "c", "output": "o"}, ["call_id"]),
        ({"type": "reasoning", "content": [], "encryptedContent": "e"}, ["encrypted_content"]),
        (
            {
                "type": "function_call",
                "callId": "c",
                "name": "n",
                "arguments": "",
                "providerCallId": "p",
                "providerId": "q",
            },
            ["call_id", "provider_call_id", "provider_id"],
        ),
    ],
)
def test_camel_case_is_accepted_on_input(raw: dict[str, Any], names: list[str]) -> None:
    written = json.loads(item_json(parse_item(raw)))
    assert set(names) <= set(written)
    assert not [name for name in written if name != name.lower()]


def test_camel_case_is_accepted_inside_parts() -> None:
    content = [
        {"type": "input_image", "imageUrl": "u", "detail": "high"},
        {"type": "input_file", "fileData": "d", "fileUrl": "f", "fileId": "i"},
    ]
    item = parse_item({"type": "message", "role": "user", "content": content})
    assert isinstance(item, MessageItem)
    assert item.content == (
        InputImage(image_url="u", detail="high"),
        InputFile(file_data="d", file_url="f", file_id="i"),
    )


def test_unknown_fields_are_kept_also_when_null_and_in_parts() -> None:
    raw = {
        "id": "i",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "t", "phase": None, "newThing": [1]}],
        "vendor": {"a": None},
        "empty": None,
    }
    assert json.loads(item_json(parse_item(raw))) == raw


@pytest.mark.parametrize(
    ("raw", "category", "item_type"),
    [
        ({"foo": 1}, "items", None),
        ({"type": ""}, "items", None),
        ({"type": 5}, "items", None),
        ("text", "items", None),
        (None, "items", None),
        ({"type": "message", "content": "x"}, "items", "message"),
        ({"type": "message", "role": "user"}, "items", "message"),
        ({"type": "message", "role": "robot", "content": "x"}, "items", "message"),
        ({"type": "message", "role": "user", "content": 5}, "items", "message"),
        ({"type": "message", "role": "user", "content": None}, "items", "message"),
        ({"type": "message", "role": "user", "content": [{"text": "t"}]}, "items", "message"),
        (
            {"type": "message", "role": "user", "content": [{"type": "what", "text": "t"}]},
            "items",
            "message",
        ),
        ({"type": "message", "role": "developer"}, "developerMessages", "message"),
        ({"type": "function_call", "name": "n"}, "toolCalls", "function_call"),
        ({"type": "function_call_output"}, "toolResults", "function_call_output"),
        ({"type": "reasoning"}, "items", "reasoning"),
        ({"type": "no_such_type"}, "items", "no_such_type"),
        ({"type": "a:b", "data": 5}, "items", "a:b"),
        ({"type": ":b", "data": {}}, "items", ":b"),
        ({"type": "message", "role": "user", "content": "x", "id": 5}, "items", "message"),
        ({"type": "message", "role": "user", "content": "x", "status": "odd"}, "items", "message"),
    ],
)
def test_what_is_no_item_is_a_schema_mismatch(
    raw: Any, category: str, item_type: str | None
) -> None:
    with pytest.raises(ItemSchemaMismatch) as caught:
        parse_item(raw)
    assert caught.value.category == category
    assert caught.value.item_type == item_type


def test_the_mismatch_names_the_wrong_field() -> None:
    with pytest.raises(ItemSchemaMismatch, match=r"call_?[iI]d"):
        parse_item({"type": "function_call", "name": "n", "arguments": "{}"})


def test_extension_items_are_accepted_unless_strict() -> None:
    raw = {"type": "noetic:analytics", "data": {"x": 1}}
    item = parse_item(raw)
    assert isinstance(item, ExtensionItem)
    assert item.data == {"x": 1}
    with pytest.raises(ItemSchemaMismatch) as caught:
        parse_item(raw, strict=True)
    assert caught.value.item_type == "noetic:analytics"
    server = {"type": "openrouter:web_search", "action": {"q": 1}}
    assert json.loads(item_json(parse_item(server, strict=True)))["action"] == {"q": 1}


class Ticket(BaseModel):
    number: int
    title: str = "untitled"


class WholeTicket(BaseModel):
    type: str
    data: Ticket


class Bare(BaseModel):
    action: str


@pytest.mark.parametrize("model", [Ticket, WholeTicket])
@pytest.mark.parametrize("strict", [True, False])
def test_a_registered_model_is_a_gate_for_data_or_the_whole_item(
    model: type[BaseModel], strict: bool
) -> None:
    types = {"acme:ticket": model}
    raw = {"type": "acme:ticket", "data": {"number": "7", "more": True}}
    item = parse_item(raw, extension_types=types, strict=strict)
    assert isinstance(item, ExtensionItem)
    assert item.data == {"number": "7", "more": True}
    bad = {"type": "acme:ticket", "data": {"title": "no number"}}
    with pytest.raises(ItemSchemaMismatch, match="number"):
        parse_item(bad, extension_types=types, strict=strict)
    with pytest.raises(ItemSchemaMismatch, match="number"):
        parse_item(parse_item(bad), extension_types=types, strict=strict)


def test_a_registered_model_judges_the_whole_of_an_item_without_data() -> None:
    types = {"acme:search": Bare}
    parse_item({"type": "acme:search", "action": "go"}, extension_types=types)
    with pytest.raises(ItemSchemaMismatch):
        parse_item({"type": "acme:search"}, extension_types=types)


def test_other_extension_types_pass_beside_registered_ones() -> None:
    item = parse_item({"type": "acme:other", "data": {}}, extension_types={"acme:ticket": Ticket})
    assert item.type == "acme:other"


@pytest.mark.parametrize(
    "types", [{"ticket": Ticket}, {"message": Ticket}, {"a:b": dict}, {"a:b": Ticket(number=1)}]
)
def test_wrong_item_types_are_config_errors(types: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check_item_types(types)
    assert caught.value.code == "INVALID_ITEM_TYPE"


def test_item_types_are_copied() -> None:
    types: dict[str, type[BaseModel]] = {"a:b": Ticket}
    checked = check_item_types(types)
    types.clear()
    assert checked == {"a:b": Ticket}
    assert check_item_types(None) == {}


HAZARDS: dict[str, Any] = {
    "lone": "\ud83d",
    "nan": float("nan"),
    "inf": float("inf"),
    "huge": 10**5000,
    "bytes": b"\xff",
    "time": datetime(2024, 1, 2, tzinfo=UTC),
    "plain": {"n": 1.5, "z": None, "t": "é"},
}
CANONICAL = {
    "lone": "\ufffd",
    "nan": "NaN",
    "inf": "Infinity",
    "huge": "1" + "0" * 5000,
    "bytes": "_w==",
    "time": "2024-01-02T00:00:00Z",
    "plain": {"n": 1.5, "z": None, "t": "é"},
}


@pytest.mark.parametrize(
    "item",
    [
        ExtensionItem(type="a:b", data=HAZARDS),
        ExtensionItem(type="a:b", data={}, **HAZARDS),
        MessageItem(role="user", content="x\ud83d", **HAZARDS),
        MessageItem(
            role="assistant",
            content=[OutputText(text="\ud83d", annotations=[HAZARDS], logprobs=[float("nan")])],
        ),
        FunctionCallItem(call_id="\ud83d", name="n\udc00", arguments='{"a": "\ud83d"}'),
        FunctionCallOutputItem(call_id="c", output="\ud83d NaN \udfff"),
        WebSearchCallItem(action=HAZARDS),
    ],
    ids=lambda item: item.type,
)
def test_hazards_take_their_canonical_form_at_once_and_reload_the_same(item: Item) -> None:
    written = item_json(item)
    again = item_from_json(written)
    assert again == item
    assert item_json(again) == written
    json.loads(written)
    json.dumps(item.model_dump()).encode()


def test_hazards_in_data_leave_the_other_values_alone() -> None:
    assert ExtensionItem(type="a:b", data=HAZARDS).data == CANONICAL
    assert (MessageItem(role="user", content="x", **HAZARDS).model_extra or {}) == CANONICAL


def test_hazards_that_slip_past_validation_are_still_written() -> None:
    item = user_message("x").model_copy(update={"extra": "\ud83d", "id": "i"})
    assert json.loads(item_json(item))["extra"] == "\ufffd"
    assert json.loads(item_json(item))["content"][0]["text"] == "x"


def test_later_changes_of_the_given_data_do_not_reach_the_item() -> None:
    data = {"list": [1]}
    item = ExtensionItem(type="a:b", data=data)
    data["list"].append(2)
    assert item.data == {"list": [1]}


def test_reading_what_is_no_json_is_a_schema_mismatch() -> None:
    with pytest.raises(ItemSchemaMismatch, match="not JSON"):
        item_from_json(b"{nope")


def test_item_text() -> None:
    mixed: list[ContentPart] = [OutputText(text="a"), Refusal(refusal="b"), OutputText(text="c")]
    assert item_text(MessageItem(role="assistant", content=mixed)) == "abc"
    assert item_text(FunctionCallOutputItem(call_id="c", output="out")) == "out"
    assert item_text(ReasoningItem(content="deep", summary="s")) == "deep"
    assert item_text(ReasoningItem(content=[], summary="s")) == "s"
    assert item_text(FunctionCallItem(call_id="c", name="n", arguments="{}")) == ""


def test_last_assistant_text_is_the_output_text_of_the_last_assistant_message() -> None:
    last = MessageItem(
        role="assistant",
        content=[OutputText(text="a"), Refusal(refusal="no"), OutputText(text="b")],
    )
    assert last_assistant_text([assistant_message("old"), last, user_message("new")]) == "ab"
    assert last_assistant_text([user_message("x")]) == ""
    assert last_assistant_text(()) == ""


def test_all_kinds_share_the_base() -> None:
    assert all(isinstance(item, ItemBase) for item in EVERY_KIND)
