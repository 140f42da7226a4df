"""What anchoring can be told, and what is refused where it is written."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest

import noetic_ray as nr


def test_what_holds_without_a_word() -> None:
    assert asdict(nr.ContextCache()) == {
        "enabled": True,
        "min_cached_tokens": 100,
        "min_epoch_assemblies": 2,
        "max_epoch_assemblies": 50,
        "delta_budget_fraction": 0.15,
        "auto_demote_churn": 0.5,
        "auto_promote_churn": 0.2,
        "min_churn_samples": 3,
        "churn_decay": 0.5,
    }


def test_it_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        nr.ContextCache().enabled = False  # type: ignore[misc]


@pytest.mark.parametrize(
    "limits",
    [
        {"min_cached_tokens": 0},
        {"min_epoch_assemblies": 1, "max_epoch_assemblies": 1, "min_churn_samples": 1},
        {"delta_budget_fraction": 0, "churn_decay": 1},
        {"auto_demote_churn": 0.3, "auto_promote_churn": 0.3},
        {"auto_demote_churn": 1.0, "auto_promote_churn": 0.0},
    ],
)
def test_the_outermost_settings_are_taken(limits: Any) -> None:
    made = asdict(nr.ContextCache(**limits))
    assert {name: made[name] for name in limits} == limits


@pytest.mark.parametrize("name", ["min_epoch_assemblies", "max_epoch_assemblies"])
@pytest.mark.parametrize("value", [0, -1, 1.0, "2", None, True, float("nan")])
def test_a_count_is_a_whole_number_from_one_on(name: str, value: Any) -> None:
    expect_refused({name: value}, "whole number")


@pytest.mark.parametrize("value", [-1, 0.5, "2", None, False])
def test_tokens_are_a_whole_number(value: Any) -> None:
    expect_refused({"min_cached_tokens": value}, "at least 0")


@pytest.mark.parametrize(
    "name", ["delta_budget_fraction", "auto_demote_churn", "auto_promote_churn", "churn_decay"]
)
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), 10**400, "1", None, True])
def test_a_share_is_from_0_to_1(name: str, value: Any) -> None:
    expect_refused({name: value}, "from 0 to 1")


@pytest.mark.parametrize("value", [1, 0, None, "yes"])
def test_enabled_is_true_or_false(value: Any) -> None:
    expect_refused({"enabled": value}, "True or False")


def test_a_layer_may_not_go_back_and_forth() -> None:
    expect_refused({"auto_promote_churn": 0.9}, "back and forth")
    expect_refused({"auto_demote_churn": 0.1}, "back and forth")


def expect_refused(settings: dict[str, Any], hint: str) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        nr.ContextCache(**settings)
    assert caught.value.code == "INVALID_CONTEXT_CACHE"
    assert hint in str(caught.value.hint)
    assert any(f"{name}=" in str(caught.value) for name in ("auto_promote_churn", *settings))
