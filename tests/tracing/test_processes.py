"""Traces across processes: what they cost there, and what is left when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import noetic_ray as nr
from tests.tracing.conftest import Traced
from tests.tracing.steps import imported
from tests.tracing.test_span_tree import leaf
from tests.tracing.traces import attributes

on_ray = pytest.mark.parametrize("backend", ["actor"])


def test_an_actor_that_hosts_contexts_does_not_import_the_sdk(
    make_harness: Callable[..., nr.Harness],
) -> None:
    exporter = InMemorySpanExporter()
    placement = nr.Placement("actor", max_actors=1, warm=1)
    modules = make_harness(placement=placement, exporter=exporter).run(imported)
    assert len(exporter.get_finished_spans()) == 2
    assert "opentelemetry.trace" in modules
    assert not [name for name in modules if name.startswith("opentelemetry.sdk")]


@nr.step
async def dies(_: None, ctx: nr.Context) -> None:
    await ctx.checkpoint()
    os.kill(os.getpid(), signal.SIGKILL)


@nr.step
async def outlives(_: None, ctx: nr.Context) -> str:
    await ctx.spawn(leaf, "x")
    try:
        await ctx.spawn(dies)
    except nr.ContextLost:
        return "outlived"
    return "unexpected"


@on_ray
def test_a_child_whose_process_was_killed_is_in_the_trace_as_lost(traced: Traced) -> None:
    output, trace = traced.run(outlives)
    assert output == "outlived"
    assert trace.tree() == [
        "invoke_agent outlives",
        "  step outlives",
        "    invoke_agent dies",
        "    invoke_agent leaf",
        "      step leaf",
    ]
    lost = trace.one("invoke_agent dies")
    found = attributes(lost)
    assert not lost.status.is_ok
    assert (found["noetic.outcome"], found["noetic.lost"]) == ("lost", True)
    assert found["error.type"] == "ContextLost"
    assert found["noetic.run.id"] == attributes(trace.one("invoke_agent leaf"))["noetic.run.id"]


def test_rays_own_tracing_does_not_get_in_the_way() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.tracing.hooked_driver"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    child = ["    invoke_agent in_thread", "      step in_thread"]
    grandchild = ["        invoke_agent leaf", "          step leaf"]
    assert done.stdout.splitlines() == [
        "tracing by Ray: True",
        "invoke_agent branches",
        "  step branches",
        *[*child, *grandchild] * 3,
        "    step leaf",
        "invoke_agent calculator",
        "  step calculator",
        "    chat adds",
        "    chat adds",
        "    execute_tool add",
    ]
