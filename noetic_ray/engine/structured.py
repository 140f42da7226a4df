"""Structured output: the schema a model is asked for, and the check of what it answered."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from noetic_ray.errors import ModelParseError
from noetic_ray.models.protocol import OutputSpec
from noetic_ray.steps import output_adapter

_specs: WeakKeyDictionary[Any, OutputSpec] = WeakKeyDictionary()


def output_spec(step: Any) -> OutputSpec | None:
    """What a request asks for; None when the step wants plain text."""
    adapter = output_adapter(step)
    if adapter is None:
        return None
    spec = _specs.get(step)
    if spec is None:
        name = getattr(step.output, "__name__", "output")
        spec = _specs[step] = OutputSpec(name, adapter.json_schema())
    return spec


def parse_output(step: Any, text: str) -> Any:
    """The answer as the step's output type. Raises ModelParseError with the raw text."""
    adapter = output_adapter(step)
    assert adapter is not None
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise ModelParseError(text, _summary(error), step.id) from None
    except ValueError as error:  # a validator of the user's
        raise ModelParseError(text, str(error), step.id) from None


def _summary(error: ValidationError) -> str:
    parts = [
        f"{'.'.join(map(str, each['loc'])) or 'answer'}: {each['msg']}"
        for each in error.errors(include_url=False, include_context=False)[:5]
    ]
    return "; ".join(parts)
