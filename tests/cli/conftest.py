from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from noetic_ray.cli.app import app
from tests.support.commands import Done

PROVIDERS = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "RAY_ADDRESS")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No provider from outside, and the process as it was afterwards."""
    for name in (*PROVIDERS, *PROXIES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Here:
    """Runs commands within this process, without Ray unless they ask for it."""

    def __call__(self, *args: str, stdin: str | None = None, **env: str) -> Done:
        given: Mapping[str, str] = {**os.environ, **env}
        result = CliRunner().invoke(app, list(args), input=stdin, env=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    def json(self, *args: str, **env: str) -> Any:
        """The one JSON object on stdout."""
        return json.loads(self(*args, "--json", **env).out)


@pytest.fixture
def cli() -> Here:
    return Here()
