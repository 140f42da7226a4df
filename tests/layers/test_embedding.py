"""Texts as vectors, without a network."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_ray.layers.builtin.embedding import DIMENSIONS, embedded, hashed_words
from noetic_ray.until import cosine


@given(st.text())
def test_any_text_has_a_vector_of_length_one_or_none(text: str) -> None:
    vector = hashed_words(text)
    assert len(vector) == DIMENSIONS
    length = math.hypot(*vector)
    assert length == 0 or math.isclose(length, 1.0)


def test_another_process_makes_the_same_vectors() -> None:
    text = "Größe, 猫の名前, ferry to Oslo at 7"
    code = (
        "import json, sys; from noetic_ray.layers.builtin.embedding import hashed_words;"
        "print(json.dumps(hashed_words(sys.argv[1])))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, text], capture_output=True, text=True, check=True
    )
    assert json.loads(other.stdout) == hashed_words(text)


def test_vectors_stay_the_same_from_version_to_version() -> None:
    rounded = [round(number, 6) + 0.0 for number in hashed_words("Ferry to Oslo, 猫の名前")]
    digest = hashlib.sha256(json.dumps(rounded).encode()).hexdigest()
    assert digest[:16] == "56f58056e31b8511"


def test_case_width_and_punctuation_do_not_count() -> None:
    assert hashed_words("\uff21\uff22\uff23, def!") == hashed_words("abc DEF")


def test_scripts_without_spaces_are_compared_in_parts() -> None:
    near = cosine(hashed_words("我的猫叫米娅"), hashed_words("我的猫叫什么名字"))
    far = cosine(hashed_words("我的猫叫米娅"), hashed_words("明天税务局九点开门"))
    assert near > 0.4
    assert far < 0.2


@pytest.mark.parametrize("given", [None, 3, "123", b"12", ["a"], [None], [10**400]])
async def test_what_is_no_vector_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="not numbers"):
        await embedded(lambda text: given, "x")  # type: ignore[arg-type, return-value]
