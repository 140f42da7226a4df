"""Where a context runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast, get_args

from noetic_ray.errors import ConfigError

__all__ = ["Placement", "PlacementMode"]

PlacementMode: TypeAlias = Literal["actor", "strict", "shared", "inline"]

_MODES: tuple[str, ...] = get_args(PlacementMode)
_SHARED_CONTEXTS = 256


@dataclass(frozen=True, slots=True)
class Placement:
    """How contexts are spread over processes.

    ``actor``: a process of its own while fewer than ``max_actors`` exist, then shared ones.
    ``strict``: a process of its own or an error at once. ``shared``: packed from the start,
    ``contexts_per_actor`` each. ``inline``: in the parent's process. ``warm`` processes are started
    ahead. ``num_cpus``, ``num_gpus``, ``resources`` and ``runtime_env`` are asked of Ray for each
    process, ``spread`` spreads the processes over the nodes.
    """

    mode: PlacementMode = "actor"
    contexts_per_actor: int | None = None
    max_actors: int | None = None
    warm: int | None = None
    num_cpus: float = 0
    num_gpus: float = 0
    resources: Mapping[str, float] | None = field(default=None, hash=False)
    runtime_env: Mapping[str, Any] | None = field(default=None, hash=False)
    spread: bool = False

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ConfigError(
                "UNKNOWN_PLACEMENT",
                f"There is no placement {self.mode!r}.",
                f"Use one of {', '.join(_MODES)}.",
            )
        _check_count("contexts_per_actor", self.contexts_per_actor, 1)
        _check_count("max_actors", self.max_actors, 1)
        _check_count("warm", self.warm, 0)
        _check_amount("num_cpus", self.num_cpus)
        _check_amount("num_gpus", self.num_gpus)
        if self.mode == "strict" and self.per_actor != 1:
            raise _invalid("contexts_per_actor", self.contexts_per_actor, "1 for 'strict'")
        _check_mapping("resources", self.resources)
        _check_mapping("runtime_env", self.runtime_env)
        for name, amount in (self.resources or {}).items():
            _check_amount(f"resources[{name!r}]", amount)

    @property
    def per_actor(self) -> int:
        """How many contexts one process takes."""
        if self.contexts_per_actor is not None:
            return self.contexts_per_actor
        return _SHARED_CONTEXTS if self.mode == "shared" else 1

    def asks(self) -> bool:
        """Whether its processes ask for CPUs, GPUs or custom resources."""
        return bool(self.num_cpus or self.num_gpus or self.resources)

    @classmethod
    def of(cls, given: str | Placement | None) -> Placement:
        """What a ``placement=`` argument means: None is the default, a text a mode."""
        if given is None:
            return cls()
        if isinstance(given, Placement):
            return given
        return cls(mode=cast(PlacementMode, given))


def _invalid(name: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(
        "INVALID_PLACEMENT", f"Placement: {name} cannot be {value!r}.", f"Give {wanted}."
    )


def _check_count(name: str, value: object, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _invalid(name, value, f"a whole number of at least {least}, or None")


def _check_amount(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= cast(float, value) < float("inf"):
        raise _invalid(name, value, "a number of at least 0")


def _check_mapping(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise _invalid(name, value, "a mapping or None")
