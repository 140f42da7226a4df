"""What every channel port checks and reports the same way."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import TypeAdapter

from noetic_ray.channels import Channel
from noetic_ray.engine.channel_lanes import CLOSED, END, ChannelSpec
from noetic_ray.errors import ChannelClosed, ChannelTimeout, ConfigError

TOPIC_TIMEOUT = 300.0
"""Seconds a receive on a topic waits when no timeout is given: nothing may ever come."""

TIMED_OUT = "timed out"

_MAX_KNOWN = 256


class SpecCache:
    """Fingerprints of channel objects; working one out costs more than sending a value."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Channel[Any], ChannelSpec]] = {}

    def get(self, channel: Channel[Any]) -> ChannelSpec:
        known = self._known.get(id(channel))
        if known is not None and known[0] is channel:
            return known[1]
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        spec = spec_of(channel)
        self._known[id(channel)] = channel, spec
        return spec


def spec_of(channel: Channel[Any]) -> ChannelSpec:
    """What identifies `channel` in every process."""
    return ChannelSpec(channel.name, channel.mode, channel.capacity, _fingerprint(channel.schema))


def _fingerprint(schema: Any) -> str:
    if schema is None:
        return "anything"
    name = getattr(schema, "__qualname__", None) if isinstance(schema, type) else None
    try:
        shape = json.dumps(TypeAdapter(schema).json_schema(), sort_keys=True)
    except Exception:  # many types that pydantic checks have no JSON schema
        return str(name or repr(schema))
    return f"{name or repr(schema)}#{hashlib.sha256(shape.encode()).hexdigest()[:8]}"


def check_timeout(channel: Channel[Any], timeout: float | None) -> None:
    """Raise ConfigError unless `timeout` is None or a number of seconds from 0 on."""
    if timeout is None:
        return
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not timeout >= 0:
        raise ConfigError(
            "INVALID_TIMEOUT",
            f"channel {channel.name!r}: {timeout!r} is no timeout",
            hint="Give seconds, 0 to fail at once, or None to wait for ever.",
        )


def receive_timeout(channel: Channel[Any], timeout: float | None) -> float | None:
    """The timeout that really holds for a receive. Raises ConfigError for a wrong one."""
    check_timeout(channel, timeout)
    if timeout is None and channel.mode == "topic":
        return TOPIC_TIMEOUT
    return timeout


def check_max_items(channel: Channel[Any], max_items: int) -> None:
    """Raise ConfigError unless `max_items` is a whole number from 1 on."""
    if isinstance(max_items, bool) or not isinstance(max_items, int) or max_items < 1:
        raise ConfigError(
            "INVALID_MAX_ITEMS",
            f"channel {channel.name!r}: {max_items!r} is no number of values to receive",
            hint="Give a whole number of at least 1.",
        )


def failure(status: str, name: str, timeout: float | None) -> ChannelClosed | ChannelTimeout:
    """The error for an operation that ended with neither a value nor success."""
    if status in (CLOSED, END):
        return ChannelClosed(name)
    return ChannelTimeout(name, timeout)
