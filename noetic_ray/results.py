"""How one of several paths ended, when none may fail the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from noetic_ray.errors import NoeticError


@dataclass(frozen=True, slots=True)
class SettleResult:
    """`value` is set when fulfilled, `error` when rejected."""

    step_id: str
    status: Literal["fulfilled", "rejected"]
    value: Any = None
    error: NoeticError | None = None
