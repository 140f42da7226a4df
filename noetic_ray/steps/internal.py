"""Steps the harness runs for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from noetic_ray.errors import ConfigError
from noetic_ray.steps.base import Step, is_step
from noetic_ray.steps.kinds import CallModel, WithContext


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PreviewStep(Step[Any, Any]):
    """Puts together the request a model step would send, and sends nothing."""

    kind: ClassVar[str] = "preview"
    child: Step[Any, Any]

    @classmethod
    def of(cls, step: Step[Any, Any]) -> PreviewStep:
        """Raises ConfigError `PREVIEW_UNSUPPORTED` unless a model step is what comes next."""
        is_step("INVALID_STEP", "what is to be previewed", step)
        inner = step
        while isinstance(inner, WithContext):
            inner = inner.child
        if not isinstance(inner, CallModel):
            raise ConfigError(
                "PREVIEW_UNSUPPORTED",
                f"step {step.id!r} is a {inner.kind} step, which sends no request itself",
                "Preview the nr.call_model step in it, alone or inside nr.with_context.",
            )
        return cls(step.id, step)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TearDownStep(Step[Any, Any]):
    """Runs the last hooks of the layers that aborted contexts left behind."""

    kind: ClassVar[str] = "tear_down"
