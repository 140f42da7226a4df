"""Few CPUs: contexts need none, and what can never be placed is refused at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.conftest import Running, run_driver
from tests.cluster.drivers.one_cpu import VALUES
from tests.cluster.drivers.two_cpus import CHILDREN, DEPTH

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def two_cpus(bare_env: dict[str, str]) -> dict[str, Any]:
    """What the driver on two CPUs found, and what it wrote to stderr."""
    done = run_driver("two_cpus", env=bare_env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "stderr": done.stderr, "said": done.stdout.splitlines()[:-1]}


def test_a_deep_tree_completes_on_two_cpus(two_cpus: dict[str, Any]) -> None:
    assert two_cpus["tree"]["value"] == 2 ** (DEPTH + 1) - 1


def test_contexts_that_ask_for_more_cpus_than_there_are_fail_fast(
    two_cpus: dict[str, Any],
) -> None:
    found = two_cpus["cpu_each"]
    assert found["code"] == "PLACEMENT_INFEASIBLE"
    assert "ask for 3 CPU, the cluster's nodes have 2 CPU" in found["text"]
    assert found["seconds"] < 30


def test_many_parallel_children_share_few_processes_and_keep_their_order(
    two_cpus: dict[str, Any],
) -> None:
    assert two_cpus["wide"]["value"] == list(range(CHILDREN))
    assert two_cpus["map"]["value"] == list(range(CHILDREN))
    assert two_cpus["actors"] <= 8


def test_aborting_many_parallel_children_in_the_middle_settles_them_all(
    two_cpus: dict[str, Any],
) -> None:
    contexts = CHILDREN + 1
    assert two_cpus["abort"] == {"status": "cancelled", "reached": contexts, "settled": contexts}


def test_a_storm_of_children_warns_of_nothing(two_cpus: dict[str, Any]) -> None:
    assert two_cpus["stderr"] == ""
    assert two_cpus["said"] == []


def test_a_bounded_channel_between_three_contexts_works_on_one_cpu(open_cluster: Running) -> None:
    assert open_cluster.driver("one_cpu") == list(range(VALUES))
