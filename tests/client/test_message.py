"""What may be given to be sent, and what becomes of it."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.canonical import canonical
from noetic_ray.client.message import (
    APPENDED,
    REPLACED,
    SENT,
    Message,
    SendOrder,
    as_message,
    check_appendable,
    check_sendable,
    format_of,
)


@pytest.mark.parametrize("text", ["Hello", "", "line\nline", "100% of %s"])
def test_a_text_is_a_text_message(text: str) -> None:
    assert as_message(text) == ("text", {"content": text}, {}, None)


def test_a_message_without_props_has_none() -> None:
    assert as_message({"type": "loading"}) == ("loading", {}, {}, None)


@pytest.mark.parametrize("unset", ["", None])
def test_an_empty_id_asks_for_an_automatic_one(unset: str | None) -> None:
    assert as_message({"type": "text", "message_id": unset})[3] is None


def test_an_id_is_kept() -> None:
    assert as_message({"type": "tool", "message_id": "mine"})[3] == "mine"


def test_any_mapping_is_a_message() -> None:
    given = OrderedDict(type="text", props=OrderedDict(content="x"))
    assert as_message(given)[:2] == ("text", {"content": "x"})


@pytest.mark.parametrize("given", [42, None, b"text", ["text"], object()])
def test_what_is_neither_text_nor_dict_is_refused(given: Any) -> None:
    with pytest.raises(nr.MessageError, match="a message is a text or a dict"):
        as_message(given)


@pytest.mark.parametrize(
    "given", [{}, {"props": {}}, {"type": ""}, {"type": None}, {"type": 7}, {"type": "\ud800"}]
)
def test_a_message_without_a_usable_type_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(nr.MessageError, match="`type`"):
        as_message(given)


@pytest.mark.parametrize("props", ["str", None, 3, ["a"]])
def test_props_of_a_wrong_type_are_refused(props: Any) -> None:
    with pytest.raises(nr.MessageError, match="`props`") as caught:
        as_message({"type": "text", "props": props, "message_id": "m"})
    assert caught.value.message_id == "m"


@pytest.mark.parametrize("id", [7, b"x", ["M1"], False, "\udfff"])
def test_an_id_that_is_no_text_is_refused(id: Any) -> None:
    with pytest.raises(nr.MessageError, match="`message_id`"):
        as_message({"type": "text", "message_id": id})


def test_unknown_keys_are_named() -> None:
    with pytest.raises(nr.MessageError, match=r"`content`, `tpye`") as caught:
        as_message({"type": "text", "content": "x", "tpye": "y"})
    assert "props" in str(caught.value)


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(nr.MessageError, match="1"):
        as_message({"type": "text", 1: 2})  # type: ignore[dict-item]


@pytest.mark.parametrize("key", ["delta", "delta_path", "delta_action", "type_change"])
def test_what_replace_and_append_set_is_refused(key: str) -> None:
    with pytest.raises(nr.MessageError, match="`replace` and `append`"):
        as_message({"type": "text", key: True})


def test_extra_keys_come_back_beside_the_props() -> None:
    extra = {"metadata": {"sequence": 1}, "chunk_id": "C1", "block_id": "B1", "thread_id": "T1"}
    assert as_message({"type": "text", **extra})[2] == extra


def test_extra_keys_that_are_none_are_left_out() -> None:
    assert as_message({"type": "text", "block_id": None, "metadata": None})[2] == {}


@pytest.mark.parametrize(("key", "value"), [("metadata", "x"), ("block_id", 1), ("chunk_id", {})])
def test_extra_keys_of_a_wrong_type_are_refused(key: str, value: Any) -> None:
    with pytest.raises(nr.MessageError, match=f"`{key}`"):
        as_message({"type": "text", key: value})


def test_later_changes_by_the_caller_change_nothing() -> None:
    given: dict[str, Any] = {
        "type": "tool",
        "props": {"deep": {"list": [1]}},
        "metadata": {"a": [1]},
    }
    _, props, extra, _ = as_message(given)
    given["props"]["deep"]["list"].append(2)
    given["metadata"]["a"].append(2)
    assert props == {"deep": {"list": [1]}}
    assert extra == {"metadata": {"a": [1]}}


@given(
    st.dictionaries(
        st.text(), st.recursive(st.floats() | st.text() | st.binary(), st.lists, max_leaves=5)
    )
)
def test_props_come_back_in_canonical_form(props: dict[str, Any]) -> None:
    made = as_message({"type": "data", "props": props})[1]
    assert made == canonical(props)
    assert canonical(made) == made


def test_lone_surrogates_in_a_text_are_replaced() -> None:
    assert as_message("a\ud800b")[1] == {"content": "a\ufffdb"}


def test_a_message_cannot_be_changed() -> None:
    message = Message("M1", "text", {"content": "x"}, "c")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.type = "image"  # type: ignore[misc]


# -- what a format can show ----------------------------------------------------------------------


@pytest.mark.parametrize("url", [None, "", "  ", 7])
@pytest.mark.parametrize("accept", ["standard", "openai", "weird", ""])
def test_the_standard_format_refuses_an_image_without_an_address(accept: str, url: Any) -> None:
    with pytest.raises(nr.MessageError, match="`url`"):
        check_sendable("image", {"url": url, "alt": "x"}, accept)


@pytest.mark.parametrize("accept", ["cui", "cui-web", "cui-native", "cui-desktop"])
def test_other_formats_send_an_image_without_an_address(accept: str) -> None:
    check_sendable("image", {}, accept)
    assert format_of(accept).startswith("cui-")


@pytest.mark.parametrize("type", ["text", "audio", "tool", "action"])
def test_only_images_need_an_address(type: str) -> None:
    check_sendable(type, {}, "standard")
    with pytest.raises(nr.MessageError):
        check_sendable("image", {}, "standard")


@pytest.mark.parametrize("type", ["text", "thinking"])
def test_text_can_be_added_to_texts(type: str) -> None:
    check_appendable(type, {"content": ""})
    with pytest.raises(nr.MessageError, match="`content`"):
        check_appendable(type, {"content": 7})
    with pytest.raises(nr.MessageError, match="`content`"):
        check_appendable(type, {})


@pytest.mark.parametrize("type", ["image", "tool", "loading", "Text"])
def test_text_cannot_be_added_to_others(type: str) -> None:
    with pytest.raises(nr.MessageError, match=repr(type)):
        check_appendable(type, {"content": "x"})


# -- order ---------------------------------------------------------------------------------------


def change(type: str, id: str, content: str = "") -> tuple[str, str, dict[str, Any]]:
    message = {"type": "text", "props": {"content": content}, "message_id": id}
    return type, "ctx", {"message_id": id, "message": message}


def test_a_change_waits_for_its_message() -> None:
    order = SendOrder()
    early, added, sent = change(REPLACED, "M1"), change(APPENDED, "M1"), change(SENT, "M1")
    assert order.take(*early) == []
    assert order.take(*added) == []
    assert order.waiting() == [early, added]
    assert order.take(*sent) == [sent, early, added]
    assert order.waiting() == []


def test_others_do_not_wait_with_it() -> None:
    order = SendOrder()
    order.take(*change(REPLACED, "M1"))
    assert order.take(*change(SENT, "M2")) == [change(SENT, "M2")]
    assert order.take(*change(APPENDED, "M2")) == [change(APPENDED, "M2")]


def test_after_the_rest_nothing_waits() -> None:
    order = SendOrder()
    order.take(*change(REPLACED, "M1"))
    assert order.rest() == [change(REPLACED, "M1")]
    assert order.rest() == []
    assert order.take(*change(APPENDED, "M1")) == [change(APPENDED, "M1")]
