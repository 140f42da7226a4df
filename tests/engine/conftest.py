"""A harness whose model answers as tests/support/provider.py says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import noetic_ray as nr
from tests.conftest import BACKENDS, unique
from tests.support.provider import Provider


@pytest.fixture(scope="session", params=BACKENDS)
def talk(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """Shared by all tests of call_model, on each backend in turn."""
    if request.param != "inline":
        request.getfixturevalue("ray_cluster")
    name = unique(f"talk-{request.param}")
    with nr.Harness(name, Provider(), placement=request.param, kill_after=2.0) as harness:
        yield harness
