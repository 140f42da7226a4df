"""Whether the MCP SDK is there; it is an optional part of the installation."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from types import ModuleType

from noetic_ray.errors import ConfigError

__all__ = ["check_installed", "load_sdk"]


def check_installed() -> None:
    """Raise ConfigError MCP_NOT_INSTALLED when the `mcp` package is missing. Imports nothing."""
    if importlib.util.find_spec("mcp") is None:
        raise _missing("MCP servers need the package mcp, which is not installed.")


async def load_sdk() -> ModuleType:
    """`noetic_ray.mcp.session`, imported in a thread: the SDK takes half a second."""
    check_installed()
    try:
        return await asyncio.to_thread(importlib.import_module, "noetic_ray.mcp.session")
    except ImportError as error:
        raise _missing(f"The installed package mcp does not fit: {error}.") from error


def _missing(message: str) -> ConfigError:
    return ConfigError("MCP_NOT_INSTALLED", message, "Install it: pip install 'noetic-ray[mcp]'.")
