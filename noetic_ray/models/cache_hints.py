"""How a provider is told which part of a request stays the same, so that it may cache it."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from noetic_ray.models.failures import AttemptFailed
from noetic_ray.models.openai import OpenAI, is_host

#: A mark on the last part that stays the same, a name for the conversation, or nothing.
Hint: TypeAlias = Literal["mark", "key"] | None
#: These cache by themselves; a key brings a conversation's requests to the same cache.
_BY_THEMSELVES = ("api.openai.com", "openai.azure.com")
_REFUSALS = re.compile(
    r"cache_control|prompt_cache_key"
    # A text with a mark is a list of parts, which some servers do not take.
    r"|(?:expected|must be|should be) a(?: valid)? string"
)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:-]")
_MAX_KEY = 64
MARK = {"type": "ephemeral"}


def hint_of(provider: OpenAI) -> Hint:
    """What a provider's requests carry where there is something to hint."""
    if provider.cache_control is False:
        return None
    if provider.cache_control is True:
        return "mark"
    official = any(is_host(provider.base_url, host) for host in _BY_THEMSELVES)
    return "key" if official else "mark"


def is_refusal(failure: AttemptFailed) -> bool:
    """Whether a server took offence at the hint, or at the form it gives a text."""
    return failure.status in (400, 422) and _REFUSALS.search(failure.body) is not None


def key_of(name: str) -> str:
    """A conversation's name in at most 64 safe characters, its end kept."""
    return _UNSAFE.sub("_", name)[-_MAX_KEY:]


def marked(content: Any, kind: str) -> Any:
    """Content with the mark on its last text; the same object where there is none.

    `kind` is what the API calls a part that is a text.
    """
    if isinstance(content, str):
        return [{"type": kind, "text": content, "cache_control": MARK}] if content else content
    if not isinstance(content, list):
        return content
    for place in range(len(content) - 1, -1, -1):
        if content[place].get("type") == kind and content[place]["text"]:
            part = {**content[place], "cache_control": MARK}
            return [*content[:place], part, *content[place + 1 :]]
    return content
