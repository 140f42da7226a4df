"""Instructions: where they are read, and what they cost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.usage import estimate_tokens
from tests.layers.builtin.support import Hosted


def test_they_ask_for_a_fair_share_and_stand_before_the_history() -> None:
    layer = nr.layers.instructions("Be kind.")
    assert (layer.budget, layer.placement, layer.scope) == ("auto", "anchor", "resource")


@settings(deadline=None)
@given(st.text(max_size=400), st.integers(1, 60))
async def test_they_fit_their_budget_and_end_with_the_tag(text: str, budget: int) -> None:
    layer = await Hosted(nr.layers.instructions(f"Be kind. {text}")).init()
    shown = await layer.recall(budget=budget)
    assert estimate_tokens(shown) <= budget
    assert not shown or shown.endswith("\n</instructions>")


@pytest.mark.parametrize("budget", [0, None])
async def test_without_a_budget_everything_is_shown(budget: int | None) -> None:
    layer = await Hosted(nr.layers.instructions("x" * 50_000)).init()
    assert "x" * 50_000 in await layer.recall(budget=budget)


async def test_a_file_is_found_from_another_working_directory(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("From a file.", "utf-8")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        made = nr.layers.instructions(Path("AGENTS.md"))
    finally:
        os.chdir(before)
    assert "From a file." in await (await Hosted(made).init()).recall()


@pytest.mark.parametrize("source", ["", " \n", 7, None])
def test_there_must_be_something_to_say(source: Any) -> None:
    with pytest.raises(nr.ConfigError):
        nr.layers.instructions(source)
