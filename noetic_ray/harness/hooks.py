"""Functions called around every step of every context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from noetic_ray.context import Context
from noetic_ray.steps import Step


@dataclass(frozen=True, slots=True)
class Hooks:
    """Sync or async; what they return is ignored, what they raise fails the step."""

    before_step: Callable[[Step[Any, Any], Context], Awaitable[None] | None] | None = None
    after_step: Callable[[Step[Any, Any], Any, Context], Awaitable[None] | None] | None = None
