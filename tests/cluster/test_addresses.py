"""Joining a cluster: with and without its token, and where there is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from noetic_ray import ConfigError, Harness
from noetic_ray.harness import ray_address
from tests.cluster.conftest import Running, drive

pytestmark = pytest.mark.ray
SOON = 8.0
"""Seconds; Ray itself would need 20 to notice a wrong token and over 120 to notice nobody."""


def test_a_driver_with_the_token_joins_a_protected_cluster(cluster: Running) -> None:
    assert cluster.driver("join", cluster.address, RAY_ADDRESS=None)["value"] == 42


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN_PATH": None}, "set RAY_AUTH_MODE=token"),
        ({"RAY_AUTH_MODE": "disabled"}, "set RAY_AUTH_MODE=token"),
        ({"RAY_AUTH_TOKEN_PATH": None}, "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"),
        ({"RAY_AUTH_TOKEN_PATH": None, "RAY_AUTH_TOKEN": "0" * 64}, "it came from"),
        ({"RAY_AUTH_TOKEN_PATH": "/no/such/file"}, "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"),
    ],
    ids=["no mode", "disabled", "no token", "wrong token", "no token file"],
)
def test_a_driver_without_the_token_is_told_so_at_once(
    cluster: Running, changes: dict[str, str | None], hint: str
) -> None:
    found = cluster.driver("join", "auto", **changes)
    assert found["code"] == "RAY_AUTHENTICATION"
    assert found["hint"].startswith(hint)
    assert found["seconds"] < SOON


def test_a_cluster_without_authentication_takes_drivers_without_a_token(
    open_cluster: Running,
) -> None:
    assert open_cluster.driver("join", "auto")["value"] == 42


def test_a_driver_that_sends_a_token_where_none_is_wanted_is_told_so(
    open_cluster: Running,
) -> None:
    found = open_cluster.driver("join", "auto", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
    assert found["code"] == "RAY_AUTHENTICATION"
    assert found["hint"] == "set RAY_AUTH_MODE=disabled to join it"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        yield server.getsockname()[1]


@pytest.fixture
def dead_port() -> int:
    """A port nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_an_address_where_nobody_listens_fails_within_seconds(
    bare_env: dict[str, str], dead_port: int
) -> None:
    found = drive("join", f"127.0.0.1:{dead_port}", env=bare_env)
    assert found["code"] == "RAY_UNREACHABLE"
    assert "HOST:PORT of the head node" in found["hint"]
    assert found["seconds"] < SOON


def test_an_address_that_never_answers_fails_within_seconds(
    monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    monkeypatch.setattr(ray_address, "PROBE_SECONDS", 0.3)
    with pytest.raises(ConfigError, match="no Ray cluster answers") as caught:
        ray_address.resolve(f"127.0.0.1:{silent_port}")
    assert caught.value.code == "RAY_UNREACHABLE"


def test_an_address_in_the_environment_is_checked_too(
    monkeypatch: pytest.MonkeyPatch, dead_port: int
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{dead_port}")
    for address in (None, "auto"):
        with pytest.raises(ConfigError) as caught:
            ray_address.resolve(address)
        assert caught.value.code == "RAY_UNREACHABLE"
    assert ray_address.resolve("local") == "local"


@pytest.mark.parametrize(
    ("address", "code", "hint"),
    [
        ("ray://127.0.0.1:10001", "RAY_CLIENT_REFUSED", "submit the driver as a job"),
        ("http://127.0.0.1:8265", "INVALID_ADDRESS", "noetic-ray submit"),
    ],
)
def test_a_url_is_refused_with_a_hint(address: str, code: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ray_address.resolve(address)
    assert caught.value.code == code
    assert hint in str(caught.value.hint)


def test_the_record_of_a_cluster_that_is_gone_does_not_stop_a_local_one(
    monkeypatch: pytest.MonkeyPatch, dead_port: int
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_address, "_recorded_address", lambda: f"127.0.0.1:{dead_port}")
    assert ray_address.resolve(None) == "local"
    with pytest.raises(ConfigError, match="no Ray cluster answers"):
        ray_address.resolve("auto")


def test_another_address_than_this_process_s_ray_is_refused(ray_cluster: None) -> None:
    with pytest.raises(ConfigError) as caught:
        Harness("elsewhere", address="127.0.0.1:1").open()
    assert caught.value.code == "ADDRESS_CONFLICT"
