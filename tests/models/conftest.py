from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.model_server import ModelServer

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
OURS = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *(name.upper() for name in PROXIES), *OURS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between attempts, except where the server asks for it."""
    monkeypatch.setattr("noetic_ray.models.exchange.backoff", lambda attempt: 0.001)
