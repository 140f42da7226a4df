"""The front door: `Harness`, `Run` and what they return, imported when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetic_ray.harness.harness import Harness
    from noetic_ray.harness.hooks import Hooks
    from noetic_ray.harness.report import AbortReport, Approval, HarnessResponse
    from noetic_ray.harness.run import Run

__all__ = ["AbortReport", "Approval", "Harness", "HarnessResponse", "Hooks", "Run"]

_HOMES = {"Harness": "harness", "Hooks": "hooks", "Run": "run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "report")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
