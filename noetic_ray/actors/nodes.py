"""Which Ray node an actor runs on."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def on_this_node() -> Any:
    """The scheduling strategy of what lives and dies with this process.

    A harness's supervisor, journal and channels run where its driver runs: they are not lost with
    any other node, and a store's path is one of the driver's machine.
    """
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
