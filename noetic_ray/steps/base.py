"""What every step is, how failed attempts are spaced, and the checks builders share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal

from typing_extensions import TypeVar

from noetic_ray.errors import ConfigError

In = TypeVar("In", contravariant=True, default=Any)
Out = TypeVar("Out", covariant=True, default=Any)
Backoff = Literal["fixed", "linear", "exponential"]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Step(Generic[In, Out]):
    """A piece of work that takes an `In` and gives an `Out`. Immutable, and shareable by runs.

    A step says what is to be done; a context is where it is done. Steps compare by identity.
    """

    kind: ClassVar[str] = "step"
    id: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def __post_init__(self) -> None:
        if self.id is None or (isinstance(self.id, str) and not self.id.strip()):
            raise ConfigError(
                "EMPTY_STEP_ID",
                f"a {self.kind} step has no id",
                "Give it a short text that names it in logs, traces and resumed runs.",
            )
        if not isinstance(self.id, str):
            raise ConfigError(
                "INVALID_STEP_ID",
                f"the id of a {self.kind} step is {self.id!r}, a {type(self.id).__name__}",
                "A step's id is a text.",
            )


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failing body is tried, and how long to wait in between.

    `attempts` counts the first try too. Delays are in seconds: `fixed` waits `delay` each time,
    `linear` delay, 2 delay, 3 delay, ..., `exponential` delay, 2 delay, 4 delay, ...; none waits
    longer than `max_delay`.
    """

    attempts: int = 3
    delay: float = 0.1
    backoff: Backoff = "exponential"
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        whole("INVALID_RETRY", "Retry(attempts=...)", self.attempts, least=1)
        seconds("INVALID_RETRY", "Retry(delay=...)", self.delay)
        seconds("INVALID_RETRY", "Retry(max_delay=...)", self.max_delay)
        one_of("INVALID_RETRY", "Retry(backoff=...)", self.backoff, Backoff)

    def delay_for(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` (from 1) failed."""
        if self.backoff == "fixed":
            factor = 1.0
        elif self.backoff == "linear":
            factor = float(attempt)
        else:
            factor = 2.0 ** min(attempt - 1, 1000)
        return min(self.delay * factor, self.max_delay)


def whole(code: str, what: str, value: object, least: int) -> None:
    """Raise ConfigError unless `value` is an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(code, f"{what} is {value!r}", f"Give a whole number, at least {least}.")


def seconds(code: str, what: str, value: object, *, above_zero: bool = False) -> None:
    """Raise ConfigError unless `value` is a finite number of seconds, not negative."""
    usable = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and (value > 0 if above_zero else value >= 0)
    )
    if not usable:
        least = "more than 0" if above_zero else "0 or more"
        raise ConfigError(code, f"{what} is {value!r}", f"Give seconds as a number, {least}.")


def one_of(code: str, what: str, value: object, choices: Any) -> None:
    """Raise ConfigError unless `value` is one of the texts of the Literal `choices`."""
    names: tuple[str, ...] = choices.__args__
    if value not in names:
        raise ConfigError(code, f"{what} is {value!r}", f"Choose one of {', '.join(names)}.")


def is_step(code: str, what: str, value: object) -> None:
    """Raise ConfigError unless `value` is a Step; None is reported as missing."""
    if isinstance(value, Step):
        return
    if callable(value):
        hint = "Make a step of the function with @nr.step or nr.run_code(id, function)."
    else:
        hint = "Give a step, such as nr.run_code(...) or nr.call_model(...)."
    raise ConfigError(code, f"{what} is {value!r}, not a step", hint)
