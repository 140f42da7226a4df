"""Agents over HTTP: an app for OpenAI clients and for runs, alone or under Ray Serve.

Needs the extra `serve`. Nothing of it is loaded before one of the two functions is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from noetic_ray.errors import ConfigError
from noetic_ray.steps import Step

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from noetic_ray.channels import Channel
    from noetic_ray.harness import Harness

__all__ = ["MAX_BODY", "AgentsLike", "app", "make_app"]

#: A step, several, or several under names of their own.
AgentsLike: TypeAlias = "Step[Any, Any] | Iterable[Step[Any, Any]] | Mapping[str, Step[Any, Any]]"
MAX_BODY = 10 * 1024 * 1024
"""Bytes of a request's body that are read, unless another limit is given."""


def make_app(
    harness: Harness,
    agents: AgentsLike,
    *,
    token: str | None = None,
    channels: Iterable[Channel[Any]] = (),
    max_body: int = MAX_BODY,
    close_harness: bool = False,
) -> Starlette:
    """An ASGI app that runs `agents` in `harness`; a step's id is its name for clients.

    With `token` every route but `/healthz` asks for it; without one the app answers only on this
    machine. `channels` are external channels that clients may send to. With `close_harness` the
    app closes the harness when its server stops; its runs are aborted then in any case.

    Raises ConfigError: SERVE_NOT_INSTALLED, INVALID_AGENTS, INVALID_TOKEN, CHANNEL_NOT_EXTERNAL.
    """
    expect_installed()
    from noetic_ray.serve.asgi import build_app

    return build_app(
        harness,
        agents,
        token=token,
        channels=channels,
        max_body=max_body,
        close_harness=close_harness,
    )


def app(
    agent: AgentsLike,
    *,
    token: str | None = None,
    harness: Harness | Mapping[str, Any] | None = None,
    channels: Iterable[Channel[Any]] = (),
    max_body: int = MAX_BODY,
    **deployment: Any,
) -> Any:
    """The same app for Ray Serve: `serve.run(noetic_ray.serve.app(agent))`.

    Each replica opens a harness of its own in the cluster, with the arguments of `nr.Harness` in
    `harness` (`model_provider`, `store`, ...). `deployment` are options of a Serve deployment:
    `num_replicas`, `ray_actor_options`, `max_ongoing_requests` (here 1,000 unless given), ...
    A run is known to the replica that started it.

    Raises ConfigError as `make_app` does, and HARNESS_NOT_PORTABLE for an open harness.
    """
    expect_installed("ray.serve")
    from noetic_ray.serve.ray_serve import bind

    return bind(agent, token, harness, channels, max_body, deployment)


def expect_installed(*more: str) -> None:
    """Raise ConfigError SERVE_NOT_INSTALLED when a package, or one of `more`, is missing."""
    import importlib

    for name in ("starlette", "uvicorn", *more):
        try:
            importlib.import_module(name)
        except ImportError as missing:
            raise ConfigError(
                "SERVE_NOT_INSTALLED",
                f"serving agents over HTTP needs {name}, which cannot be imported ({missing})",
                "pip install 'noetic-ray[serve]'",
            ) from None
