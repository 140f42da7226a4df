"""Bodies that are too large, no JSON, or of the wrong shape."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx
import pytest

import noetic_ray as nr
from noetic_ray.serve import make_app
from tests.serve import agents
from tests.serve.conftest import Live

JSON = {"Content-Type": "application/json"}


def post(live: Live, content: bytes, path: str = "/v1/runs") -> httpx.Response:
    return live.http.post(path, content=content, headers=JSON)


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/chat/completions"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"not json",
        b'{"input": NaN}',
        b'{"input": Infinity}',
        b'{"input": 1e999}',
        b'{"input": ' + b"1" * 400 + b"}",
        b'{"input": ' + b"1" * 6_000 + b"}",
        b'{"input": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"input": "\xed\xa0\x80"}',
        b"\xff\xfe",
        b'{"input": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"input": ' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}",
    ],
)
def test_what_is_no_json_is_a_bad_request(standing: Live, content: bytes, path: str) -> None:
    answer = post(standing, content, path)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "invalid_json"
    assert not any(entry.agent != "silent" for entry in standing.service.entries())


def test_deep_but_sane_json_goes_through(standing: Live) -> None:
    deep = b"[" * 100 + b"1" + b"]" * 100
    answer = post(standing, b'{"agent": "silent", "input": ' + deep + b"}")
    assert answer.status_code == 201


@pytest.mark.parametrize(
    "content",
    [
        b'{"messages": []}',
        b'{"model": "talk"}',
        b'{"model": "talk", "messages": "hi"}',
        b'{"model": "talk", "messages": ["hi"]}',
        b'{"model": "talk", "messages": [{"content": "hi"}]}',
        b'{"model": "talk", "messages": [{"role": "boss", "content": "hi"}]}',
        b'{"model": "talk", "messages": [{"role": "user"}]}',
        b'{"model": "talk", "messages": [{"role": "user", "content": null}]}',
        b'{"model": "talk", "messages": [{"role": "user", "content": 7}]}',
        b'{"model": "talk", "messages": [{"role": "user", "content": [{"type": "smell"}]}]}',
        b'{"model": "talk", "messages": [{"role": "tool", "content": "x"}]}',
        b'{"model": 7, "messages": [{"role": "user", "content": "hi"}]}',
        b'{"model": "talk", "stream": "yes", "messages": [{"role": "user", "content": "hi"}]}',
        b'{"model": "talk", "n": 0, "messages": [{"role": "user", "content": "hi"}]}',
        b'{"model": "talk", "n": 1.5, "messages": [{"role": "user", "content": "hi"}]}',
        b'{"model": "talk", "metadata": [], "messages": [{"role": "user", "content": "hi"}]}',
        b"[]",
        b"null",
    ],
)
def test_a_conversation_of_the_wrong_shape(standing: Live, content: bytes) -> None:
    answer = post(standing, content, "/v1/chat/completions")
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_what_was_sent_is_not_repeated(standing: Live) -> None:
    answer = post(standing, b'{"agent": ["pa55word"]}')
    assert answer.status_code == 422
    assert "pa55word" not in answer.text


def test_a_large_body_is_refused(make_live: Callable[..., Live]) -> None:
    live = make_live(agents.silent, max_body=1_000)
    assert post(live, b'{"input": "' + b"x" * 900 + b'"}').status_code == 201
    answer = post(live, b'{"input": "' + b"x" * 1_000 + b'"}')
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"


def test_a_large_body_without_a_length_is_refused_on_the_way(
    make_live: Callable[..., Live],
) -> None:
    live = make_live(agents.silent, max_body=1_000)
    with socket.create_connection(("127.0.0.1", live.port), timeout=10.0) as connection:
        connection.sendall(
            b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + b"x" * 1_024 + b"\r\n") * 2
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_promise_of_a_large_body_is_enough(make_live: Callable[..., Live]) -> None:
    live = make_live(agents.silent, max_body=1_000)
    with socket.create_connection(("127.0.0.1", live.port), timeout=10.0) as connection:
        connection.sendall(
            b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999\r\n\r\n{"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_an_encoded_body_is_refused(standing: Live) -> None:
    answer = standing.http.post(
        "/v1/runs", content=b"x", headers={**JSON, "Content-Encoding": "gzip"}
    )
    assert answer.status_code == 415


@pytest.mark.parametrize("limit", [0, -1, "1"])
def test_a_limit_is_a_number_of_bytes(
    make_harness: Callable[..., nr.Harness], limit: object
) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        make_app(make_harness(placement="inline"), agents.talk, max_body=limit)  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_MAX_BODY"
