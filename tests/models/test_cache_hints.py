"""What a provider is told about the part of a request that stays the same."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.errors import ConfigError, ModelFailed
from noetic_ray.models import OpenAI
from noetic_ray.models.cache_hints import hint_of, key_of
from noetic_ray.models.chat import Chat
from noetic_ray.models.responses import Responses
from tests.support import wires
from tests.support.hearing import Heard, read, request
from tests.support.model_server import Answer, ModelServer, json_answer

MARK = {"type": "ephemeral"}
WIRES = {"chat": Chat, "responses": Responses}


def anchored(boundary: int | None = 1, **options: Any) -> Any:
    items = [nr.developer_message("stable"), nr.user_message("hi")]
    return request(*items, cache_boundary=boundary, cache_key="t:a b/c", **options)


def sent(api: str, hint: Any, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(WIRES[api]().body(anchored(**options), hint))
    return body


def test_the_last_part_that_stays_is_marked() -> None:
    messages = sent("chat", "mark")["messages"]
    assert messages[0]["content"] == [{"type": "text", "text": "stable", "cache_control": MARK}]
    assert messages[1]["content"] == "hi"
    input = sent("responses", "mark")["input"]
    assert input[0]["content"] == [{"type": "input_text", "text": "stable", "cache_control": MARK}]
    assert input[1]["content"] == "hi"


def test_where_only_instructions_stay_they_are_marked() -> None:
    messages = sent("chat", "mark", boundary=0, instructions="be kind")["messages"]
    assert messages[0]["content"] == [{"type": "text", "text": "be kind", "cache_control": MARK}]
    assert "cache_control" not in json.dumps(sent("responses", "mark", boundary=0))


def test_the_mark_is_on_the_last_text_of_a_message_of_several_parts() -> None:
    image = nr.InputImage(image_url="https://x/y.png")
    parts = (nr.InputText(text="one"), nr.InputText(text="two"), image, nr.InputText(text=""))
    items = [nr.MessageItem(role="user", content=parts), nr.user_message("hi")]
    for api, path, kind in (("chat", "messages", "text"), ("responses", "input", "input_text")):
        asked = request(*items, cache_boundary=1)
        body = json.loads(WIRES[api]().body(asked, "mark"))
        content = body[path][0]["content"]
        assert content[1] == {"type": kind, "text": "two", "cache_control": MARK}
        assert json.dumps(body).count("cache_control") == 1


@pytest.mark.parametrize("api", WIRES)
def test_what_has_no_text_leaves_the_mark_to_the_message_before(api: str) -> None:
    image = nr.MessageItem(role="user", content=(nr.InputImage(image_url="https://x/y.png"),))
    own = nr.ExtensionItem(type="openai:thing", data={"x": 1})
    said = nr.assistant_message("said")
    items: list[Any] = [nr.developer_message("stable"), image, own, said, image]
    body = json.loads(WIRES[api]().body(request(*items, cache_boundary=4), "mark"))
    first, *others = body["messages" if api == "chat" else "input"]
    assert first["content"][0]["cache_control"] == MARK
    assert "cache_control" not in json.dumps(others)


@pytest.mark.parametrize("api", WIRES)
def test_nothing_but_the_hint_is_different(api: str) -> None:
    plain, marked, keyed = (sent(api, hint) for hint in (None, "mark", "key"))
    assert keyed.pop("prompt_cache_key")
    assert keyed == plain
    messages = marked["messages" if api == "chat" else "input"]
    messages[0]["content"] = messages[0]["content"][0]["text"]
    assert marked == plain


@pytest.mark.parametrize("api", WIRES)
def test_a_key_of_the_users_own_wins(api: str) -> None:
    body = sent(api, "key", settings={"prompt_cache_key": "mine"})
    assert body["prompt_cache_key"] == "mine"


@pytest.mark.parametrize("api", WIRES)
def test_without_anchoring_nothing_is_sent(api: str) -> None:
    for body in (sent(api, None), sent(api, "mark", boundary=None)):
        assert "cache" not in json.dumps(body)


@pytest.mark.parametrize("api", WIRES)
def test_a_key_names_the_conversation(api: str) -> None:
    body = sent(api, "key")
    assert body["prompt_cache_key"] == "t:a_b_c"
    assert "cache_control" not in json.dumps(body)
    assert len(key_of("x" * 200)) == 64


def test_who_gets_which_hint() -> None:
    def hint(url: str, wish: Any = "auto") -> Any:
        return hint_of(OpenAI(url, "sk-x", cache_control=wish))

    assert hint("https://openrouter.ai/api/v1") == "mark"
    assert hint("http://localhost:8000/v1") == "mark"
    assert hint("https://api.openai.com/v1") == "key"
    assert hint("https://mine.openai.azure.com/openai/v1") == "key"
    assert hint("https://api.openai.com/v1", True) == "mark"
    assert hint("http://localhost:8000/v1", False) is None


@pytest.mark.parametrize("wish", ["always", 1, 0, None, ""])
def test_another_wish_is_an_error_at_once(wish: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAI("http://localhost:8000/v1", cache_control=wish)
    assert caught.value.code == "INVALID_OPTION"
    assert "auto" in str(caught.value)


def answer(api: str) -> Answer:
    if api == "chat":
        return Answer(chunks=[wires.chat_text("ok")])
    return Answer(chunks=[wires.responses_stream([wires.message_item("ok")])])


REFUSAL = {"error": {"message": "Unknown parameter: 'messages[0].content[0].cache_control'."}}


@pytest.mark.parametrize("api", WIRES)
async def test_a_server_that_refuses_is_asked_again_without(server: ModelServer, api: Any) -> None:
    provider = OpenAI(server.url, "sk-x", api, attempts=1)
    server.script(json_answer(REFUSAL, 400), answer(api), answer(api))
    heard = Heard()
    for _ in range(2):
        await provider.generate(anchored(), heard)
    marked = ["cache_control" in json.dumps(each.json) for each in server.requests]
    assert marked == [True, False, False]
    assert heard.retries == []
    assert pickle.loads(pickle.dumps(provider)) == provider


async def test_a_refusal_is_an_error_where_the_mark_was_asked_for(server: ModelServer) -> None:
    provider = OpenAI(server.url, "sk-x", "chat", attempts=1, cache_control=True)
    server.script(json_answer(REFUSAL, 400))
    with pytest.raises(ModelFailed, match="cache_control"):
        await provider.generate(anchored(), Heard())
    assert len(server.requests) == 1


def marks(server: ModelServer) -> list[bool]:
    return ["cache_control" in json.dumps(each.json) for each in server.requests]


@pytest.mark.parametrize("api", WIRES)
@pytest.mark.parametrize(
    ("options", "asked", "expected"),
    [
        ({}, {}, True),
        ({"cache_control": True}, {}, True),
        ({"cache_control": False}, {}, False),
        ({}, {"boundary": None}, False),
        ({"cache_control": True}, {"boundary": None}, False),
    ],
)
async def test_what_a_server_gets(
    server: ModelServer, api: Any, options: Any, asked: Any, expected: bool
) -> None:
    await OpenAI(server.url, "sk-x", api, **options).generate(anchored(**asked), Heard())
    assert marks(server) == [expected]
    assert "prompt_cache_key" not in server.requests[0].json


@pytest.mark.parametrize("api", WIRES)
async def test_azure_gets_a_key_until_it_refuses_one(
    server: ModelServer, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
    provider = OpenAI("http://mine.openai.azure.com/openai/v1", "sk-x", api, attempts=1)
    refusal = {"error": {"message": "Unrecognized argument supplied: prompt_cache_key"}}
    await provider.generate(anchored(boundary=None), Heard())
    server.script(answer(api), json_answer(refusal, 400))
    for _ in range(3):
        await provider.generate(anchored(), Heard())
    keys = [each.json.get("prompt_cache_key") for each in server.requests]
    assert keys == [None, "t:a_b_c", "t:a_b_c", None, None]
    assert marks(server) == [False] * 5


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    "refusal",
    [
        {"error": {"message": "Unknown parameter.", "param": "messages[0].cache_control"}},
        {"error": {"message": "Upstream said no", "metadata": {"raw": "cache_control?"}}},
        {"detail": [{"loc": ["body", "messages", 0, "cache_control"], "msg": "Not permitted"}]},
        {"error": {"message": "messages[0]: invalid type: sequence, expected a string"}},
        {"error": {"message": "messages.0.content: Input should be a valid string"}},
        {"error": {"message": "'messages.0.content' : value must be a string"}},
    ],
)
async def test_a_refusal_may_stand_anywhere_in_the_body(
    server: ModelServer, refusal: Any, status: int
) -> None:
    server.script(json_answer(refusal, status))
    await OpenAI(server.url, "sk-x", "chat", attempts=1).generate(anchored(), Heard())
    assert marks(server) == [True, False]


async def test_other_trouble_is_no_refusal(server: ModelServer) -> None:
    provider = OpenAI(server.url, "sk-x", "chat", attempts=1)
    server.script(
        json_answer({"error": {"message": "maximum context length"}}, 400),
        json_answer(REFUSAL, 401),
        json_answer(REFUSAL, 500),
    )
    for _ in range(3):
        with pytest.raises(ModelFailed):
            await provider.generate(anchored(), Heard())
    await provider.generate(anchored(), Heard())
    assert marks(server) == [True] * 4


async def test_an_error_that_stays_without_the_hint_does_not_end_the_hints(
    server: ModelServer,
) -> None:
    provider = OpenAI(server.url, "sk-x", "chat", attempts=1)
    server.script(json_answer(REFUSAL, 400), json_answer(REFUSAL, 400))
    with pytest.raises(ModelFailed) as caught:
        await provider.generate(anchored(), Heard())
    assert caught.value.attempts == 1
    await provider.generate(anchored(), Heard())
    assert marks(server) == [True, False, True]


@pytest.mark.usefixtures("quick")
async def test_attempts_after_a_refusal_are_all_without_the_hint(server: ModelServer) -> None:
    heard = Heard()
    server.script(json_answer(REFUSAL, 400), json_answer({}, 503), json_answer({}, 503))
    await OpenAI(server.url, "sk-x", "chat", attempts=3).generate(anchored(), heard)
    assert marks(server) == [True, False, False, False]
    assert [attempt for attempt, _, _ in heard.retries] == [1, 2]


async def test_a_copy_in_another_process_finds_out_for_itself(server: ModelServer) -> None:
    provider = OpenAI(server.url, "sk-x", "chat", attempts=1)
    server.script(json_answer(REFUSAL, 400))
    await provider.generate(anchored(), Heard())
    await pickle.loads(pickle.dumps(provider)).generate(anchored(), Heard())
    assert marks(server) == [True, False, True]


def test_a_request_is_made_without_hints_as_before() -> None:
    made = nr.models.ModelRequest("m", None, [], (), {}, None, "c")
    assert (made.context_id, made.cache_boundary, made.cache_key) == ("c", None, None)


@pytest.mark.parametrize(
    ("usage", "cached", "written"),
    [
        ({}, None, None),
        ({"details": None}, None, None),
        ({"details": {"cached_tokens": None}}, None, None),
        ({"details": {"cached_tokens": None, "cache_write_tokens": None}}, None, None),
        ({"details": {"cached_tokens": 0}}, 0, None),
        ({"details": {"cached_tokens": 7, "cache_write_tokens": 9}}, 7, 9),
        ({"details": {"cached_tokens": 0, "cache_write_tokens": 0}}, 0, 0),
        ({"details": {"cache_creation_input_tokens": 4}}, None, 4),
        ({"details": {"cache_creation_tokens": 4}}, None, 4),
        ({"details": {"cached_tokens": None}, "cache_read_input_tokens": 2}, 2, None),
        ({"details": {"cached_tokens": 0}, "cache_read_input_tokens": 2}, 0, None),
        ({"cache_read_input_tokens": 5, "cache_creation_input_tokens": 0}, 5, 0),
        ({"cache_read_input_tokens": None, "cache_creation_input_tokens": None}, None, None),
        ({"cache_write_tokens": 6}, None, 6),
        ({"prompt_cache_hit_tokens": 3}, 3, None),
    ],
)
@pytest.mark.parametrize("api", WIRES)
def test_cache_figures_are_read_where_they_stand(
    api: str, usage: dict[str, Any], cached: Any, written: Any
) -> None:
    more = dict(usage)
    if api == "chat":
        if "details" in more:
            more["prompt_tokens_details"] = more.pop("details")
        given = {"prompt_tokens": 10, "completion_tokens": 1, **more}
        reply = read(Chat(), wires.chat_text("x", usage=given))
    else:
        if "details" in more:
            more["input_tokens_details"] = more.pop("details")
        given = {"input_tokens": 10, "output_tokens": 1, **more}
        response = wires.response_whole([wires.message_item("x")], usage=given)
        end = {"type": "response.completed", "response": response}
        reply = read(Responses(), wires.responses_stream([], end=end))
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (10, 1)
    assert (reply.usage.cached_tokens, reply.usage.cache_write_tokens) == (cached, written)
