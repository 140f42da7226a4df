from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from noetic_ray.models.pricing import list_price, reported_cost
from noetic_ray.usage import RoundUsage

OPENAI = "https://api.openai.com/v1"
ROUTER = "https://openrouter.ai/api/v1"
LOCAL = "http://127.0.0.1:8000/v1"
USED = RoundUsage(1_000_000, 1_000_000, 0)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"cost": 0.25}, 0.25),
        ({"cost": 0}, 0.0),
        ({"cost": "0.5"}, 0.5),
        ({"cost": None}, None),
        ({"cost": True}, None),
        ({"cost": -1}, None),
        ({"cost": float("nan")}, None),
        ({"cost": "much"}, None),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.3}}, 0.3),
        ({"cost": 0.1, "is_byok": True, "cost_details": None}, 0.1),
        ({"cost": 0.1, "cost_details": {"upstream_inference_cost": 0.1}}, 0.1),
        ({}, None),
        (None, None),
    ],
)
def test_the_figure_of_the_provider(usage: Any, cost: float | None) -> None:
    assert reported_cost(usage) == cost


async def test_a_known_model_has_a_list_price() -> None:
    price = await list_price(OPENAI, "gpt-4o-mini", USED)
    assert price == pytest.approx(0.15 + 0.60)


async def test_cached_tokens_are_cheaper() -> None:
    plain = await list_price(OPENAI, "gpt-4o-mini", RoundUsage(1000, 10))
    cached = await list_price(OPENAI, "gpt-4o-mini", RoundUsage(1000, 10, 900))
    assert plain is not None
    assert cached is not None
    assert 0 < cached < plain


async def test_a_gateway_charges_the_makers_price_for_a_model_only_its_maker_has() -> None:
    for url in (LOCAL, "https://gateway.example.com/v1"):
        assert await list_price(url, "openai/gpt-4o-mini", USED) == pytest.approx(0.75)


async def test_a_router_knows_its_own_names() -> None:
    assert await list_price(ROUTER, "openai/gpt-4o-mini", USED) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("url", "model"),
    [
        (OPENAI, "no-such-model"),
        (LOCAL, "llama-3.1-8b"),
        (LOCAL, "gpt-oss-20b"),
        (LOCAL, "deepseek-r1"),
        ("http://vllm:8000/v1", "mistral-large"),
        ("https://gateway.example.com/v1", "no-such-model"),
    ],
)
async def test_what_is_not_known_has_no_price(url: str, model: str) -> None:
    assert await list_price(url, model, USED) is None


async def test_unknown_usage_has_no_price() -> None:
    assert await list_price(OPENAI, "gpt-4o-mini", None) is None


def test_the_price_list_is_loaded_by_the_first_reply_with_a_price_only() -> None:
    code = f"""
import asyncio, sys
import noetic_ray.models.openai
from noetic_ray.models.pricing import list_price
from noetic_ray.usage import RoundUsage
assert not {{"httpx", "aiohttp", "genai_prices"}} & sys.modules.keys()
asyncio.run(list_price({LOCAL!r}, "fake-1", RoundUsage(1, 1)))
assert "genai_prices" not in sys.modules
asyncio.run(list_price({OPENAI!r}, "gpt-4o-mini", RoundUsage(1, 1)))
assert "genai_prices" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
