"""On which node a context's process is started, and when there is no room for one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from noetic_ray import ConfigError, Placement
from noetic_ray.actors.fleet import Fleet, node_name


def nodes(**cpus: float) -> list[dict[str, Any]]:
    """What Ray says of nodes: their ids, here 56 letters, and their CPUs."""
    return [
        {"NodeID": name * 56, "Alive": True, "Resources": {"CPU": count}}
        for name, count in cpus.items()
    ]


def fleet_on(**cpus: float) -> Fleet:
    """A fleet that knows these nodes."""
    fleet = Fleet()
    fleet.nodes_are(nodes(**cpus))
    return fleet


def started(fleet: Fleet, placement: Placement, count: int) -> list[str]:
    """The nodes of new workers, one after the other; they come up where they were sent."""
    places = []
    for _ in range(count):
        ((worker, _),) = fleet.reserve("driver", placement, 1)
        strategy = fleet.strategy(worker, placement)
        places.append(strategy if isinstance(strategy, str) else strategy.node_id[0])
        worker.ready.set()
    return places


def test_processes_are_spread_over_the_nodes_by_their_cpus() -> None:
    fleet = fleet_on(a=1, b=3)
    assert Counter(started(fleet, Placement(), 8)) == {"a": 2, "b": 6}


def test_a_head_without_cpus_is_left_alone_while_others_have_room() -> None:
    fleet = fleet_on(h=0, a=2, b=2)
    assert Counter(started(fleet, Placement(), 12)) == {"a": 6, "b": 6}


def test_a_node_that_refused_a_process_gets_no_other() -> None:
    fleet = fleet_on(a=1, b=1)
    ((worker, _),) = fleet.reserve("driver", Placement(), 1)
    assert fleet.strategy(worker, Placement()).node_id[0] == "a"
    assert fleet.avoid_node_of(worker)
    fleet.bury(worker)
    assert set(started(fleet, Placement(), 3)) == {"b"}


def test_one_node_and_spread_need_no_choice() -> None:
    assert started(fleet_on(a=2), Placement(), 1) == ["DEFAULT"]
    assert started(fleet_on(a=1, b=1), Placement(spread=True), 1) == ["SPREAD"]
    assert started(fleet_on(a=1, b=1), Placement(num_cpus=1), 1) == ["DEFAULT"]


def test_workers_are_counted_on_the_node_they_really_came_up_on() -> None:
    fleet = fleet_on(a=1, b=1)
    for _ in range(2):
        ((worker, _),) = fleet.reserve("driver", Placement(), 1)
        worker.node = node_name("a" * 56)
    assert started(fleet, Placement(), 2) == ["b", "b"]


def test_asking_for_more_than_all_nodes_have_names_both_figures() -> None:
    fleet = fleet_on(a=1, b=1)
    fleet.reserve("driver", Placement(num_cpus=1), 2)
    with pytest.raises(ConfigError, match="ask for 3 CPU, the cluster's nodes have 1 CPU; 1 CPU"):
        fleet.reserve("driver", Placement(num_cpus=1), 1)
    with pytest.raises(ConfigError, match=r"ask for 2\.5 CPU"):
        fleet.reserve("driver", Placement(num_cpus=0.5), 1)
    assert len(fleet.all()) == 2


def test_an_own_limit_lets_contexts_share_what_their_processes_ask_for() -> None:
    fleet = fleet_on(a=2)
    plans = fleet.reserve("driver", Placement(num_cpus=1, max_actors=2), 9)
    assert sorted(count for _, count in plans) == [4, 5]


def test_shared_processes_never_ask_for_more_than_there_is() -> None:
    fleet = fleet_on(a=2)
    crowded = Placement("shared", contexts_per_actor=3, num_cpus=1)
    plans = fleet.reserve("driver", crowded, 20)
    assert len(plans) == 2
    assert sum(count for _, count in plans) == 20


def test_idle_processes_that_hold_what_others_ask_for_are_found() -> None:
    fleet = fleet_on(a=2)
    ((big, _),) = fleet.reserve("driver", Placement(num_cpus=2), 1)
    assert fleet.idle_hoarders(Placement(num_cpus=1)) == []
    fleet.release("driver", big.id, 1)
    assert fleet.idle_hoarders(Placement(num_cpus=1)) == [big]
    assert fleet.idle_hoarders(Placement(num_cpus=2)) == []
    assert fleet.idle_hoarders(Placement()) == []


def test_placements_with_the_same_environment_are_the_same_key() -> None:
    one = Placement(runtime_env={"env_vars": {"A": "1"}}, resources={"disk": 1})
    same = Placement(runtime_env={"env_vars": {"A": "1"}}, resources={"disk": 1})
    other = Placement(runtime_env={"env_vars": {"A": "2"}}, resources={"disk": 1})
    assert {one: 1}[same] == 1
    assert other not in {one: 1}
