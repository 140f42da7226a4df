"""What a round cost, in dollars.

The provider's own figure wins. Otherwise list prices come from the `genai-prices` package as
installed: nothing is fetched. What is not known is None, never 0.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from noetic_ray.usage import RoundUsage

#: Models that only their makers and gateways to those serve, so that the name settles the price.
_MAKERS = re.compile(
    r"^(?:[\w.-]+/)?(?:(?P<openai>gpt-(?!oss)|chatgpt-|o[134](?:-|$))|(?P<anthropic>claude-)"
    r"|(?P<google>gemini-)|(?P<xai>grok-))"
)
_MAKER_IDS = {"openai": "openai", "anthropic": "anthropic", "google": "google", "xai": "x-ai"}

_Calculator = Callable[..., Any]
_loaded: tuple[_Calculator, _Calculator] | None = None


def reported_cost(usage: Mapping[str, Any] | None) -> float | None:
    """The cost a provider wrote into its usage object, when it wrote one."""
    if not usage:
        return None
    cost = _amount(usage.get("cost"))
    if cost is None or not usage.get("is_byok"):
        return cost
    # With the caller's own upstream key `cost` is only the gateway's fee.
    details = usage.get("cost_details")
    upstream = details.get("upstream_inference_cost") if isinstance(details, Mapping) else None
    return cost + (_amount(upstream) or 0.0)


async def list_price(
    base_url: str, model: str, usage: RoundUsage | None, tier: str | None = None
) -> float | None:
    """The list price of a round, None when usage, provider or model are not known.

    The first call that can have an answer loads the price list, in a thread (0.2 s, 30 MB).
    """
    if usage is None or not _may_have_price(base_url, model):
        return None
    if _loaded is None:
        try:
            await asyncio.to_thread(_load)
        except ImportError:
            return None
    return _price(base_url, model, usage, tier)


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = float(value)
    except (ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None


@lru_cache(maxsize=256)
def _may_have_price(base_url: str, model: str) -> bool:
    """False for an open model on a host of one's own: nobody knows what that costs."""
    host = urlsplit(base_url).hostname or ""
    own = "." not in host or ":" in host or host.replace(".", "").isdigit()
    return not own or _MAKERS.match(model) is not None


def _load() -> tuple[_Calculator, _Calculator]:
    global _loaded
    if _loaded is None:
        prices = importlib.import_module("genai_prices")
        _loaded = prices.calc_price, prices.Usage
    return _loaded


def _price(base_url: str, model: str, usage: RoundUsage, tier: str | None) -> float | None:
    calculate, make_usage = _load()
    counts = make_usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    options = {"price_context": {"service_tier": tier}} if tier else {}
    for where in _sellers(base_url, model):
        try:
            price = calculate(counts, **where, **options)
        except (LookupError, ValueError, TypeError):
            continue
        if any(value is not None for value in vars(price.model_price).values()):
            return _amount(float(price.total_price))
    return None


def _sellers(base_url: str, model: str) -> list[dict[str, Any]]:
    """Whom to ask for the price: the host itself, then the maker of the model."""
    sellers: list[dict[str, Any]] = [{"model_ref": model, "provider_api_url": base_url}]
    maker = _MAKERS.match(model)
    if maker is not None and maker.lastgroup is not None:
        name = model.rpartition("/")[2]
        sellers.append({"model_ref": name, "provider_id": _MAKER_IDS[maker.lastgroup]})
    return sellers
