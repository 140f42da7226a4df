"""The validator of a model step's `output=` type, made when it is first needed."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter

from noetic_ray.errors import ConfigError
from noetic_ray.steps.kinds import CallModel

_adapters: WeakKeyDictionary[CallModel[Any, Any], TypeAdapter[Any]] = WeakKeyDictionary()


def output_adapter(step: CallModel[Any, Any]) -> TypeAdapter[Any] | None:
    """The adapter for `step.output`, one per step and process; None for a plain text answer.

    Raises ConfigError `INVALID_OUTPUT` for what pydantic cannot validate or describe.
    """
    if step.output is None:
        return None
    adapter = _adapters.get(step)
    if adapter is None:
        adapter = _adapters[step] = _adapter(step)
    return adapter


def _adapter(step: CallModel[Any, Any]) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(step.output)
        adapter.json_schema()
    except Exception as problem:
        raise ConfigError(
            "INVALID_OUTPUT",
            f"the output of step {step.id!r} is {step.output!r}: {problem}",
            "Give a type pydantic understands: a model, a dataclass, list[str], ...",
        ) from problem
    return adapter
