"""What a run was asked with, as its contexts see it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pydantic
import pytest

import noetic_ray as nr

ASKED: dict[str, Any] = {
    "chat_id": "c-1",
    "assistant_id": "a-1",
    "connector": "small",
    "search": "web",
    "locale": "zh-cn",
    "theme": "dark",
    "accept": "cui-web",
    "route": "/dashboard/home",
    "referer": "api",
    "retry": True,
    "retry_times": 2,
    "client": {"type": "web", "user_agent": "Mozilla/5.0", "ip": "127.0.0.1"},
    "args": [1, {"two": 2}],
    "metadata": {"key1": "value1", "key2": 123, "key3": True},
    "authorized": {
        "user_id": "u-1",
        "constraints": {"owner_only": True, "team_only": True, "extra": {"region": "us-west"}},
    },
}


@nr.step
async def sees(depth: int, ctx: nr.Context) -> list[dict[str, Any]]:
    """The request here and in contexts below."""
    below = await ctx.spawn(sees, depth - 1) if depth else []
    return [ctx.request.model_dump(), *below]


@nr.step
async def sees_parts(_: Any, ctx: nr.Context) -> Any:
    asked = ctx.request
    limits = asked.authorized["constraints"]
    return asked.client.ip, asked.metadata["key2"], limits["extra"]["region"], asked.args


@nr.step
async def says_chat(_: Any, ctx: nr.Context) -> tuple[str, str]:
    return ctx.request.chat_id, await ctx.spawn(says_chat_below)


@nr.step
async def says_chat_below(_: Any, ctx: nr.Context) -> str:
    return ctx.request.chat_id


@nr.step
def says_chat_from_a_thread(_: Any, ctx: nr.Context) -> str:
    return ctx.request.chat_id


@nr.step
async def writes_on_it(_: Any, ctx: nr.Context) -> str:
    try:
        ctx.request.locale = "de"
    except pydantic.ValidationError as refused:
        return refused.errors()[0]["type"]
    return "written"


def test_every_field_arrives_as_it_was_given_at_every_depth(harness: nr.Harness) -> None:
    assert harness.run(sees, 2, request=ASKED) == [ASKED] * 3
    given = nr.RequestInfo(**ASKED)
    assert harness.run(sees, 0, request=given) == [ASKED]
    parts = harness.run(sees_parts, request=ASKED)
    assert parts == ("127.0.0.1", 123, "us-west", [1, {"two": 2}])


def test_without_a_request_there_are_defaults(harness: nr.Harness) -> None:
    for request in (None, {}, {"metadata": None, "authorized": None}):
        seen = harness.run(sees, 1, request=request)
        assert seen[0] == seen[1] == nr.RequestInfo().model_dump()
        assert seen[0]["metadata"] == seen[0]["authorized"] == {}
        assert seen[0]["args"] is None
        assert seen[0]["search"] is None
        assert (seen[0]["accept"], seen[0]["referer"]) == ("standard", "api")


@pytest.mark.parametrize(
    ("accept", "referer", "seen"),
    [
        ("weird", "nonsense", ("standard", "api")),
        ("cui-native", "schedule", ("cui-native", "schedule")),
        ("openai", "agent_fork", ("standard", "agent_fork")),
        ("cui", "", ("cui-web", "api")),
    ],
)
def test_formats_and_origins_that_are_not_known_count_as_the_usual_ones(
    harness: nr.Harness, accept: str, referer: str, seen: tuple[str, str]
) -> None:
    request = {"accept": accept, "referer": referer}
    found = harness.run(sees, 0, request=request)[0]
    assert (found["accept"], found["referer"]) == seen


def test_fifty_runs_at_once_keep_their_requests_apart(harness: nr.Harness) -> None:
    def five(worker: int) -> list[tuple[str, tuple[str, str]]]:
        names = [f"chat-{worker}-{n}" for n in range(5)]
        runs = [harness.start(says_chat, request={"chat_id": name}) for name in names]
        return [(name, run.result(60)) for name, run in zip(names, runs, strict=True)]

    with ThreadPoolExecutor(10) as threads:
        told = [pair for pairs in threads.map(five, range(10)) for pair in pairs]
    assert len(told) == 50
    assert [seen for _, seen in told] == [(name, name) for name, _ in told]


def test_synchronous_bodies_see_it_and_nobody_changes_its_fields(harness: nr.Harness) -> None:
    assert harness.run(says_chat_from_a_thread, request={"chat_id": "c"}) == "c"
    assert harness.run(writes_on_it, request={"locale": "en"}) == "frozen_instance"


def test_what_the_caller_changes_later_does_not_arrive(harness: nr.Harness) -> None:
    request: dict[str, Any] = {"metadata": {"k": 1}}
    run = harness.start(sees, 1, request=request)
    request["metadata"]["k"] = 2
    request["locale"] = "fr"
    assert [(each["metadata"], each["locale"]) for each in run.result(30)] == [({"k": 1}, "")] * 2


def test_a_request_of_a_wrong_shape_is_refused_before_anything_starts(harness: nr.Harness) -> None:
    with pytest.raises(nr.ConfigError) as refused:
        harness.start(sees, 0, request={"metadata": 3})
    assert refused.value.code == "INVALID_REQUEST"
    assert "metadata" in str(refused.value)
