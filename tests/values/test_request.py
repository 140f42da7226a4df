from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from noetic_ray.errors import ConfigError
from noetic_ray.request import ClientInfo, RequestInfo, client_type

IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X)"


def test_defaults() -> None:
    request = RequestInfo.of(None)
    assert request.accept == "standard"
    assert request.referer == "api"
    assert (request.chat_id, request.locale, request.route) == ("", "", "")
    assert (request.search, request.args) == (None, None)
    assert (request.metadata, request.authorized) == ({}, {})
    assert (request.retry, request.retry_times) == (False, 0)
    assert request.client == ClientInfo(type="web", user_agent="", ip="")


@pytest.mark.parametrize(
    ("given", "accept"),
    [
        ("openai", "standard"),
        ("cui", "cui-web"),
        ("CUI-Native", "cui-native"),
        ("cui-desktop", "cui-desktop"),
        ("cui-web", "cui-web"),
        ("standard", "standard"),
        ("telegram", "standard"),
        ("", "standard"),
        (None, "standard"),
        (5, "standard"),
    ],
)
def test_accept_is_one_of_four_formats(given: Any, accept: str) -> None:
    assert RequestInfo.of({"accept": given}).accept == accept


@pytest.mark.parametrize(
    ("given", "referer"), [("hook", "hook"), ("AGENT", "agent"), ("moon", "api"), (None, "api")]
)
def test_an_unknown_referer_is_api(given: Any, referer: str) -> None:
    assert RequestInfo.of({"referer": given}).referer == referer


def test_locale_and_theme_are_lower_case() -> None:
    request = RequestInfo.of({"locale": "zh-CN", "theme": "Dark"})
    assert (request.locale, request.theme) == ("zh-cn", "dark")


@pytest.mark.parametrize("search", [True, False, "tavily", None])
def test_search_is_a_switch_or_a_name(search: Any) -> None:
    assert RequestInfo.of({"search": search}).search is search


def test_null_means_absent() -> None:
    given = dict.fromkeys(["chat_id", "locale", "client", "metadata", "authorized", "args"])
    assert RequestInfo.of(given) == RequestInfo()


@pytest.mark.parametrize(
    ("agent", "kind"),
    [
        ("", "web"),
        ("Mozilla/5.0 Firefox", "web"),
        ("My-Agent/1.0 (Windows)", "agent"),
        ("JSSDK 2", "jssdk"),
        ("Linux; Android 14", "android"),
        (IPHONE, "ios"),
        ("iPad", "ios"),
        ("Windows NT 10", "windows"),
        ("Macintosh; Intel Mac OS X", "macos"),
        ("X11; Linux x86_64", "linux"),
    ],
)
def test_client_type_follows_from_the_user_agent(agent: str, kind: str) -> None:
    assert client_type(agent) == kind
    assert RequestInfo.of({"client": {"user_agent": agent}}).client.type == kind


def test_a_given_client_type_stands() -> None:
    client = RequestInfo.of({"client": {"type": "kiosk", "user_agent": IPHONE}}).client
    assert (client.type, client.user_agent) == ("kiosk", IPHONE)


@pytest.mark.parametrize(
    "wrong",
    [
        {"chat_id": 5},
        {"metadata": "x"},
        {"args": "x"},
        {"client": "x"},
        {"retry_times": -1},
        {"search": 5},
        "text",
        5,
    ],
)
def test_a_wrong_type_is_a_config_error(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        RequestInfo.of(wrong)
    assert caught.value.code == "INVALID_REQUEST"


def test_it_is_a_frozen_snapshot_that_pickles() -> None:
    metadata = {"a": 1}
    request = RequestInfo.of({"metadata": metadata, "chat_id": "c", "extra": [1]})
    metadata["a"] = 2
    assert request.metadata == {"a": 1}
    assert request.model_extra == {"extra": [1]}
    assert RequestInfo.of(request) is request
    assert pickle.loads(pickle.dumps(request)) == request
    with pytest.raises(ValidationError):
        request.chat_id = "d"


def test_changes_merge_metadata_and_ignore_empty_values() -> None:
    request = RequestInfo.of({"connector": "a", "theme": "dark", "metadata": {"x": 1, "y": 1}})
    changed = request.changed(connector="b", theme="", locale=None, metadata={"y": 2})
    assert (changed.connector, changed.theme) == ("b", "dark")
    assert changed.metadata == {"x": 1, "y": 2}
    assert request.metadata == {"x": 1, "y": 1}
    assert request.changed(search=False).search is False


@pytest.mark.parametrize("wrong", [{"connector": 5}, {"metadata": []}, {"locale": ["x"]}])
def test_a_change_to_a_wrong_type_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RequestInfo().changed(**wrong)


def encoded(data: Any) -> str:
    return base64.b64encode(json.dumps(data).encode()).decode()


HEADERS = {
    "X-Yao-Chat": "header-chat",
    "X-Yao-Assistant": "header-assistant",
    "X-Yao-Theme": "LIGHT",
    "X-Yao-Accept": "cui",
    "X-Yao-Route": "/header",
    "X-Yao-Referer": "mcp",
    "X-Yao-Metadata": encoded({"from": "header"}),
    "Accept-Language": "de-AT;q=0.9, en;q=0.5",
    "User-Agent": IPHONE,
    "X-Forwarded-For": "10.0.0.1, 10.0.0.2",
}
BODY = {
    "model": "gpt-yao_body-assistant",
    "route": "/body",
    "metadata": {
        "chat_id": "body-chat",
        "theme": "body-theme",
        "accept": "cui-native",
        "referer": "tool",
        "locale": "FR",
    },
}


def test_query_beats_headers_and_headers_beat_the_body() -> None:
    query = {
        "chat_id": "query-chat",
        "assistant_id": "query-assistant",
        "locale": "EN-us",
        "theme": "Query",
        "accept": "cui-desktop",
        "route": "/query",
        "referer": "script",
        "metadata": '{"from": "query"}',
    }
    request = RequestInfo.from_http(HEADERS, query, BODY)
    assert (request.chat_id, request.assistant_id) == ("query-chat", "query-assistant")
    assert (request.locale, request.theme) == ("en-us", "query")
    assert (request.accept, request.route, request.referer) == ("cui-desktop", "/query", "script")
    assert request.metadata == {"from": "query"}

    request = RequestInfo.from_http(HEADERS, {}, BODY)
    assert (request.chat_id, request.assistant_id) == ("header-chat", "header-assistant")
    assert (request.locale, request.theme) == ("de-at", "light")
    assert (request.accept, request.route, request.referer) == ("cui-web", "/header", "mcp")
    assert request.metadata == {"from": "header"}

    request = RequestInfo.from_http({}, {}, BODY)
    assert (request.chat_id, request.assistant_id) == ("body-chat", "body-assistant")
    assert (request.locale, request.theme) == ("fr", "body-theme")
    assert (request.accept, request.route, request.referer) == ("cui-native", "/body", "tool")
    assert request.metadata == BODY["metadata"]


def test_the_path_beats_everything_for_the_assistant() -> None:
    request = RequestInfo.from_http(HEADERS, {"assistant_id": "q"}, BODY, assistant_id="path")
    assert request.assistant_id == "path"


def test_the_assistant_is_what_follows_the_last_mark_in_the_model() -> None:
    assert RequestInfo.from_http({}, {}, {"model": "a-yao_b-yao_c"}).assistant_id == "c"
    assert RequestInfo.from_http({}, {}, {"model": "gpt"}).assistant_id == ""


def test_client_is_read_from_the_headers() -> None:
    client = RequestInfo.from_http(HEADERS).client
    assert (client.type, client.user_agent, client.ip) == ("ios", IPHONE, "10.0.0.1")
    assert RequestInfo.from_http(HEADERS, ip="1.2.3.4").client.ip == "1.2.3.4"
    assert RequestInfo.from_http({"X-Real-IP": "9.9.9.9"}).client.ip == "9.9.9.9"


def test_a_request_without_a_chat_gets_a_fresh_readable_id() -> None:
    ids = {RequestInfo.from_http({}).chat_id for _ in range(50)}
    assert len(ids) == 50
    assert all(len(each) == 16 and not set(each) & set("0Oo1lIi") for each in ids)


def test_header_names_ignore_case_and_pairs_and_bytes_are_understood() -> None:
    pairs = [("x-YAO-chat", "c"), ("USER-AGENT", "linux")]
    body = json.dumps({"route": "/r"}).encode()
    request = RequestInfo.from_http(pairs, {"theme": ["dark", "light"]}, body)
    assert (request.chat_id, request.route, request.theme) == ("c", "/r", "dark")
    assert request.client.type == "linux"


@pytest.mark.parametrize(
    ("given", "search"),
    [("true", True), ("0", False), ("bing", "bing"), ("", None)],
)
def test_search_from_the_query(given: str, search: Any) -> None:
    assert RequestInfo.from_http({}, {"search": given}).search is search or search == "bing"


def test_search_from_the_body() -> None:
    assert RequestInfo.from_http({}, {}, {"search": False}).search is False


def test_malformed_parts_count_as_absent() -> None:
    headers = {"X-Yao-Metadata": "%%%", "Accept-Language": "*"}
    request = RequestInfo.from_http(headers, {"metadata": "{nope"}, b"\xff{not json")
    assert request.metadata == {}
    assert request.locale == ""
    assert RequestInfo.from_http({}, {"metadata": "[1]"}, {"metadata": {"a": 1}}).metadata == {
        "a": 1
    }
    assert RequestInfo.from_http({}, None, "[1]").metadata == {}


def test_metadata_in_a_header_may_be_url_safe_and_unpadded() -> None:
    text = base64.urlsafe_b64encode(json.dumps({"q": "??>>"}).encode()).decode().rstrip("=")
    assert RequestInfo.from_http({"X-Yao-Metadata": text}).metadata == {"q": "??>>"}


def test_authorization_never_comes_from_the_request() -> None:
    body = {"authorized": {"sub": "mallory"}, "metadata": {"authorized": {"sub": "mallory"}}}
    assert RequestInfo.from_http({}, {}, body).authorized == {}
    known = RequestInfo.from_http({}, {}, body, authorized={"sub": "alice"})
    assert known.authorized == {"sub": "alice"}
