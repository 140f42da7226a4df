"""How long pinned text is kept for the sake of a provider's prompt cache."""

from __future__ import annotations

from dataclasses import dataclass, fields

from noetic_ray.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ContextCache:
    """What layers show before the history is pinned, byte for byte, for an epoch.

    An epoch is a number of windows; a window is what one model step is shown.

    - `enabled`: False sends everything fresh each time, all of it before the history.
    - `min_cached_tokens`: a provider that took fewer tokens than this from its cache has missed,
      which ends the epoch. For a small prefix, half of its tokens are enough. After three misses
      without a hit the provider is not listened to any more.
    - `min_epoch_assemblies`: the window of an epoch, counted from 1, from which on misses count.
    - `max_epoch_assemblies`: how many windows an epoch has at most.
    - `delta_budget_fraction`: how long the message that says what has changed may get, as a share
      of the pinned tokens; 256 tokens are always allowed. A longer one ends the epoch.
    - `auto_demote_churn`, `auto_promote_churn`: a layer without a wish for its place goes behind
      the history when it changed in at least the first share of its windows, and back before it
      at the second or less. That is decided when an epoch begins.
    - `min_churn_samples`: how many windows a layer must have been seen in before it is moved.
    - `churn_decay`: what all earlier windows still count, as a share, each time an epoch begins.

    Raises ConfigError `INVALID_CONTEXT_CACHE`.
    """

    enabled: bool = True
    min_cached_tokens: int = 100
    min_epoch_assemblies: int = 2
    max_epoch_assemblies: int = 50
    delta_budget_fraction: float = 0.15
    auto_demote_churn: float = 0.5
    auto_promote_churn: float = 0.2
    min_churn_samples: int = 3
    churn_decay: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise _bad("enabled", self.enabled, "Give True or False.")
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type == "int":
                _check_whole(each.name, value, 0 if each.name == "min_cached_tokens" else 1)
            elif each.type == "float":
                _check_share(each.name, value)
        if self.auto_promote_churn > self.auto_demote_churn:
            raise _bad(
                "auto_promote_churn",
                self.auto_promote_churn,
                "Give at most auto_demote_churn, or a layer would go back and forth.",
            )


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _bad(name, value, f"Give a whole number, at least {least}.")


def _check_share(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN is in no range.
    if not number or not 0 <= value <= 1:  # type: ignore[operator]
        raise _bad(name, value, "Give a share from 0 to 1.")


def _bad(name: str, value: object, hint: str) -> ConfigError:
    return ConfigError("INVALID_CONTEXT_CACHE", f"ContextCache({name}={value!r})", hint)
