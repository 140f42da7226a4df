"""A harness's arguments, checked where they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from noetic_ray.engine.spec import EngineConfig
from noetic_ray.errors import ConfigError
from noetic_ray.harness.exporting import check_exporter
from noetic_ray.harness.hooks import Hooks
from noetic_ray.harness.ray_address import refuse_url
from noetic_ray.items import check_item_types
from noetic_ray.layers.base import check_layers
from noetic_ray.layers.cache_config import ContextCache
from noetic_ray.layers.window import Window
from noetic_ray.mcp.servers import McpServer, check_servers
from noetic_ray.models.protocol import Model
from noetic_ray.placement import Placement
from noetic_ray.steps.assistant import check_assistants
from noetic_ray.tools import Tool, wire_names


@dataclass(frozen=True, slots=True)
class Settings:
    """What `Harness(...)` was given."""

    engine: EngineConfig
    store: str | None
    exporter: Any
    address: str | None
    mcp: Mapping[str, McpServer]


def make_settings(
    name: str,
    model_provider: Any,
    tools: Iterable[Any],
    params: Mapping[str, Any] | None,
    hooks: Hooks | None,
    store: Any,
    placement: Placement | str | None,
    exporter: Any,
    item_types: Mapping[str, Any] | None,
    strict_items: bool,
    kill_after: float,
    address: str | None,
    layers: Any,
    window: Any,
    context_cache: Any,
    assistants: Any,
    mcp: Any,
) -> Settings:
    """Raises ConfigError naming the argument that is wrong."""
    _check_name(name)
    _check_model(model_provider)
    _check_kill_after(kill_after)
    check_exporter(exporter)
    if address is not None:
        refuse_url(str(address))
    hooks = hooks or Hooks()
    servers = check_servers(mcp)
    engine = EngineConfig(
        name=name,
        model=model_provider,
        tools=_check_tools(tools),
        params=dict(params or {}),
        before_step=hooks.before_step,
        after_step=hooks.after_step,
        kill_after=kill_after,
        item_types=check_item_types(item_types),
        strict_items=strict_items,
        placement=Placement.of(placement),
        layers=check_layers(tuple(layers), f"harness {name!r}"),
        window=_check_window(window),
        cache=_check_cache(context_cache),
        assistants=check_assistants(assistants),
        mcp_clients=tuple(servers),
        tracing=exporter is not None,
    )
    place = str(store) if store is not None else None
    return Settings(engine, place, exporter, address, servers)


def _check_window(window: Any) -> Window | None:
    if window is None or isinstance(window, Window):
        return window
    raise ConfigError("INVALID_WINDOW", f"window is {window!r}", "Give nr.Window(...).")


def _check_cache(cache: Any) -> ContextCache:
    if cache is None:
        return ContextCache()
    if isinstance(cache, ContextCache):
        return cache
    raise ConfigError(
        "INVALID_CONTEXT_CACHE", f"context_cache is {cache!r}", "Give nr.ContextCache(...)."
    )


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError("EMPTY_HARNESS_NAME", f"a harness's name is {name!r}", "give it a text")


def _check_model(model: Any) -> None:
    if model is not None and not isinstance(model, Model):
        raise ConfigError(
            "INVALID_MODEL_PROVIDER",
            f"model_provider is {type(model).__name__}, which has no `generate` method",
            "use nr.models.OpenAI(...), nr.testing.ScriptedModel(fn), or write your own Model",
        )


def _check_kill_after(kill_after: Any) -> None:
    if not isinstance(kill_after, (int, float)) or isinstance(kill_after, bool) or kill_after < 0:
        raise ConfigError(
            "INVALID_KILL_AFTER", f"kill_after is {kill_after!r}", "give seconds, 0 or more"
        )


def _check_tools(tools: Iterable[Any]) -> tuple[Any, ...]:
    kept = tuple(tools)
    for tool in kept:
        if not isinstance(tool, Tool):
            raise ConfigError(
                "INVALID_TOOL",
                f"a tool of the harness is {type(tool).__name__}",
                "decorate a function with @nr.tool, or use nr.as_tool(step)",
            )
    wire_names(kept)
    return kept
