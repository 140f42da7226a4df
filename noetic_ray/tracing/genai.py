"""Attributes of model calls, named by OpenTelemetry's conventions for generative AI.

The names are written out: the package that defines them is large, and every actor would import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from noetic_ray.tracing.values import clean_value

_REQUEST = {
    "max_output_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
}
#: What the conventions call the providers behind well-known hosts; others speak OpenAI's language.
_PROVIDERS = {
    "openai.azure.com": "azure.ai.openai",
    "openrouter.ai": "openrouter",
    "api.x.ai": "x_ai",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "perplexity.ai": "perplexity",
    "anthropic.com": "anthropic",
    "googleapis.com": "gcp.gen_ai",
}
_PORTS = {"http": 80, "https": 443}


def request_attributes(model: Any, step: Any) -> dict[str, Any]:
    """What is known of a step's model calls before the first: made once per step."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        **provider_attributes(model),
        "gen_ai.request.model": str(step.model),
        "noetic.step.id": step.id,
    }
    attributes |= _from_settings(step.settings or {})
    if step.output is not None:
        attributes["gen_ai.output.type"] = "json"
    return attributes


def provider_attributes(model: Any) -> dict[str, Any]:
    """The provider's name and, when it has a `base_url`, its host and port: never more of it."""
    url = getattr(model, "base_url", None)
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or not parts.hostname:
        return {"gen_ai.provider.name": type(model).__name__}
    host = parts.hostname
    name = next((name for end, name in _PROVIDERS.items() if _within(host, end)), "openai")
    attributes: dict[str, Any] = {"gen_ai.provider.name": name, "server.address": host}
    port = parts.port or _PORTS.get(parts.scheme)
    if port is not None:
        attributes["server.port"] = port
    return attributes


def _within(host: str, domain: str) -> bool:
    return host == domain or host.endswith("." + domain)


def _from_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for setting, name in _REQUEST.items():
        value = settings.get(setting)
        if isinstance(value, int | float):
            found.setdefault(f"gen_ai.request.{name}", clean_value(name, value))
    stop = settings.get("stop")
    if isinstance(stop, str):
        stop = (stop,)
    if isinstance(stop, list | tuple) and all(isinstance(each, str) for each in stop):
        found["gen_ai.request.stop_sequences"] = clean_value("stop", stop)
    choices = settings.get("n")
    if isinstance(choices, int) and choices != 1:
        found["gen_ai.request.choice.count"] = choices
    return found
