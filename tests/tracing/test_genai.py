"""Attributes of model calls over HTTP, and what must never be among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import noetic_ray as nr
from noetic_ray.tracing.genai import provider_attributes, request_attributes
from tests.support import wires
from tests.support.model_server import Answer, ModelServer
from tests.tracing.traces import attributes, trace_of

SECRET = "sk-SECRET-KEY"


def of_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    step = SimpleNamespace(id="s", model="m", settings=settings, output=None)
    found = request_attributes(object(), step)
    start = "gen_ai.request."
    return {k.removeprefix(start): v for k, v in found.items() if k.startswith(start)}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, {}),
        ({"temperature": 0, "top_p": 0.5, "seed": 3}, {"temperature": 0, "top_p": 0.5, "seed": 3}),
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"max_completion_tokens": 5, "max_tokens": 9}, {"max_tokens": 5}),
        ({"stop": "END"}, {"stop_sequences": ("END",)}),
        ({"stop": ["a", "b"], "n": 2}, {"stop_sequences": ("a", "b"), "choice.count": 2}),
        ({"temperature": None, "max_tokens": "many", "n": 1, "metadata": {"key": SECRET}}, {}),
    ],
)
def test_settings_of_a_request_become_attributes(
    settings: dict[str, Any], found: dict[str, Any]
) -> None:
    assert of_settings(settings) == {"model": "m", **found}


def test_a_structured_output_is_json() -> None:
    step = SimpleNamespace(id="s", model="m", settings=None, output=int)
    assert request_attributes(object(), step)["gen_ai.output.type"] == "json"


@pytest.mark.parametrize(
    ("url", "provider", "address", "port"),
    [
        ("https://api.openai.com/v1", "openai", "api.openai.com", 443),
        ("https://openrouter.ai/api/v1", "openrouter", "openrouter.ai", 443),
        ("https://mine.openai.azure.com/v1", "azure.ai.openai", "mine.openai.azure.com", 443),
        ("https://api.groq.com/openai/v1", "groq", "api.groq.com", 443),
        ("http://localhost:8000/v1", "openai", "localhost", 8000),
        (f"http://me:{SECRET}@[::1]/v1?key={SECRET}", "openai", "::1", 80),
    ],
)
def test_a_provider_is_known_by_its_host(url: str, provider: str, address: str, port: int) -> None:
    assert provider_attributes(SimpleNamespace(base_url=url)) == {
        "gen_ai.provider.name": provider,
        "server.address": address,
        "server.port": port,
    }


def test_a_model_without_an_address_goes_by_its_type() -> None:
    assert provider_attributes(3) == {"gen_ai.provider.name": "int"}


MakeHarness = Callable[..., nr.Harness]
asks = nr.call_model("asks", "gpt-x")


@pytest.mark.parametrize(
    ("api", "answer", "id", "end"),
    [
        ("chat", wires.chat_text("hello"), "chatcmpl-1", "stop"),
        (
            "responses",
            wires.responses_stream([wires.message_item("hello")]),
            "resp_1",
            "completed",
        ),
    ],
)
def test_a_call_over_http_tells_the_answers_id_and_end_but_no_key(
    make_harness: MakeHarness, api: Any, answer: bytes, id: str, end: str
) -> None:
    exporter = InMemorySpanExporter()
    with ModelServer() as server:
        server.script(Answer(chunks=[answer]))
        model = nr.models.OpenAI(server.url, SECRET, api)
        harness = make_harness(model, placement="inline", exporter=exporter)
        run = harness.start(asks, "hi")
        run.result(30)
        (request,) = server.wait_for(1)
        assert SECRET in request.headers["authorization"]
    chat = trace_of(exporter, run.id).one("chat gpt-x")
    found = attributes(chat)
    assert found["gen_ai.response.id"] == id
    assert found["gen_ai.response.finish_reasons"] == (end,)
    assert found["server.port"] == int(server.url.rpartition(":")[2].partition("/")[0])
    assert not [s.name for s in exporter.get_finished_spans() if SECRET in s.to_json()]


def test_a_refused_call_shows_its_retries_and_no_key(make_harness: MakeHarness) -> None:
    exporter = InMemorySpanExporter()
    told = f'{{"error": {{"message": "Incorrect API key provided: {SECRET}"}}}}'.encode()
    with ModelServer() as server:
        soon = {"retry-after-ms": "1"}
        busy = Answer(503, [told], soon, content_type="application/json")
        server.script(busy, Answer(401, [told], content_type="application/json"))
        model = nr.models.OpenAI(server.url, SECRET, "chat")
        harness = make_harness(model, placement="inline", exporter=exporter)
        run = harness.start(asks, "hi")
        with pytest.raises(nr.ModelFailed):
            run.result(30)
    chat = trace_of(exporter, run.id).one("chat gpt-x")
    assert attributes(chat)["error.type"] == "ModelFailed"
    assert [event.name for event in chat.events] == ["retry"]
    assert not [s.name for s in exporter.get_finished_spans() if SECRET in s.to_json()]
