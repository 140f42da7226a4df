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
from noetic_ray.models.wire import round_usage
from tests.support import wires
from tests.support.hearing import Heard, request
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
    with pytest.raises(ConfigError):
        OpenAI("http://localhost:8000/v1", cache_control="always")  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("usage", "cached", "written"),
    [
        ({}, None, None),
        ({"prompt_tokens_details": None}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": None}}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0, None),
        ({"prompt_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 9}}, 7, 9),
        ({"cache_read_input_tokens": 5, "cache_creation_input_tokens": 0}, 5, 0),
        ({"prompt_cache_hit_tokens": 3}, 3, None),
    ],
)
def test_cache_figures_are_read_where_they_stand(usage: Any, cached: Any, written: Any) -> None:
    given = {"prompt_tokens": 10, "completion_tokens": 1, **usage}
    read = round_usage(given, "prompt_tokens", "completion_tokens")
    assert read is not None
    assert (read.cached_tokens, read.cache_write_tokens) == (cached, written)
