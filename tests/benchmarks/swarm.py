"""A thousand agents against a local OpenAI-compatible server, beside a plain asyncio loop.

Each agent makes three model calls and two tool calls. The plain loop does the same calls with
aiohttp, in this process, and nothing else: no log, no journal, no tracing, no isolation.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any

import psutil

import noetic_ray as nr
from tests.benchmarks.memory import ray_workers
from tests.benchmarks.stepping import Discard
from tests.support.model_server import server_process

AGENTS = 1_000


@nr.tool
async def lookup(key: str = "") -> str:
    """Look a key up."""
    return f"value of {key}"


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes so far."""
    total = 0.0
    for pid in pids:
        times = psutil.Process(pid).cpu_times()
        total += times.user + times.system
    return total


async def _plain_agent(session: Any, url: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "find three things"}]
    body = {"model": "bench", "stream": True, "tools": [], "messages": messages}
    for _ in range(3):
        async with session.post(f"{url}/chat/completions", json=body) as response:
            calls: list[dict[str, Any]] = []
            text = ""
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    delta = choice.get("delta") or {}
                    text += delta.get("content") or ""
                    calls += [call for call in delta.get("tool_calls") or () if call.get("id")]
        if not calls:
            return
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        messages.extend(
            {"role": "tool", "tool_call_id": call["id"], "content": "value"} for call in calls
        )


async def _plain_swarm(url: str) -> tuple[float, float]:
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        begun, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(_plain_agent(session, url) for _ in range(AGENTS)))
        return time.perf_counter() - begun, time.process_time() - cpu


def run(repeats: int = 5) -> dict[str, float]:
    """swarm_1000_over_asyncio and swarm_cpu_ms_per_agent."""
    walls, plain_walls, cpus, plain_cpus = [], [], [], []
    with server_process(latency=0.02) as url:
        agent = nr.call_model("agent", "bench", instructions="Find things.", tools=[lookup])
        model = nr.models.OpenAI(base_url=url, api_key="bench", api="chat")
        placement = nr.Placement("shared", warm=4)
        with nr.Harness("bench-swarm", model, placement=placement, exporter=Discard()) as harness:
            harness.map(agent, ["find three things"] * AGENTS, progress=False)
            for _ in range(repeats):
                wall, cpu = asyncio.run(_plain_swarm(url))
                plain_walls.append(wall)
                plain_cpus.append(cpu)
                pids = ray_workers()
                begun, before = time.perf_counter(), cpu_seconds(pids)
                harness.map(agent, ["find three things"] * AGENTS, progress=False)
                walls.append(time.perf_counter() - begun)
                cpus.append(cpu_seconds(pids) - before)
    wall, plain = statistics.median(walls), statistics.median(plain_walls)
    return {
        "swarm_1000_over_asyncio": wall / plain,
        "swarm_cpu_ms_per_agent": statistics.median(cpus) / AGENTS * 1e3,
        "swarm_1000_s": wall,
        "asyncio_1000_s": plain,
        "asyncio_cpu_ms_per_agent": statistics.median(plain_cpus) / AGENTS * 1e3,
    }
