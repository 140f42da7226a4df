"""Why an actor did not start, as an error of ours.

Ray tells only the text of what an actor's constructor raised, so it is read back from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import ray
from ray.exceptions import RuntimeEnvSetupError

from noetic_ray.errors import ConfigError, NoeticError

_OURS = re.compile(r"^noetic_ray\.errors\.ConfigError: (.*?) \[([A-Z_]+)\] ?(.*)$", re.MULTILINE)
_MISSING = re.compile(r"No module named '([^']+)'")
_LOGS = "see the worker's log in the Ray session directory"


def start_failure(what: str, error: BaseException) -> NoeticError:
    """ENVIRONMENT_MISMATCH, RUNTIME_ENV_FAILED or what was raised; else ACTOR_NOT_STARTED."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, NoeticError):
        return cause
    text = str(error).strip()
    if isinstance(error, RuntimeEnvSetupError):
        return ConfigError(
            "RUNTIME_ENV_FAILED",
            f"{what} did not start: its runtime environment cannot be set up: {text[-500:]}",
            "check runtime_env in Placement, or that of the job",
        )
    if ours := _OURS.search(text):
        message, code, hint = ours.groups()
        return ConfigError(code, message, hint or None)
    if missing := _MISSING.search(text):
        return ConfigError(
            "ENVIRONMENT_MISMATCH",
            f"{what} did not start: the worker has no module {missing.group(1)!r}",
            "install the same packages on every node, and ship your own modules with the job "
            "(noetic-ray submit --working-dir)",
        )
    last = text.splitlines()[-1] if text else type(error).__name__
    return ConfigError("ACTOR_NOT_STARTED", f"{what} did not start: {last[:500]}", _LOGS)


def never_started(what: str, seconds: float, needs: Mapping[str, float]) -> ConfigError:
    """Nothing was heard of an actor: no room for it, or its Python does not come up."""
    if needs:
        asked = ", ".join(f"{amount:g} {name}" for name, amount in needs.items())
        return ConfigError(
            "PLACEMENT_INFEASIBLE",
            f"{what} asks for {asked} and was not placed within {seconds:.0f} s",
            "ask for fewer resources, or add nodes",
        )
    environment = ray.get_runtime_context().runtime_env
    python = environment.get("py_executable")
    return ConfigError(
        "ACTOR_NOT_STARTED",
        f"{what} did not start within {seconds:.0f} s"
        + (f"; Ray starts its workers with {python!r}" if python else ""),
        "a worker's Python may not come up: check runtime_env (py_executable), and wrappers like "
        f"`uv run` around the driver; {_LOGS}",
    )
