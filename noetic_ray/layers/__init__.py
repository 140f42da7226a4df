"""Context layers: contributors to what a model sees, each with a state that travels.

Derive from `nr.ContextLayer`, or take one that is here: `nr.layers.scratchpad()`, ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "noetic_ray.layers.handle": ("LayerHandle",),
    "noetic_ray.layers.hooks": (
        "AppendParams",
        "ChildInfo",
        "CompleteParams",
        "DeltaParams",
        "DisposeParams",
        "InitParams",
        "ModelCallParams",
        "ProjectParams",
        "RecallParams",
        "Response",
        "ReturnParams",
        "SpawnParams",
        "StoreParams",
        "ToolCallParams",
    ),
    "noetic_ray.layers.storage": ("LayerStorage",),
}
_BUILT_IN = (
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
)
_WHERE = {name: module for module, names in _HOMES.items() for name in names}
_WHERE.update({name: f"noetic_ray.layers.builtin.{name}" for name in _BUILT_IN})

__all__ = sorted([*_WHERE, "slots"])


def __getattr__(name: str) -> Any:
    if name == "slots":
        return importlib.import_module("noetic_ray.layers.slots")
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'noetic_ray.layers' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from noetic_ray.layers import slots as slots
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
    from noetic_ray.layers.handle import LayerHandle as LayerHandle
    from noetic_ray.layers.hooks import AppendParams as AppendParams
    from noetic_ray.layers.hooks import ChildInfo as ChildInfo
    from noetic_ray.layers.hooks import CompleteParams as CompleteParams
    from noetic_ray.layers.hooks import DeltaParams as DeltaParams
    from noetic_ray.layers.hooks import DisposeParams as DisposeParams
    from noetic_ray.layers.hooks import InitParams as InitParams
    from noetic_ray.layers.hooks import ModelCallParams as ModelCallParams
    from noetic_ray.layers.hooks import ProjectParams as ProjectParams
    from noetic_ray.layers.hooks import RecallParams as RecallParams
    from noetic_ray.layers.hooks import Response as Response
    from noetic_ray.layers.hooks import ReturnParams as ReturnParams
    from noetic_ray.layers.hooks import SpawnParams as SpawnParams
    from noetic_ray.layers.hooks import StoreParams as StoreParams
    from noetic_ray.layers.hooks import ToolCallParams as ToolCallParams
    from noetic_ray.layers.storage import LayerStorage as LayerStorage
