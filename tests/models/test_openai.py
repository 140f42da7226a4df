"""The provider object: its settings, and what it makes of requests over real HTTP."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

import noetic_ray.models as models
from noetic_ray.errors import ConfigError, ModelFailed, ModelRateLimited
from noetic_ray.items import FunctionCallItem, FunctionCallOutputItem, Item, user_message
from noetic_ray.models import OpenAI
from tests.support import wires
from tests.support.hearing import LOOKUP, Heard, provider, request
from tests.support.model_server import Answer, ModelServer, Recorded, json_answer

GOOD = Answer(chunks=[wires.chat_text("good")])


def text_of(item: Item) -> str:
    return "".join(getattr(part, "text", "") for part in getattr(item, "content", ()))


# Settings


def test_the_default_is_openai_over_responses() -> None:
    made = OpenAI(api_key="k")
    assert (made.base_url, made.api) == ("https://api.openai.com/v1", "responses")
    assert (made.attempts, made.max_retry_after) == (5, 60.0)


def test_the_environment_is_read_when_the_object_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://here:1/v1/\n")
    monkeypatch.setenv("OPENAI_API_KEY", " k \n")
    made = OpenAI()
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    assert (made.base_url, made.api_key, made.api) == ("http://here:1/v1", "k", "chat")
    assert pickle.loads(pickle.dumps(made)).api_key == "k"


def test_an_openrouter_key_alone_means_openrouter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "or")
    made = OpenAI()
    assert (made.base_url, made.api_key) == ("https://openrouter.ai/api/v1", "or")
    assert made.api == "responses"


def test_an_openrouter_key_goes_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "or")
    assert OpenAI(base_url="http://localhost:1/v1").api_key is None
    monkeypatch.setenv("OPENAI_API_KEY", "oa")
    assert OpenAI().base_url == "https://api.openai.com/v1"
    assert OpenAI().api_key == "oa"
    assert OpenAI(base_url="https://openrouter.ai/api/v1").api_key == "or"


@pytest.mark.parametrize(
    ("url", "api"),
    [
        ("https://api.openai.com/v1", "responses"),
        ("https://eu.api.openai.com/v1", "responses"),
        ("https://openrouter.ai/api/v1", "responses"),
        ("https://api.openai.com.evil.example/v1", "chat"),
        ("http://localhost:8000/v1", "chat"),
    ],
)
def test_the_api_follows_from_the_host(url: str, api: str) -> None:
    assert OpenAI(base_url=url, api_key="k").api == api


def test_the_api_can_be_named() -> None:
    assert OpenAI(api_key="k", api="chat").api == "chat"


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://x/v1",
        "http://",
        "http://x:99999/v1",
        "http://x:0",
        "/v1",
        "http://x/#a",
    ],
)
def test_a_bad_base_url_is_an_error_at_once(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAI(base_url=url)
    assert caught.value.code == "BAD_BASE_URL"
    assert caught.value.hint


def test_a_bad_base_url_does_not_tell_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAI(base_url="ftp://me:hunter2@x/v1")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"api": "completions"},
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.5},
        {"max_retry_after": -1},
        {"max_retry_after": float("nan")},
        {"idle_timeout": 0},
    ],
)
def test_wrong_options_are_errors_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAI(api_key="k", **options)
    assert caught.value.code == "INVALID_OPTION"


@pytest.mark.parametrize("key", ["two words", "line\nend", "schlüssel"])
def test_a_bad_key_is_an_error_that_does_not_show_it(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAI(api_key=key)
    assert caught.value.code == "BAD_API_KEY"
    assert key not in str(caught.value)


async def test_a_missing_key_is_said_before_any_request() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as caught:
        await OpenAI().generate(request(), Heard())
    assert caught.value.code == "MISSING_API_KEY"


def test_a_provider_does_not_change() -> None:
    made = OpenAI(api_key="k")
    with pytest.raises(AttributeError):
        made.attempts = 3
    with pytest.raises(AttributeError):
        del made.attempts


def test_equal_settings_make_equal_providers() -> None:
    assert OpenAI(api_key="k") == OpenAI(api_key="k")
    assert hash(OpenAI(api_key="k")) == hash(OpenAI(api_key="k"))
    assert OpenAI(api_key="k") != OpenAI(api_key="k", attempts=1)


def test_no_text_form_shows_the_key() -> None:
    made = OpenAI(base_url="http://me:hunter2@x/v1", api_key="sk-secret")
    for text in (repr(made), str(made), f"{made}"):
        assert "sk-secret" not in text
        assert "hunter2" not in text


def test_the_package_exports_its_names() -> None:
    assert all(getattr(models, name) is not None for name in models.__all__)
    assert isinstance(OpenAI(api_key="k"), models.Model)
    assert inspect.iscoroutinefunction(OpenAI.generate)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = models.nothing_like_it


# Requests over HTTP


async def test_what_goes_over_the_wire(server: ModelServer) -> None:
    await provider(server.url).generate(request(tools=[LOOKUP]), Heard())
    (got,) = server.requests
    assert got.path == "/v1/chat/completions"
    assert got.headers["authorization"] == "Bearer sk-test-secret"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["accept"] == "text/event-stream"
    assert got.json["stream"] is True


async def test_the_query_of_a_base_url_stays(server: ModelServer) -> None:
    await provider(f"{server.url}/?api-version=1", "responses").generate(request(), Heard())
    assert server.requests[0].path == "/v1/responses?api-version=1"


async def test_without_a_key_nothing_is_authorized(server: ModelServer) -> None:
    await OpenAI(base_url=server.url).generate(request(), Heard())
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_conversation_of_tool_rounds(server: ModelServer, api: str) -> None:
    model = provider(server.url, api)
    items: list[Item] = [user_message("What is it?")]
    rounds = 0
    while items[-1].type != "message" or rounds == 0:
        reply = await model.generate(request(*items, tools=[LOOKUP]), Heard())
        items += reply.items
        for call in reply.items:
            if isinstance(call, FunctionCallItem):
                items.append(FunctionCallOutputItem(call_id=call.call_id, output="42"))
        rounds += 1
    assert rounds == 3
    assert text_of(items[-1]) == "The answer is 42."
    assert server.connections == 1


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_answer_that_was_not_streamed(server: ModelServer, api: str) -> None:
    heard = Heard()
    whole = {
        "chat": wires.chat_whole({"content": "hi"}),
        "responses": wires.response_whole([wires.message_item("hi")]),
    }
    server.script(json_answer(whole[api]))
    reply = await provider(server.url, api).generate(request(), heard)
    assert text_of(reply.items[0]) == "hi"
    assert heard.retries == []


async def test_several_calls_in_an_answer_that_was_not_streamed(server: ModelServer) -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in (("a", "{"), ("b", ""), ("c", "{}"))
    ]
    server.script(json_answer(wires.chat_whole({"content": None, "tool_calls": calls})))
    reply = await provider(server.url).generate(request(), Heard())
    assert [getattr(call, "name", "") for call in reply.items] == ["a", "b", "c"]


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_error_object_with_status_200(server: ModelServer, api: str) -> None:
    error = {"error": {"message": "prompt is too long", "type": "invalid_request_error"}}
    server.script(json_answer(error))
    with pytest.raises(ModelFailed, match="too long") as caught:
        await provider(server.url, api).generate(request(), Heard())
    assert len(server.requests) == 1
    assert not caught.value.retryable


async def test_the_cost_the_provider_reports(server: ModelServer) -> None:
    usage = {**wires.CHAT_USAGE, "cost": 0.0125}
    server.script(Answer(chunks=[wires.chat_text("x", usage=usage)]))
    reply = await provider(server.url).generate(request(), Heard())
    assert reply.cost == 0.0125


async def test_an_unknown_cost_is_none(server: ModelServer) -> None:
    reply = await provider(server.url).generate(request(tools=[LOOKUP]), Heard())
    assert reply.usage is not None
    assert reply.cost is None


# Attempts


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
async def test_passing_trouble_is_tried_again(server: ModelServer, status: int) -> None:
    heard = Heard()
    server.script(json_answer({"error": {"message": "busy"}}, status), GOOD)
    reply = await provider(server.url).generate(request(), heard)
    assert text_of(reply.items[0]) == "good"
    ((attempt, delay, error),) = heard.retries
    assert attempt == 1
    assert delay > 0
    assert isinstance(error, ModelFailed)
    assert error.status == status
    assert "busy" in str(error)
    assert isinstance(error, ModelRateLimited) is (status == 429)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_lasting_trouble_is_tried_once(server: ModelServer, status: int) -> None:
    words = "This model's maximum context length is 4096 tokens."
    server.script(json_answer({"error": {"message": words, "code": "x"}}, status))
    with pytest.raises(ModelFailed, match="maximum context length") as caught:
        await provider(server.url).generate(request(), Heard())
    assert (caught.value.status, caught.value.attempts) == (status, 1)
    assert not caught.value.retryable
    assert len(server.requests) == 1


@pytest.mark.usefixtures("quick")
async def test_a_context_overflow_inside_a_stream_is_tried_once(server: ModelServer) -> None:
    error = {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}
    server.script(Answer(chunks=[wires.sse([{"error": error}], done=True)]))
    with pytest.raises(ModelFailed) as caught:
        await provider(server.url).generate(request(), Heard())
    assert (caught.value.status, caught.value.retryable) == (400, False)
    assert len(server.requests) == 1


@pytest.mark.usefixtures("quick")
async def test_attempts_run_out(server: ModelServer) -> None:
    heard = Heard()
    server.respond(lambda _: Answer(503, [b"<html>no  luck</html>"], content_type="text/html"))
    with pytest.raises(ModelFailed, match="no luck") as caught:
        await provider(server.url).generate(request(), heard)
    assert (caught.value.status, caught.value.attempts) == (503, 5)
    assert caught.value.base_url == server.url
    assert caught.value.retryable
    assert [attempt for attempt, _, _ in heard.retries] == [1, 2, 3, 4]
    assert len(server.requests) == 5


@pytest.mark.usefixtures("quick")
async def test_the_number_of_attempts_can_be_set(server: ModelServer) -> None:
    server.respond(lambda _: json_answer({}, 500))
    with pytest.raises(ModelFailed):
        await provider(server.url, attempts=2).generate(request(), Heard())
    assert len(server.requests) == 2


@pytest.mark.usefixtures("quick")
async def test_rate_limits_that_do_not_end(server: ModelServer) -> None:
    server.respond(lambda _: json_answer({}, 429, headers={"retry-after-ms": "5"}))
    with pytest.raises(ModelRateLimited) as caught:
        await provider(server.url, attempts=3).generate(request(), Heard())
    assert caught.value.retry_after == 0.005
    assert (caught.value.status, caught.value.attempts) == (429, 3)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [429, 503, 500])
async def test_an_asked_wait_is_kept(server: ModelServer, status: int) -> None:
    heard = Heard()
    headers = {"retry-after-ms": "40", "retry-after": "60"}
    server.script(json_answer({}, status, headers=headers), GOOD)
    await provider(server.url).generate(request(), heard)
    assert 0.04 <= heard.retries[0][1] <= 0.048


@pytest.mark.parametrize("status", [429, 503])
async def test_an_asked_wait_above_the_cap_fails_at_once(server: ModelServer, status: int) -> None:
    server.script(json_answer({}, status, headers={"retry-after": "86400"}))
    with pytest.raises(ModelRateLimited) as caught:
        await provider(server.url).generate(request(), Heard())
    assert (caught.value.retry_after, caught.value.status) == (86400.0, status)
    assert len(server.requests) == 1


@pytest.mark.usefixtures("quick")
async def test_the_cap_can_be_set(server: ModelServer) -> None:
    server.script(json_answer({}, 429, headers={"retry-after": "2"}))
    with pytest.raises(ModelRateLimited):
        await provider(server.url, max_retry_after=1.0).generate(request(), Heard())


@pytest.mark.usefixtures("quick")
async def test_a_senseless_wait_is_ordinary_backoff(server: ModelServer) -> None:
    heard = Heard()
    for value in ("0", "-1", "nan", "soon"):
        server.script(json_answer({}, 429, headers={"retry-after": value}))
    server.script(GOOD)
    await provider(server.url).generate(request(), heard)
    assert [delay for _, delay, _ in heard.retries] == [0.001] * 4


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("after", ["drop", "reset"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_stream_that_breaks_is_tried_again(
    server: ModelServer, api: str, after: Any
) -> None:
    heard = Heard()
    whole = {
        "chat": wires.chat_text("half", "other half"),
        "responses": wires.responses_stream([wires.message_item("half of it")], pieces=2),
    }[api]
    cut = whole[: whole.index(b"half") + 60]
    server.script(Answer(chunks=[cut], after=after), Answer(chunks=[whole]))
    reply = await provider(server.url, api).generate(request(), heard)
    assert text_of(reply.items[0]).startswith("half")
    ((_, _, error),) = heard.retries
    assert isinstance(error, ModelFailed)
    assert "broke" in str(error)


@pytest.mark.parametrize("after", ["drop", "end"])
async def test_a_broken_stream_tells_what_had_arrived(server: ModelServer, after: Any) -> None:
    chunk = wires.sse([wires.chat_chunk({"content": "Once upon a "})])
    server.script(Answer(chunks=[chunk, chunk], after=after))
    with pytest.raises(ModelFailed) as caught:
        await provider(server.url, attempts=1).generate(request(), Heard())
    assert caught.value.partial == "Once upon a Once upon a "
    assert (caught.value.status, caught.value.retryable) == (200, True)


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_a_stream_that_ends_inside_a_character_is_broken(
    server: ModelServer, framing: Any
) -> None:
    stream = wires.sse([wires.chat_chunk({"content": "日本"})])
    cut = stream[: stream.index("本".encode()) + 2]
    server.script(Answer(chunks=[cut], framing=framing))
    with pytest.raises(ModelFailed, match="broke"):
        await provider(server.url, attempts=1).generate(request(), Heard())


async def test_bytes_that_are_no_utf8_are_a_broken_stream(server: ModelServer) -> None:
    stream = wires.chat_text("abc").replace(b"abc", b"a\xffc")
    server.script(Answer(chunks=[stream]))
    with pytest.raises(ModelFailed, match="UTF-8"):
        await provider(server.url, attempts=1).generate(request(), Heard())


async def test_a_reset_after_the_finish_reason_loses_only_the_usage(server: ModelServer) -> None:
    stream = wires.sse([wires.chat_chunk({"content": "all of it"}), wires.chat_chunk({}, "stop")])
    server.script(Answer(chunks=[stream], after="drop"))
    reply = await provider(server.url, attempts=1).generate(request(), Heard())
    assert text_of(reply.items[0]) == "all of it"
    assert reply.usage is None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_empty_answer_is_tried_again(server: ModelServer, api: str) -> None:
    heard = Heard()
    empty = {"chat": wires.chat_stream(), "responses": wires.responses_stream([])}[api]
    server.script(Answer(chunks=[empty]), Answer(chunks=[empty]))
    reply = await provider(server.url, api).generate(request(), heard)
    assert reply.items
    assert len(heard.retries) == 2


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    "event",
    [
        '{"choices":[1]}',
        '{"choices":[{"delta":[]}, 5]}',
        '{"choices":[{"delta":{"tool_calls":[null]}}]}',
        '{"type":"response.completed","response":[]}',
        '{"type":"response.completed","response":{"output":[7]}}',
        '{"type":"response.completed","response":{"output":[{"type":"function_call","id":5}]}}',
        '{"choices":',
    ],
)
async def test_answers_of_a_wild_form_are_failures_of_ours(
    server: ModelServer, api: str, event: str
) -> None:
    server.respond(lambda _: Answer(chunks=[f"data: {event}\n\n".encode()]))
    with pytest.raises(ModelFailed) as caught:
        await provider(server.url, api, attempts=2).generate(request(), Heard())
    assert caught.value.attempts == 2


async def test_a_page_instead_of_a_stream_is_a_failure(server: ModelServer) -> None:
    page = Answer(chunks=[b"<html>log in first</html>"], content_type="text/html")
    server.script(page)
    with pytest.raises(ModelFailed, match="text/html"):
        await provider(server.url, attempts=1).generate(request(), Heard())


async def test_a_redirect_is_not_followed(server: ModelServer) -> None:
    server.script(json_answer({}, 307, headers={"location": "http://elsewhere/"}))
    with pytest.raises(ModelFailed) as caught:
        await provider(server.url).generate(request(), Heard())
    assert (caught.value.status, caught.value.attempts) == (307, 1)


async def test_the_key_is_never_in_an_error(server: ModelServer) -> None:
    def echo(got: Recorded) -> Answer:
        return json_answer({"error": {"message": f"bad: {got.headers['authorization']}"}}, 401)

    server.respond(echo)
    with pytest.raises(ModelFailed) as caught:
        await provider(server.url).generate(request(), Heard())
    assert "sk-test-secret" not in str(caught.value)
    assert "sk-test-secret" not in repr(vars(caught.value))
    assert "***" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)) == caught.value
