"""Providers that speak one of OpenAI's two APIs: OpenAI, OpenRouter, vLLM, Ollama and many more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from noetic_ray.errors import ConfigError

if TYPE_CHECKING:
    from noetic_ray.models.exchange import Exchange
    from noetic_ray.models.protocol import ModelEvents, ModelReply, ModelRequest

Api = Literal["responses", "chat"]

_OPENAI = "https://api.openai.com/v1"
_OPENROUTER = "https://openrouter.ai/api/v1"


class OpenAI:
    """A provider at `base_url` (the part before `/responses` or `/chat/completions`).

    What is not given comes from the environment, now: `OPENAI_BASE_URL`, `OPENAI_API_KEY`, and
    `OPENROUTER_API_KEY`, which stands for OpenRouter when nothing else is set. `api` None means
    Responses for OpenAI and OpenRouter, Chat Completions elsewhere. A failed attempt is repeated
    up to `attempts` in all, after the wait the provider asks for; when that is more than
    `max_retry_after` seconds the call fails at once. `idle_timeout` is how many seconds may pass
    without a byte from the server. `verify` is False, or the path of a certificate bundle, to
    check servers otherwise than against the usual authorities. `cache_control` says whether
    requests mark the part of them that stays the same: "auto" does, but for OpenAI's own servers,
    which get a `prompt_cache_key` instead, and stops where a server refuses it.

    Raises ConfigError when an argument or the environment does not make sense.
    """

    __slots__ = (
        "_exchange",
        "api",
        "api_key",
        "attempts",
        "base_url",
        "cache_control",
        "idle_timeout",
        "max_retry_after",
        "verify",
    )

    base_url: str
    api_key: str | None
    api: Api
    attempts: int
    max_retry_after: float
    idle_timeout: float
    verify: bool | str
    cache_control: bool | Literal["auto"]
    _exchange: Exchange | None

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        api: Api | None = None,
        attempts: int = 5,
        max_retry_after: float = 60.0,
        *,
        idle_timeout: float = 120.0,
        verify: bool | str = True,
        cache_control: bool | Literal["auto"] = "auto",
    ) -> None:
        url = _checked_url(base_url or _default_url(api_key))
        if api not in (None, "responses", "chat"):
            raise _wrong("api", api, "responses, chat or None")
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise _wrong("attempts", attempts, "a whole number from 1")
        if not isinstance(cache_control, bool) and cache_control != "auto":
            raise _wrong("cache_control", cache_control, 'True, False or "auto"')
        self._set(
            base_url=url,
            api_key=_checked_key(api_key or _key_for(url)),
            api=api or _default_api(url),
            attempts=attempts,
            max_retry_after=_seconds("max_retry_after", max_retry_after, 0.0),
            idle_timeout=_seconds("idle_timeout", idle_timeout, 0.001),
            verify=verify,
            cache_control=cache_control,
        )

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_exchange", None)

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name[0] != "_"}

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a provider does not change; make another one with another {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a provider does not change; {name} stays")

    def __getstate__(self) -> dict[str, Any]:
        return self._fields()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenAI) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.base_url, self.api_key, self.api))

    def __repr__(self) -> str:
        from noetic_ray.models.failures import without_secrets

        return f"OpenAI({without_secrets(self.base_url, self.api_key)!r}, api={self.api!r})"

    async def generate(self, request: ModelRequest, events: ModelEvents) -> ModelReply:
        """Run one round. Raises ModelFailed, ModelRateLimited or ConfigError."""
        self._require_key()
        exchange = self._exchange
        if exchange is None:
            from noetic_ray.models.exchange import Exchange

            exchange = Exchange(self)
            object.__setattr__(self, "_exchange", exchange)
        return await exchange.round(request, events)

    def _require_key(self) -> None:
        if self.api_key:
            return
        for host, variable in _KEYS.items():
            if is_host(self.base_url, host):
                raise ConfigError(
                    "MISSING_API_KEY",
                    f"{host} needs an API key and none was set when the provider was made.",
                    f"Set {variable} or pass api_key= to OpenAI.",
                )


# Settings

_KEYS = {"api.openai.com": "OPENAI_API_KEY", "openrouter.ai": "OPENROUTER_API_KEY"}


def _from_env(name: str) -> str | None:
    return (os.environ.get(name) or "").strip() or None


def _default_url(api_key: str | None) -> str:
    url = _from_env("OPENAI_BASE_URL")
    if url is not None:
        return url
    only_router = _from_env("OPENROUTER_API_KEY") and not (api_key or _from_env("OPENAI_API_KEY"))
    return _OPENROUTER if only_router else _OPENAI


def _key_for(url: str) -> str | None:
    """The key from the environment; OpenRouter's is for OpenRouter alone."""
    if is_host(url, "openrouter.ai"):
        return _from_env("OPENROUTER_API_KEY") or _from_env("OPENAI_API_KEY")
    return _from_env("OPENAI_API_KEY")


def _default_api(url: str) -> Api:
    return "responses" if any(is_host(url, host) for host in _KEYS) else "chat"


def is_host(url: str, host: str) -> bool:
    """Whether a URL is of this host or one below it."""
    name = urlsplit(url).hostname or ""
    return name == host or name.endswith("." + host)


def _checked_url(url: str) -> str:
    from noetic_ray.models.failures import without_secrets

    shown = without_secrets(str(url), None)
    problem = "it is not a text"
    if isinstance(url, str):
        url = url.strip()
        problem = _url_problem(url)
    if problem:
        raise ConfigError(
            "BAD_BASE_URL",
            f"{shown!r} cannot be a base URL: {problem}.",
            "Give the address before /chat/completions, such as http://localhost:8000/v1.",
        )
    return with_path(url, urlsplit(url).path.rstrip("/"))


def with_path(url: str, path: str) -> str:
    """A URL with another path."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _url_problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        return str(exc)
    if parts.scheme not in ("http", "https"):
        return "it must begin with http:// or https://"
    if not parts.hostname or port == 0:
        return "it names no host" if not parts.hostname else "port 0 cannot be reached"
    if any(char.isspace() or not char.isprintable() for char in url):
        return "it has white space or control characters in it"
    if parts.fragment:
        return "it has a fragment"
    return ""


def _checked_key(key: str | None) -> str | None:
    if key is None:
        return None
    key = key.strip() if isinstance(key, str) else ""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "BAD_API_KEY",
            "the API key is no plain text without spaces (it is not shown here).",
            "Check for quotes, line ends or other characters around it.",
        )
    return key


def _seconds(name: str, value: float, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise _wrong(name, value, f"a number of seconds from {least:g}")
    return float(value)


def _wrong(name: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(
        "INVALID_OPTION", f"OpenAI({name}={value!r}) is wrong.", f"It must be {wanted}."
    )
