"""A server in a thread, and agents to talk to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

import noetic_ray as nr
from noetic_ray.serve import make_app
from noetic_ray.serve.server import AppServer, listen
from tests.conftest import unique
from tests.serve import agents
from tests.support.wait import wait_until


class Live:
    """An app behind a real socket on this machine."""

    def __init__(self, harness: nr.Harness, served: Any, **options: Any) -> None:
        self.harness = harness
        self.token = options.get("token")
        self.app = make_app(harness, served, **options)
        self._socket = listen("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = AppServer(self.app)
        self._thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self._socket]}, name="noetic-test-server"
        )
        self._thread.start()
        wait_until(lambda: self.server.started)
        self.http = httpx.Client(base_url=self.url, timeout=20.0, trust_env=False)

    @property
    def service(self) -> Any:
        return self.app.state.service

    def openai(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=self.url + "/v1", api_key=self.token or "none", max_retries=0, **options
        )

    def async_openai(self, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=self.url + "/v1", api_key=self.token or "none", max_retries=0, **options
        )

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.post(path, json={} if body is None else body, **options)

    def start(self, agent: str, input: Any = None, **more: Any) -> str:
        """Start a run and return its id."""
        answer = self.post("/v1/runs", {"agent": agent, "input": input, **more})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def status(self, run_id: str) -> str:
        return str(self.http.get(f"/v1/runs/{run_id}").json()["status"])

    def wait_for(self, run_id: str, *statuses: str) -> dict[str, Any]:
        wait_until(lambda: self.status(run_id) in statuses)
        return dict(self.http.get(f"/v1/runs/{run_id}").json())

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(20.0)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.http.close()
        self.stop()
        self._socket.close()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def make_live(make_harness: Callable[..., nr.Harness]) -> Iterator[Callable[..., Live]]:
    """Makes servers on inline harnesses with the scripted model; all are stopped after the test."""
    made: list[Live] = []

    def make(served: Any = agents.ALL, model: Any = None, **options: Any) -> Live:
        harness = make_harness(model or agents.model(), placement="inline", kill_after=2.0)
        made.append(Live(harness, served, **options))
        return made[-1]

    yield make
    for live in made:
        live.close()


def _standing(**options: Any) -> Iterator[Live]:
    with nr.Harness(unique("test"), agents.model(), placement="inline") as harness:
        live = Live(harness, agents.ALL, **options)
        yield live
        live.close()


@pytest.fixture(scope="module")
def standing() -> Iterator[Live]:
    """A server for all tests of a module that leave nothing behind."""
    yield from _standing()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Live]:
    """The same with a token."""
    yield from _standing(token="s3cret-token")


@pytest.fixture
def live(make_live: Callable[..., Live]) -> Live:
    """All agents of `tests.serve.agents`, without a token."""
    return make_live()
