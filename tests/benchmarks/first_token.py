"""From a request to the first words: `noetic-ray serve` on Ray, beside the model server alone."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support.model_server import server_process

REQUESTS = 40
ROUNDS = 5
WARM_UP = 20
AGENT = "tests.benchmarks.http_agent:agent"


@contextlib.contextmanager
def served(model_url: str) -> Iterator[str]:
    """`noetic-ray serve` in a process of its own; gives its base URL."""
    command = [sys.executable, "-m", "noetic_ray.cli", "serve", AGENT, "--port", "0"]
    environment = {**os.environ, "OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "sk-bench"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            found = re.search(r"http://[\d.:]+", line)
            if found and "serving" in line:
                yield found[0] + "/v1"
                return
        raise SystemExit("noetic-ray serve did not start")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def first_words(client: httpx.Client, url: str, model: str) -> float:
    """Seconds until the first piece of text of a streamed chat completion."""
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "messages": [{"role": "user", "content": "hello"}],
    }
    started = time.perf_counter()
    first: float | None = None
    with client.stream("POST", f"{url}/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if first is None and '"content":"' in line.replace('": "', '":"'):
                first = time.perf_counter() - started
    assert first is not None
    return first


def run() -> dict[str, float]:
    """`first_token_added_ms`: the median of rounds, each the difference of two medians."""
    added: list[float] = []
    with (
        server_process(rounds=0) as model_url,
        served(model_url) as url,
        httpx.Client(timeout=60) as client,
    ):
        for _ in range(WARM_UP):
            first_words(client, url, "agent")
            first_words(client, model_url, "bench")
        for _ in range(ROUNDS):
            ours = [first_words(client, url, "agent") for _ in range(REQUESTS)]
            theirs = [first_words(client, model_url, "bench") for _ in range(REQUESTS)]
            added.append(statistics.median(ours) - statistics.median(theirs))
    return {"first_token_added_ms": statistics.median(added) * 1e3}
