"""Contexts of one process share a provider's connections, and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.models import OpenAI
from tests.support.model_server import ModelServer


def _await_event(run: nr.Run[Any], type: str) -> None:
    for event in run.events():
        if event.type == type:
            return


def test_aborting_one_context_leaves_another_s_look_up_of_the_host_alone(
    make_harness: Callable[..., nr.Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to need a host looks it up for all."""
    asked, go = threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def slow(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "models.test":
            asked.set()
            go.wait(60)
            host = "127.0.0.1"
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with ModelServer() as server:
        url = server.url.replace("127.0.0.1", "models.test").replace("localhost", "models.test")
        model = OpenAI(base_url=url, api_key="k", attempts=1)
        harness = make_harness(model, placement="inline")
        step = nr.call_model("m", "any")
        first = harness.start(step, "hi")
        assert asked.wait(30)
        second = harness.start(step, "hi")
        _await_event(second, "model.started")
        first.abort("not needed")
        go.set()
        assert second.result(timeout=30)
        with pytest.raises(nr.Cancelled):
            first.result()
