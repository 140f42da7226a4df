"""The app as a deployment of Ray Serve."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from ray.util import list_named_actors

import noetic_ray as nr
import noetic_ray.serve
from tests.serve import agents
from tests.support.wait import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
TOKEN = "s3cret"


@pytest.fixture(scope="module")
def url(ray_cluster: None) -> Iterator[str]:
    """Serve with our app on a free port; gone afterwards."""
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = noetic_ray.serve.app(
        [agents.talk, agents.teller, agents.waits],
        token=TOKEN,
        harness={"model_provider": agents.model(), "name": "from-serve"},
        ray_actor_options={"num_cpus": 0},
    )
    serve.start(http_options={"port": port})
    serve.run(served, name="agents", route_prefix="/")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


@pytest.fixture
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url + "/v1", api_key=TOKEN, max_retries=0)


def ours() -> list[str]:
    """Named actors of the replica's harness."""
    named: list[Any] = list_named_actors(all_namespaces=True)
    return [each["name"] for each in named if each["name"].startswith("from-serve-")]


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_an_answer_and_a_stream(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="talk", messages=ask("hi"))
    assert whole.choices[0].message.content == "echo: hi"
    assert ours()  # the harness is in the cluster
    stream = client.chat.completions.create(model="teller", messages=ask("hi"), stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(pieces) == "Thinking. Thought. Twice. echo: hi"
    assert len(pieces) > 3


def test_without_the_token_nobody_gets_in(url: str) -> None:
    assert httpx.get(url + "/v1/models").status_code == 401


def test_a_client_that_vanishes_aborts_its_run(url: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    asked = {"model": "waits", "messages": ask("x"), "stream": True}
    with httpx.stream(
        "POST", url + "/v1/chat/completions", json=asked, headers=headers, timeout=20.0
    ) as answer:
        next(line for line in answer.iter_lines() if "waiting" in line)
        id = answer.headers["x-noetic-run"]
    wait_until(
        lambda: httpx.get(f"{url}/v1/runs/{id}", headers=headers).json()["status"] == "cancelled"
    )


def test_nothing_of_a_deployment_is_left(client: openai.OpenAI) -> None:
    from ray import serve

    client.chat.completions.create(model="talk", messages=ask("hi"))
    serve.delete("agents")
    wait_until(lambda: not ours(), 20.0)
    assert ours() == []


def test_a_harness_cannot_be_handed_over() -> None:
    harness = nr.Harness("handed-over", placement="inline")
    with pytest.raises(nr.ConfigError) as caught:
        noetic_ray.serve.app(agents.talk, harness=harness)
    assert caught.value.code == "HARNESS_NOT_PORTABLE"


def test_importing_the_package_loads_no_server() -> None:
    code = (
        "import sys, noetic_ray.serve; "
        "print([m for m in ('starlette', 'uvicorn', 'ray.serve', 'fastapi') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    real = importlib.import_module

    def fake(name: str, package: str | None = None) -> Any:
        if name == missing:
            raise ImportError(f"No module named {name!r}")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", fake)
    with pytest.raises(nr.ConfigError, match=r"noetic-ray\[serve\]") as caught:
        noetic_ray.serve.make_app(nr.Harness("none", placement="inline"), agents.talk)
    assert caught.value.code == "SERVE_NOT_INSTALLED"
