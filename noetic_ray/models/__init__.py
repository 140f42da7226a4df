"""Language models: the protocol the engine speaks, and a provider for OpenAI's two APIs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetic_ray.models.openai import OpenAI
    from noetic_ray.models.protocol import (
        Model,
        ModelEvents,
        ModelReply,
        ModelRequest,
        OutputSpec,
        ToolSpec,
    )

__all__ = [
    "Model",
    "ModelEvents",
    "ModelReply",
    "ModelRequest",
    "OpenAI",
    "OutputSpec",
    "ToolSpec",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "openai" if name == "OpenAI" else "protocol"
    value = getattr(importlib.import_module(f"{__name__}.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
