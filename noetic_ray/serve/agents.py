"""The agents that are served, by the names clients use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from noetic_ray.errors import ConfigError
from noetic_ray.serve.problems import Problem
from noetic_ray.steps import Step

#: What a lone agent answers to besides its name.
ANY = "noetic-ray"


class Agents:
    """Steps by name. Raises ConfigError INVALID_AGENTS for anything else."""

    def __init__(self, given: Any) -> None:
        self._steps: dict[str, Step[Any, Any]] = {}
        for name, step in _named(given):
            if not isinstance(step, Step):
                raise _invalid(f"{step!r:.200} is no step", "make one of it with @nr.step")
            if not isinstance(name, str) or not name:
                raise _invalid(f"an agent is named {name!r}", "name it with a text")
            if name in self._steps:
                raise _invalid(f"two agents are named {name!r}", "give a dict with a name for each")
            self._steps[name] = step
        if not self._steps:
            raise _invalid("there is no agent to serve", "give a step, a list or a dict of steps")

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def named(self, name: str | None, param: str) -> tuple[str, Step[Any, Any]]:
        """An agent and its name. Raises Problem 404; 422 where it is not clear who is meant."""
        if name is not None and name in self._steps:
            return name, self._steps[name]
        if len(self._steps) == 1 and name in (None, ANY):
            return next(iter(self._steps.items()))
        known = ", ".join(self._steps)
        if name is None:
            said = f"`{param}` is missing; the agents are {known}"
            raise Problem(422, "invalid_request", said, code="invalid_shape", param=param)
        said = f"there is no agent {name!r}; the agents are {known}"
        raise Problem(404, "not_found", said, code="model_not_found", param=param)


def _named(given: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(given, Step):
        return [(given.id, given)]
    if isinstance(given, Mapping):
        return given.items()
    if isinstance(given, Iterable) and not isinstance(given, str):
        return [(getattr(each, "id", None), each) for each in given]
    raise _invalid(
        f"a {type(given).__name__} is no agent", "give a step, a list or a dict of steps"
    )


def _invalid(message: str, hint: str) -> ConfigError:
    return ConfigError("INVALID_AGENTS", message, hint)
