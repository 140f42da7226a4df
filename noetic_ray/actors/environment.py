"""Workers must run the driver's Python and this very version of the library."""

from __future__ import annotations

import sys

import noetic_ray
from noetic_ray.errors import ConfigError


def environment() -> tuple[str, str]:
    """(Python version, library version) of this process."""
    return ".".join(map(str, sys.version_info[:2])), noetic_ray.__version__


def check_environment(expected: tuple[str, str]) -> None:
    """Raise ConfigError ENVIRONMENT_MISMATCH when this process is not like the driver."""
    here = environment()
    if tuple(expected) == here:
        return
    raise ConfigError(
        "ENVIRONMENT_MISMATCH",
        f"the driver runs Python {expected[0]} with noetic-ray {expected[1]}, a worker at "
        f"{sys.executable} runs Python {here[0]} with noetic-ray {here[1]}",
        "use the same environment on every node; beware of wrappers that start the driver in "
        "another one",
    )
