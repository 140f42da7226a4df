from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from noetic_ray.errors import ConfigError
from noetic_ray.placement import Placement


def test_default_is_an_actor_for_each_context() -> None:
    placement = Placement.of(None)
    assert placement == Placement()
    assert placement.mode == "actor"
    assert placement.per_actor == 1
    assert placement.num_cpus == 0


@pytest.mark.parametrize(
    ("mode", "per_actor"), [("actor", 1), ("strict", 1), ("shared", 256), ("inline", 1)]
)
def test_a_mode_may_stand_for_a_placement(mode: str, per_actor: int) -> None:
    placement = Placement.of(mode)
    assert placement.mode == mode
    assert placement.per_actor == per_actor


def test_a_placement_is_taken_as_it_is() -> None:
    placement = Placement("shared", contexts_per_actor=8)
    assert Placement.of(placement) is placement
    assert placement.per_actor == 8


@pytest.mark.parametrize("mode", ["process", "", 5, None])
def test_an_unknown_mode_is_refused(mode: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Placement(mode=mode)
    assert caught.value.code == "UNKNOWN_PLACEMENT"
    assert "shared" in str(caught.value)


def test_an_unknown_text_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Placement.of("cloud")
    assert caught.value.code == "UNKNOWN_PLACEMENT"


@pytest.mark.parametrize(
    "wrong",
    [
        {"contexts_per_actor": 0},
        {"contexts_per_actor": 1.5},
        {"contexts_per_actor": True},
        {"max_actors": 0},
        {"warm": -1},
        {"num_cpus": -1},
        {"num_cpus": "1"},
        {"num_gpus": float("nan")},
        {"num_gpus": float("inf")},
        {"resources": ["gpu"]},
        {"resources": {"accelerator": -1}},
        {"runtime_env": "env.yaml"},
        {"mode": "strict", "contexts_per_actor": 2},
    ],
)
def test_wrong_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Placement(**wrong)
    assert caught.value.code == "INVALID_PLACEMENT"
    assert list(wrong)[-1] in str(caught.value)


def test_it_is_frozen_and_pickles() -> None:
    placement = Placement("shared", warm=0, num_cpus=0.5, resources={"a": 1}, spread=True)
    assert pickle.loads(pickle.dumps(placement)) == placement
    with pytest.raises(FrozenInstanceError):
        placement.warm = 1  # type: ignore[misc]
