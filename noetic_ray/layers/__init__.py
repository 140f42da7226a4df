"""Context layers: contributors to what a model sees, each with a state that travels.

Derive from `nr.ContextLayer`, or take one that is here: `nr.layers.scratchpad()`, ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetic_ray.layers.builtin.episodic import episodic as episodic
    from noetic_ray.layers.builtin.history import history as history
    from noetic_ray.layers.builtin.instructions import instructions as instructions
    from noetic_ray.layers.builtin.observations import observations as observations
    from noetic_ray.layers.builtin.scratchpad import scratchpad as scratchpad
    from noetic_ray.layers.builtin.semantic_recall import semantic_recall as semantic_recall
    from noetic_ray.layers.builtin.steering import steering as steering
    from noetic_ray.layers.builtin.task_state import task_state as task_state
    from noetic_ray.layers.builtin.temporal import temporal as temporal
    from noetic_ray.layers.builtin.tool_calls import tool_calls as tool_calls

__all__ = [
    "episodic",
    "history",
    "instructions",
    "observations",
    "scratchpad",
    "semantic_recall",
    "steering",
    "task_state",
    "temporal",
    "tool_calls",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'noetic_ray.layers' has no attribute {name!r}")
    made = getattr(importlib.import_module(f"noetic_ray.layers.builtin.{name}"), name)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return [*__all__, "slots"]
