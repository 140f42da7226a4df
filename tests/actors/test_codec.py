from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from datetime import datetime
from typing import Any

import pytest

from noetic_ray.actors.codec import dumps, loads

PLAIN: list[Any] = [
    None,
    1,
    -2.5,
    "text",
    b"bytes",
    True,
    [1, [2, (3, {4})]],
    {"a": {"b": [None]}},
    frozenset({1}),
]


@pytest.mark.parametrize("value", [*PLAIN, datetime(2024, 1, 1), 1j])
def test_values_come_back_as_they_were(value: Any) -> None:
    back = loads(dumps(value))
    assert back == value
    assert type(back) is type(value)


def test_data_that_holds_itself_comes_back() -> None:
    ring: list[Any] = []
    ring.append(ring)
    back = loads(dumps(ring))
    assert back[0] is back


def test_functions_and_local_classes_travel() -> None:
    class Local(int):
        pass

    assert loads(dumps(lambda x: x + 1))(1) == 2
    assert loads(dumps([Local(3)])) == [3]


def test_what_cannot_travel_raises() -> None:
    with pytest.raises(TypeError):
        dumps(threading.Lock())


def test_classes_of_main_are_rebuilt_in_a_process_without_them() -> None:
    script = (
        "import sys\n"
        "from noetic_ray.actors.codec import dumps\n"
        "class Thing:\n    x = 5\n"
        "sys.stdout.buffer.write(dumps({'thing': Thing()}))\n"
    )
    data = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=60
    ).stdout
    assert loads(data)["thing"].x == 5


def test_small_values_are_cheap() -> None:
    started = time.perf_counter()
    for _ in range(10_000):
        dumps(7)
    assert (time.perf_counter() - started) / 10_000 < 50e-6


def test_the_sentinels_of_dataclasses_stay_themselves() -> None:
    sentinels = (dataclasses.MISSING, dataclasses.KW_ONLY)
    assert all(a is b for a, b in zip(loads(dumps(sentinels)), sentinels, strict=True))
