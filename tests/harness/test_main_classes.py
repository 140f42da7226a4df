"""Classes a script or notebook defines itself are the same classes after a round trip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BACKENDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=BACKENDS)
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the script reports, run as `__main__` on each backend in turn."""
    command = [sys.executable, "-m", "tests.harness.drivers.main_classes", str(request.param)]
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


KINDS = ["dataclass", "frozen dataclass", "enum", "flag", "frozen model", "model"]


@pytest.mark.parametrize("where", ["child", "below"])
def test_values_of_a_child_are_of_the_script_s_own_classes(
    found: dict[str, Any], where: str
) -> None:
    assert dict(zip(KINDS, found[where], strict=True)) == dict.fromkeys(KINDS, True)
    assert found[f"{where} is"] == [True, True]


def test_inputs_and_state_are_of_the_classes_a_child_knows(found: dict[str, Any]) -> None:
    assert found["knows"] == [True] * len(KINDS)
    assert found["state"] == [True] * len(KINDS)


def test_an_exception_as_a_value_keeps_its_class_and_attributes(found: dict[str, Any]) -> None:
    assert found["error"] == [True, 4]


def test_a_raised_exception_is_named(found: dict[str, Any]) -> None:
    assert found["raised"] == ["__main__.Oops", "code 4"]


def test_schemas_of_tools_and_models_are_the_same_everywhere(found: dict[str, Any]) -> None:
    assert found["schemas"]
    assert found["output schema"]


def test_models_refuse_the_same_everywhere(found: dict[str, Any]) -> None:
    assert found["rules"] == found["rules here"]
    days, note, name, frozen, shared = found["rules"]
    assert "greater than or equal to 1" in days
    assert "this note is forbidden" in note
    assert "valid string" in name
    assert "frozen" in frozen
    assert shared == "False"


def test_a_tool_gets_models_of_the_script(found: dict[str, Any]) -> None:
    same, days, note = found["output"]
    assert (same, days) == (True, 3)
    good, bad = note.split(" | ")
    assert good == "(TRUE, TRUE, TRUE) SEA 1 0 BLUE BONN"
    assert "FORBIDDEN" in bad


def test_an_output_the_validator_refuses_is_a_parse_error(found: dict[str, Any]) -> None:
    assert found["refused"]
