"""Telling the time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import noetic_ray as nr
from tests.layers.builtin.support import Hosted


def naive() -> datetime:
    return datetime(2026, 6, 1, 12, 34)


async def test_a_time_without_a_zone_is_in_the_layer_s() -> None:
    shown = await Hosted(nr.layers.temporal("Asia/Tokyo", clock=naive)).recall()
    assert shown == "Now: Monday 2026-06-01T12:34+09:00 (Asia/Tokyo)"


def test_its_place_is_left_to_how_often_it_changes() -> None:
    layer = nr.layers.temporal()
    assert (layer.placement, layer.scope) == ("auto", "execution")


@pytest.mark.parametrize("tz", ["Mars/Olympus", "America", "", "../UTC", None, 1])
def test_a_zone_must_exist(tz: Any) -> None:
    with pytest.raises(nr.ConfigError):
        nr.layers.temporal(tz)
