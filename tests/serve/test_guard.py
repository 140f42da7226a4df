"""Who is let in."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import noetic_ray as nr
from noetic_ray.serve import make_app
from noetic_ray.serve.guard import check_binding, is_loopback
from tests.serve import agents
from tests.serve.conftest import Live

TOKEN = "s3cret-token"
ROUTES = [
    ("GET", "/v1/models"),
    ("GET", "/openapi.json"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/x"),
    ("POST", "/v1/runs"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/nothing"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "given", [None, "", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer wrong", f"Bearer {TOKEN} x"]
)
def test_every_route_needs_the_token(
    guarded: Live, method: str, path: str, given: str | None
) -> None:
    headers = {} if given is None else {"Authorization": given}
    answer = guarded.http.request(
        method, path, headers=headers, json={} if method == "POST" else None
    )
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["kind"] == "unauthorized"
    assert TOKEN not in answer.text


def test_but_the_health_check_does_not(guarded: Live) -> None:
    assert guarded.http.get("/healthz").json() == {"status": "ok"}


def test_with_the_token_the_door_is_open(guarded: Live) -> None:
    assert [model.id for model in guarded.openai().models.list()] == [
        step.id for step in agents.ALL
    ]
    answer = guarded.http.get("/v1/models", headers={"Authorization": f"bearer {TOKEN}"})
    assert answer.status_code == 200


def test_with_a_token_other_names_of_the_server_are_fine(guarded: Live) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "agents.example.com"}
    assert guarded.http.get("/v1/models", headers=headers).status_code == 200


def test_two_tokens_are_none(guarded: Live) -> None:
    headers = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
    assert guarded.http.get("/v1/models", headers=headers).status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.7", "", "[::2]", "["])
def test_without_a_token_a_foreign_host_is_refused(standing: Live, host: str) -> None:
    answer = standing.http.get("/v1/models", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "not_local"


@pytest.mark.parametrize("host", ["localhost", "localhost:99", "127.0.0.1", "127.9.9.9", "[::1]:8"])
def test_names_of_this_machine_are_fine(standing: Live, host: str) -> None:
    assert standing.http.get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1.evil.example"]
)
def test_without_a_token_a_page_of_elsewhere_is_refused(standing: Live, origin: str) -> None:
    answer = standing.http.get("/v1/models", headers={"Origin": origin})
    assert answer.status_code == 403


def test_a_page_of_this_machine_is_fine(standing: Live) -> None:
    answer = standing.http.get("/v1/models", headers={"Origin": "http://localhost:3000"})
    assert answer.status_code == 200


async def test_without_a_token_another_address_of_the_server_is_refused(
    make_harness: Callable[..., nr.Harness],
) -> None:
    app = make_app(make_harness(placement="inline"), agents.talk)
    for url, status in (("http://10.0.0.1", 403), ("http://127.0.0.1", 200)):
        transport = httpx.ASGITransport(app=app)
        headers = {"Host": "127.0.0.1"}
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            assert (await client.get("/healthz", headers=headers)).status_code == status


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None])
def test_a_post_needs_json(standing: Live, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = standing.http.post("/v1/runs", content=b'{"agent": "talk"}', headers=headers)
    assert answer.status_code == 415
    assert standing.service.entries() == []


def test_json_with_a_charset_is_json(standing: Live) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    answer = standing.http.post("/v1/runs", content=b'{"agent": "nobody"}', headers=headers)
    assert answer.status_code == 404


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.com", "127.0.0.1.x"])
def test_other_addresses_need_a_token(host: str) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        check_binding(host, None)
    assert caught.value.code == "TOKEN_REQUIRED"
    check_binding(host, TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3", "::ffff:127.0.0.1"])
def test_this_machine_needs_none(host: str) -> None:
    assert is_loopback(host)
    check_binding(host, None)


@pytest.mark.parametrize("token", ["", " ", "two words", "caf\u00e9", "line\n", 7])
def test_a_token_no_header_can_carry_is_refused(
    make_harness: Callable[..., nr.Harness], token: Any
) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        make_app(make_harness(placement="inline"), agents.talk, token=token)
    assert caught.value.code == "INVALID_TOKEN"


def test_endless_headers_are_refused(standing: Live) -> None:
    many = {f"X-{number}": "x" for number in range(300)}
    assert standing.http.get("/v1/models", headers=many).status_code == 431
    with socket.create_connection(("127.0.0.1", standing.port), timeout=10.0) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Big: " + b"x" * 70_000)
        connection.sendall(b"\r\n\r\n")
        assert connection.recv(4096).split(b" ")[1].startswith(b"4")
