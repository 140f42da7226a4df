"""Tells the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from noetic_ray.errors import ConfigError
from noetic_ray.layers import slots
from noetic_ray.layers.base import ContextLayer, check_layer
from noetic_ray.layers.hooks import RecallParams
from noetic_ray.layers.provides import layer_data
from noetic_ray.signatures import check_callback

Granularity: TypeAlias = Literal["second", "minute", "hour", "day"]
_ZEROED: dict[str, dict[str, int]] = {
    "second": {"microsecond": 0},
    "minute": {"second": 0, "microsecond": 0},
    "hour": {"minute": 0, "second": 0, "microsecond": 0},
    "day": {"hour": 0, "minute": 0, "second": 0, "microsecond": 0},
}
_TIMESPEC = {"second": "seconds", "minute": "minutes", "hour": "hours"}


class Temporal(ContextLayer[Any]):
    """Tell the model the time in a time zone, cut down to `granularity`.

    The coarser it is the less often it changes. `clock` replaces the real one, for tests; a
    time without a zone is taken to be in `tz`.
    `ctx.context["temporal"].now` is the same text.

    Example: `nr.layers.temporal("Europe/Oslo", granularity="hour")`.

    Has no state.
    """

    scope = "execution"

    def __init__(
        self,
        tz: str = "UTC",
        *,
        id: str = "temporal",
        slot: float = slots.TEMPORAL,
        granularity: Granularity = "minute",
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        try:
            ZoneInfo(tz)
        except (KeyError, ValueError, OSError, TypeError) as problem:
            raise ConfigError(
                "INVALID_LAYER",
                f"layer {id!r} has the time zone {tz!r}: {problem}",
                "Give a name such as Europe/Oslo.",
            ) from None
        if granularity not in get_args(Granularity):
            raise ConfigError(
                "INVALID_LAYER",
                f"layer {id!r} has granularity={granularity!r}",
                f"Choose one of {', '.join(get_args(Granularity))}.",
            )
        if clock is not None:
            check_callback(f"the clock of layer {id!r}", clock)
        self.id = id
        self.slot = slot
        self.tz = tz
        self.granularity = granularity
        self.clock = clock
        self.provides = {"now": layer_data(self._now)}
        check_layer(self)

    async def recall(self, params: RecallParams) -> str:
        """One line: weekday, date and time."""
        return f"Now: {self._now()}"

    def _now(self, state: Any = None) -> str:
        zone = ZoneInfo(self.tz)
        now = datetime.now(zone) if self.clock is None else self.clock()
        now = now.replace(tzinfo=zone) if now.tzinfo is None else now.astimezone(zone)
        now = now.replace(**_ZEROED[self.granularity])  # type: ignore[arg-type]
        if self.granularity == "day":
            return f"{now:%A} {now.date().isoformat()} ({self.tz})"
        return f"{now:%A} {now.isoformat(timespec=_TIMESPEC[self.granularity])} ({self.tz})"
