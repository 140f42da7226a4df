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
_BUILT_IN = {
    "episodic": "Episodic",
    "history": "History",
    "instructions": "Instructions",
    "observations": "Observations",
    "scratchpad": "Scratchpad",
    "semantic_recall": "SemanticRecall",
    "steering": "Steering",
    "task_state": "TaskState",
    "temporal": "Temporal",
    "tool_calls": "ToolCalls",
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names}
_WHERE.update({name: f"noetic_ray.layers.builtin.{name}" for name in _BUILT_IN})

__all__ = [
    "AppendParams",
    "ChildInfo",
    "CompleteParams",
    "DeltaParams",
    "DisposeParams",
    "InitParams",
    "LayerHandle",
    "LayerStorage",
    "ModelCallParams",
    "ProjectParams",
    "RecallParams",
    "Response",
    "ReturnParams",
    "SpawnParams",
    "StoreParams",
    "ToolCallParams",
    "episodic",
    "history",
    "instructions",
    "observations",
    "scratchpad",
    "semantic_recall",
    "slots",
    "steering",
    "task_state",
    "temporal",
    "tool_calls",
]


def __getattr__(name: str) -> Any:
    if name == "slots":
        return importlib.import_module("noetic_ray.layers.slots")
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'noetic_ray.layers' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), _BUILT_IN.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from noetic_ray.layers import slots as slots
    from noetic_ray.layers.builtin.episodic import Episodic as episodic
    from noetic_ray.layers.builtin.history import History as history
    from noetic_ray.layers.builtin.instructions import Instructions as instructions
    from noetic_ray.layers.builtin.observations import Observations as observations
    from noetic_ray.layers.builtin.scratchpad import Scratchpad as scratchpad
    from noetic_ray.layers.builtin.semantic_recall import SemanticRecall as semantic_recall
    from noetic_ray.layers.builtin.steering import Steering as steering
    from noetic_ray.layers.builtin.task_state import TaskState as task_state
    from noetic_ray.layers.builtin.temporal import Temporal as temporal
    from noetic_ray.layers.builtin.tool_calls import ToolCalls as tool_calls
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
