"""The app as a deployment of Ray Serve."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from ray import serve

from noetic_ray.channels import Channel
from noetic_ray.errors import ConfigError
from noetic_ray.serve.agents import Agents
from noetic_ray.serve.guard import check_token
from noetic_ray.steps import Step

#: Ray Serve's own limit, of a handful, would let streams block each other.
MAX_ONGOING = 1_000


def bind(
    agent: Any,
    token: str | None,
    harness: Any,
    channels: Iterable[Channel[Any]],
    max_body: int,
    deployment: Mapping[str, Any],
) -> Any:
    """See `noetic_ray.serve.app`."""
    check_token(token)
    settings = _settings(harness)
    kept = tuple(channels)
    agents = agent if isinstance(agent, Step | Mapping) else tuple(agent)
    Agents(agents)

    def build() -> Any:
        return _build(agents, token, settings, kept, max_body)

    options = {"name": "noetic-ray", "max_ongoing_requests": MAX_ONGOING, **deployment}
    return serve.deployment(serve.ingress(build)(), **options).bind()


def _build(
    agents: Any,
    token: str | None,
    settings: Mapping[str, Any],
    channels: tuple[Channel[Any], ...],
    max_body: int,
) -> Any:
    """In the replica: a harness of its own, which ends with it."""
    from noetic_ray.harness import Harness
    from noetic_ray.serve import make_app

    given = dict(settings)
    name = f"{given.pop('name', 'serve')}-{secrets.token_hex(4)}"
    return make_app(
        Harness(name, **given),
        agents,
        token=token,
        channels=channels,
        max_body=max_body,
        close_harness=True,
    )


def _settings(harness: Any) -> dict[str, Any]:
    if harness is None:
        return {}
    if isinstance(harness, Mapping):
        return dict(harness)
    raise ConfigError(
        "HARNESS_NOT_PORTABLE",
        "each replica opens a harness of its own, so a harness cannot be handed over",
        "give the arguments of nr.Harness as a dict: harness={'model_provider': ...}",
    )
