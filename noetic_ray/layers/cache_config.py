"""How long pinned text is kept for the sake of a provider's prompt cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from noetic_ray.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ContextCache:
    """What layers show before the history is pinned, byte for byte, for an epoch.

    `enabled` False sends everything fresh each time. An epoch ends after `max_epoch_assemblies`
    windows, or when the message that says what changed since grows above `delta_budget_fraction`
    of the pinned text (256 tokens are always allowed). A provider that reports fewer than
    `min_cached_tokens` cached tokens, from the `min_epoch_assemblies`-th window of an epoch on,
    has missed; that ends the epoch too. A layer without a wish for its place goes behind the
    history when it changed in at least `auto_demote_churn` of its windows, and back before it at
    `auto_promote_churn` or less, judged at the start of an epoch from `min_churn_samples` windows
    on; older windows count `churn_decay` as much after each epoch.
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
    if not number or math.isnan(value) or not 0 <= value <= 1:  # type: ignore[arg-type, operator]
        raise _bad(name, value, "Give a share from 0 to 1.")


def _bad(name: str, value: object, hint: str) -> ConfigError:
    return ConfigError("INVALID_CONTEXT_CACHE", f"ContextCache({name}={value!r})", hint)
