"""The official client of OpenAI's API talks to agents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import noetic_ray as nr
from noetic_ray.serve import make_app
from tests.serve import agents
from tests.serve.conftest import Live


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def streamed(live: Live, model: str, text: str = "hi", **options: Any) -> list[Any]:
    stream = live.openai().chat.completions.create(
        model=model, messages=ask(text), stream=True, **options
    )
    return list(stream)


def text_of(chunks: list[Any]) -> str:
    deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    return "".join(filter(None, deltas))


def completed(live: Live, model: str, text: str = "hi", **options: Any) -> Any:
    return live.openai().chat.completions.create(model=model, messages=ask(text), **options)


def test_agents_are_the_models(live: Live) -> None:
    found = [model.id for model in live.openai().models.list()]
    assert found == [step.id for step in agents.ALL]
    assert live.openai().models.retrieve("talk").id == "talk"
    with pytest.raises(openai.NotFoundError):
        live.openai().models.retrieve("nobody")


def test_an_answer_in_one_piece(live: Live) -> None:
    answer = completed(live, "talk")
    assert answer.choices[0].message.content == "echo: hi"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "talk"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)


def test_an_answer_as_a_stream_comes_in_pieces_and_once(live: Live) -> None:
    chunks = streamed(live, "talk", "a longer question")
    assert text_of(chunks) == "echo: a longer question"
    assert len([c for c in chunks if c.choices[0].delta.content]) > 1
    assert [c.choices[0].delta.role for c in chunks].count("assistant") == 1
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]


def test_usage_comes_last_when_it_is_asked_for(live: Live) -> None:
    chunks = streamed(live, "team", stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 15  # the child's
    assert not any(chunk.usage for chunk in chunks[:-1])


async def test_the_async_client(live: Live) -> None:
    async with live.async_openai() as client:
        whole = await client.chat.completions.create(model="talk", messages=ask("one"))
        assert whole.choices[0].message.content == "echo: one"
        stream = await client.chat.completions.create(
            model="talk", messages=ask("two"), stream=True
        )
        chunks = [chunk async for chunk in stream]
    assert text_of(chunks) == "echo: two"


def test_a_conversation_of_three_turns(live: Live) -> None:
    client, messages = live.openai(), [{"role": "system", "content": "Count."}]
    said: list[str] = []
    for text in ("one", "two", "three"):
        messages.append({"role": "user", "content": text})
        answer = client.chat.completions.create(model="count", messages=messages)  # type: ignore[arg-type]
        said.append(str(answer.choices[0].message.content))
        messages.append({"role": "assistant", "content": said[-1]})
    assert said[0] == "2: Count. | one"
    assert said[1] == f"4: Count. | one | {said[0]} | two"
    assert said[2].startswith("6: ")


def test_messages_of_the_whole_swarm_are_shown_before_the_output(live: Live) -> None:
    assert text_of(streamed(live, "teller")) == "Thinking. Thought. Twice. echo: hi"
    whole = completed(live, "teller").choices[0].message.content
    assert whole == "Thought. Twice. echo: hi"  # the replaced message in its last form


def test_a_text_of_a_child_is_not_the_answer(live: Live) -> None:
    assert text_of(streamed(live, "team")) == "they said echo: hi"


def test_an_output_that_is_no_text_is_json_when_nothing_was_shown(live: Live) -> None:
    expected = {"city": "Oslo", "people": 717710}
    assert json.loads(text_of(streamed(live, "table"))) == expected
    assert json.loads(completed(live, "table").choices[0].message.content) == expected


def test_no_output_is_an_empty_answer(live: Live) -> None:
    assert completed(live, "silent").choices[0].message.content == ""
    assert text_of(streamed(live, "silent")) == ""


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_error_is_an_error_of_its_kind(live: Live, stream: bool) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        list(completed(live, "failing", stream=stream))
    assert caught.value.status_code == 502
    assert caught.value.body["kind"] == "model_failed"  # type: ignore[index]
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_a_busy_model_is_a_rate_limit_with_its_patience(live: Live) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        completed(live, "busy")
    assert int(caught.value.response.headers["retry-after"]) in (7, 8)
    assert caught.value.body["kind"] == "model_rate_limit"  # type: ignore[index]


def test_a_failed_step_tells_its_kind_and_no_traceback(live: Live) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        completed(live, "broken")
    assert caught.value.body["kind"] == "step_failed"  # type: ignore[index]
    assert "no luck" in caught.value.body["message"]  # type: ignore[index]
    assert "Traceback" not in caught.value.response.text


def test_an_error_after_the_stream_began_is_its_last_frame(live: Live) -> None:
    stream = live.openai().chat.completions.create(model="late", messages=ask("x"), stream=True)
    seen: list[Any] = []
    with pytest.raises(openai.APIError, match="no luck") as caught:
        seen.extend(iter(stream))
    assert text_of(seen) == "so far so good"
    assert not isinstance(caught.value, openai.APIStatusError)


def test_an_unknown_agent_is_not_found(live: Live) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        completed(live, "nobody")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_a_lone_agent_answers_to_the_library_name(make_live: Callable[..., Live]) -> None:
    live = make_live(agents.talk)
    assert completed(live, "noetic-ray").choices[0].message.content == "echo: hi"
    with pytest.raises(openai.NotFoundError):
        completed(live, "gpt-4.1-mini")


def test_harmless_parameters_are_ignored(live: Live) -> None:
    answer = completed(
        live, "talk", temperature=0.3, max_tokens=9, user="kim", seed=1, top_p=0.4, n=1
    )
    assert answer.choices[0].message.content == "echo: hi"


@pytest.mark.parametrize(
    "options",
    [
        {"n": 2},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"stop": ["END"]},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
    ],
)
def test_parameters_that_change_the_answers_form_are_refused(
    live: Live, options: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        completed(live, "talk", **options)
    assert caught.value.param == next(iter(options))
    assert caught.value.code == "unsupported_parameter"


def test_what_the_client_says_of_itself_reaches_the_agent(live: Live) -> None:
    answer = completed(
        live,
        "about",
        metadata={"chat_id": "chat-7"},
        extra_headers={"X-Yao-Route": "/desk"},
        extra_body={"user": "kim"},
    )
    told = json.loads(answer.choices[0].message.content)
    assert (told["chat"], told["thread"]) == ("chat-7", "chat-7")
    assert (told["route"], told["agent"]) == ("/desk", "about")


def test_without_a_chat_id_each_request_is_a_thread_of_its_own(live: Live) -> None:
    first, second = (
        json.loads(completed(live, "about").choices[0].message.content) for _ in range(2)
    )
    assert first["thread"] != second["thread"]
    assert first["chat"]
    assert first["chat"] != first["thread"]


async def test_an_app_under_another_path_links_to_itself(
    make_harness: Callable[..., nr.Harness],
) -> None:
    harness = make_harness(placement="inline")
    outer = Starlette(routes=[Mount("/desk", make_app(harness, charts, token="t"))])
    transport = httpx.ASGITransport(app=outer)
    headers = {"Authorization": "Bearer t"}
    base = "http://127.0.0.1/desk"
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as client:
        answer = await client.post("/v1/chat/completions", json={"messages": ask("x")})
        path = answer.json()["choices"][0]["message"]["content"].split("(")[1].rstrip(")")
        assert path.startswith("/desk/v1/runs/")
        assert (await client.get("http://127.0.0.1" + path)).json()["type"] == "chart"
        started = await client.post("/v1/runs", json={"input": "x"})
        found = await client.get("http://127.0.0.1" + started.headers["location"])
        assert found.status_code == 200
        assert (await client.get("/healthz", headers={"Authorization": ""})).status_code == 200


@nr.step
async def charts(text: str, ctx: nr.Context) -> None:
    ctx.messages.send({"type": "chart", "props": {"title": "Growth"}})
