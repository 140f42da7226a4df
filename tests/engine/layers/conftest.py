"""A harness whose model says back, as JSON, what it was asked with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import BACKENDS, unique


def tell(request: Any) -> Any:
    """Answer with the roles and texts of the request."""
    seen = [
        [getattr(item, "role", item.type), nr.item_text(item) or getattr(item, "name", "")]
        for item in request.items
    ]
    tools = [tool.name for tool in request.tools]
    answer = {"items": seen, "tools": tools, "instructions": request.instructions}
    return nr.testing.reply(json.dumps(answer), input_tokens=10, output_tokens=5)


@pytest.fixture(scope="session", params=BACKENDS)
def telling(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """Shared by the tests of layers, on each backend in turn."""
    if request.param != "inline":
        request.getfixturevalue("ray_cluster")
    name = unique(f"telling-{request.param}")
    model = nr.testing.ScriptedModel(tell)
    with nr.Harness(name, model, placement=request.param, kill_after=2.0) as harness:
        yield harness
