"""The description of the app is honest: requests made from it never break the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import noetic_ray as nr
from noetic_ray.serve.openapi import describe
from tests.conftest import unique
from tests.serve import agents
from tests.serve.conftest import Live

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = [
    (method.upper(), path)
    for path, methods in describe(False)["paths"].items()
    for method in methods
]
EXAMPLES = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def lone() -> Iterator[Live]:
    """One agent, which therefore needs no name."""
    with nr.Harness(unique("test"), agents.model(), placement="inline") as harness:
        live = Live(harness, agents.greets, channels=[agents.notes])
        yield live
        live.close()


def check(live: Live, method: str, path: str, mode: str, **fixed: Any) -> None:
    """Send what the description allows, or, in the negative mode, what it does not."""
    schema = schemathesis.openapi.from_dict(live.http.get("/openapi.json").json())
    strategy = schema[path][method].as_strategy(schemathesis.GenerationMode(mode), **fixed)

    @EXAMPLES
    @given(case=strategy)
    def send(case: Any) -> None:
        answer = case.call(base_url=live.url, timeout=10.0)
        case.validate_response(answer, checks=CHECKS)

    send()


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_breaks_the_server(lone: Live, method: str, path: str) -> None:
    check(lone, method, path, "positive")


@pytest.mark.parametrize(
    ("method", "path"), [each for each in OPERATIONS if each[0] == "POST" or "events" in each[1]]
)
def test_nor_does_one_that_is_not_as_described(lone: Live, method: str, path: str) -> None:
    check(lone, method, path, "negative")


@pytest.mark.parametrize(("method", "path"), [each for each in OPERATIONS if "{run_id}" in each[1]])
def test_nor_does_one_about_a_run_that_is_known(lone: Live, method: str, path: str) -> None:
    id = lone.start("greets", "hi")
    lone.wait_for(id, "completed")
    known = {"run_id": id, "channel": "notes", "message_id": "M1"}
    named = {name: value for name, value in known.items() if f"{{{name}}}" in path}
    check(lone, method, path, "positive", path_parameters=named)


def test_every_route_is_described(lone: Live) -> None:
    described = {
        (method.upper(), path.replace("}", "").replace("{", ""))
        for path, methods in lone.http.get("/openapi.json").json()["paths"].items()
        for method in methods
    }
    routed = {
        (method, route.path.replace(":path", "").replace("}", "").replace("{", ""))
        for route in lone.app.routes
        for method in route.methods  # type: ignore[attr-defined]
        if method != "HEAD"
    }
    assert routed == described


def test_a_token_is_described_where_one_is_needed() -> None:
    document = describe(True)
    assert document["security"] == [{"token": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "security" not in describe(False)
