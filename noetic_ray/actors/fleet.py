"""Which context actors exist, who leases them, and where the next context goes. No Ray calls."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.placement import Placement

Plan = tuple["Worker", int]

FRESH_SECONDS = 0.05


class Worker:
    """One context actor, from the decision to start it until it is dead."""

    __slots__ = (
        "bound_to",
        "dead",
        "failure",
        "handle",
        "heard_at",
        "id",
        "key",
        "leases",
        "load",
        "needs",
        "node",
        "pid",
        "ready",
        "tainted",
    )

    def __init__(self, id: str, key: str, needs: Mapping[str, float]) -> None:
        self.id = id
        self.key = key
        self.needs = needs
        self.handle: Any = None
        self.ready = asyncio.Event()
        self.leases: dict[str, int] = {}
        self.load = 0
        self.pid = 0
        self.node = ""
        self.bound_to: str | None = None
        self.dead = False
        self.tainted = False
        self.failure: NoeticError | None = None
        self.heard_at = 0.0

    def heard(self) -> None:
        """It answered just now."""
        self.heard_at = time.monotonic()

    def seems_alive(self) -> bool:
        """Whether it answered so recently that asking again tells nothing."""
        return time.monotonic() - self.heard_at < FRESH_SECONDS


class Fleet:
    """Places contexts. Leases are counts per holder; a worker's load is their sum."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._counter = 0
        self._nodes: list[tuple[str, Mapping[str, float]]] = []
        self._nodes_at = -math.inf
        self._avoided: set[str] = set()
        self._released = asyncio.Event()

    # -- what exists -----------------------------------------------------------------------------

    def knows_nodes(self, max_age: float) -> bool:
        """Whether it was told about the nodes within so many seconds: clusters grow and shrink."""
        return time.monotonic() - self._nodes_at <= max_age

    def nodes_are(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Take in what `ray.nodes()` said."""
        self._nodes_at = time.monotonic()
        self._nodes = [
            (node["NodeID"], node.get("Resources") or {}) for node in nodes if node.get("Alive")
        ]

    def find(self, id: str) -> Worker | None:
        """A worker that is not dead."""
        return self._workers.get(id)

    def all(self) -> list[Worker]:
        """Every worker that is not dead."""
        return list(self._workers.values())

    def alive(self) -> list[Worker]:
        """Workers that answer."""
        return [w for w in self._workers.values() if w.ready.is_set() and not w.dead]

    def cpus(self) -> float:
        """CPUs of all nodes together."""
        return sum(resources.get("CPU", 0.0) for _, resources in self._nodes)

    # -- placing ---------------------------------------------------------------------------------

    def check(self, placement: Placement) -> None:
        """Raise ConfigError PLACEMENT_INFEASIBLE when no node is big enough."""
        needs = _needs(placement)
        if not needs or not self._nodes:
            return
        fits = any(
            all(resources.get(name, 0.0) >= amount for name, amount in needs.items())
            for _, resources in self._nodes
        )
        if not fits:
            raise _infeasible(needs, self._nodes)

    def warm_up(self, placement: Placement) -> list[Worker]:
        """New workers to start ahead of any context."""
        if placement.mode == "inline" or _needs(placement):
            wanted = placement.warm or 0
        else:
            wanted = placement.warm if placement.warm is not None else int(self._cpus_per_node())
        wanted = min(wanted, self._limit(placement))
        return [self._add(placement) for _ in range(wanted)]

    def _cpus_per_node(self) -> float:
        return self.cpus() / max(1, len(self._nodes))

    def reserve(self, holder: str, placement: Placement, count: int) -> list[Plan]:
        """Places for `count` contexts, reserved for `holder` at once."""
        self.check(placement)
        if placement.mode == "shared":
            plans = self._pack(placement, count)
        else:
            plans = self._one_each(placement, count)
        for worker, n in plans:
            worker.leases[holder] = worker.leases.get(holder, 0) + n
            worker.load += n
        return plans

    def _one_each(self, placement: Placement, count: int) -> list[Plan]:
        """Own actors as long as there are any; then contexts share, or `strict` is refused."""
        mine = self._of(placement)
        per_actor = placement.per_actor
        idle = [worker for worker in mine if not worker.load and not worker.tainted]
        idle.sort(key=lambda worker: not worker.ready.is_set())
        room = self._limit(placement) - len(mine)
        needed = -(-count // per_actor)
        fresh = max(0, min(needed - len(idle), room))
        if placement.mode == "strict" and needed > len(idle) + fresh:
            raise _no_own_process(placement, count, len(idle) + fresh, self._limit(placement))
        self._require_room(placement, fresh)
        chosen = [*idle[:needed], *(self._add(placement) for _ in range(fresh))]
        plans = _spread(chosen, min(count, len(chosen) * per_actor))
        left = count - sum(n for _, n in plans)
        if left:
            plans = _joined(plans, self._overflow(placement, left))
        return plans

    def _pack(self, placement: Placement, count: int) -> list[Plan]:
        """Fill shared actors one after the other."""
        plans: list[Plan] = []
        size = placement.per_actor
        for worker in sorted(self._of(placement), key=lambda each: -each.load):
            free = size - worker.load
            if free > 0 and count and not worker.tainted:
                plans.append((worker, min(free, count)))
                count -= plans[-1][1]
        while count and len(self._of(placement)) < self._limit(placement):
            if self._too_much(placement, 1) and self._of(placement):
                break
            self._require_room(placement, 1)
            worker = self._add(placement)
            plans.append((worker, min(size, count)))
            count -= plans[-1][1]
        return _joined(plans, self._overflow(placement, count)) if count else plans

    def _overflow(self, placement: Placement, count: int) -> list[Plan]:
        """Beyond `max_actors`: siblings go together to the actors with the least to do."""
        usable = [worker for worker in self._of(placement) if not worker.tainted]
        if not usable:
            self._require_room(placement, 1)
            usable = [self._add(placement)]
        usable.sort(key=lambda worker: worker.load)
        return _spread(usable[: max(1, min(len(usable), -(-count // 4)))], count)

    def _of(self, placement: Placement) -> list[Worker]:
        key = _key(placement)
        return [w for w in self._workers.values() if w.key == key and not w.dead]

    def _limit(self, placement: Placement) -> int:
        if placement.max_actors is not None:
            return placement.max_actors
        return max(4, int(4 * self.cpus()))

    def _require_room(self, placement: Placement, fresh: int) -> None:
        """Raise PLACEMENT_INFEASIBLE when so many new actors could never all be placed."""
        needs = self._too_much(placement, fresh)
        if needs:
            raise _infeasible(needs, self._nodes)

    def _too_much(self, placement: Placement, fresh: int) -> dict[str, float]:
        """What all actors ask for, with so many new ones, where the cluster has less of it."""
        wanted: dict[str, float] = {}
        for name, amount in _needs(placement).items() if fresh else ():
            held = sum(worker.needs.get(name, 0.0) for worker in self._workers.values())
            there = sum(resources.get(name, 0.0) for _, resources in self._nodes)
            if held + amount * fresh > there:
                wanted[name] = held + amount * fresh
        return wanted

    def idle_hoarders(self, placement: Placement) -> list[Worker]:
        """Idle actors of other kinds that hold resources this placement asks for."""
        wanted, key = _needs(placement), _key(placement)
        return [
            worker
            for worker in self._workers.values()
            if worker.key != key and not worker.load and wanted.keys() & worker.needs.keys()
        ]

    def _add(self, placement: Placement) -> Worker:
        self._counter += 1
        worker = Worker(f"ctx-{self._counter}", _key(placement), _needs(placement))
        self._workers[worker.id] = worker
        return worker

    def strategy(self, worker: Worker, placement: Placement) -> Any:
        """Where to start a worker: on the node with the fewest of ours per CPU.

        A head node that offers no CPU gets one when every other node has ten for each CPU.
        """
        if placement.spread or len(self._nodes) < 2 or worker.needs:
            return "SPREAD" if placement.spread else "DEFAULT"
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        counts = Counter(each.node for each in self._workers.values())
        usable = [n for n in self._nodes if n[0] not in self._avoided]
        if not usable:
            return "DEFAULT"
        node, _ = min(
            usable, key=lambda n: (counts[node_name(n[0])] + 1) / max(n[1].get("CPU", 0.0), 0.1)
        )
        worker.node = node_name(node)
        worker.bound_to = node
        # Not soft: Ray would often start an actor that asks for nothing on another node.
        return NodeAffinitySchedulingStrategy(node, soft=False)

    def avoid_node_of(self, worker: Worker) -> bool:
        """A worker was refused by its node: start no other there. False when it had no such."""
        if worker.bound_to is None:
            return False
        self._avoided.add(worker.bound_to)
        return True

    # -- giving back -----------------------------------------------------------------------------

    def release(self, holder: str, id: str, count: int) -> Worker | None:
        """Take back `count` leases; the worker, if it lives."""
        worker = self._workers.get(id)
        if worker is None:
            return None
        held = worker.leases.get(holder, 0)
        count = min(count, held)
        worker.load -= count
        if held > count:
            worker.leases[holder] = held - count
        else:
            worker.leases.pop(holder, None)
        self._released.set()
        return worker

    def drop_holder(self, worker: Worker, holder: str) -> None:
        """A holder is dead: its leases on a worker are free."""
        worker.load -= worker.leases.pop(holder, 0)
        self._released.set()

    def bury(self, worker: Worker) -> None:
        """A worker is dead."""
        worker.dead = True
        self._workers.pop(worker.id, None)

    async def wait_released(self, seconds: float) -> None:
        """Wait until somebody gives a lease back, at most so long."""
        self._released.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._released.wait()
        except TimeoutError:
            return


def node_name(node_id: str) -> str:
    """The short name of a Ray node, as trees and events show it."""
    return node_id[:12]


def _spread(workers: Sequence[Worker], count: int) -> list[Plan]:
    """Share `count` evenly."""
    if not workers:
        return []
    each, more = divmod(count, len(workers))
    plans = [(worker, each + (1 if i < more else 0)) for i, worker in enumerate(workers)]
    return [(worker, n) for worker, n in plans if n]


def _joined(one: list[Plan], other: list[Plan]) -> list[Plan]:
    counts: dict[str, Plan] = {}
    for worker, n in (*one, *other):
        counts[worker.id] = (worker, counts.get(worker.id, (worker, 0))[1] + n)
    return list(counts.values())


def _needs(placement: Placement) -> dict[str, float]:
    needs = {"CPU": float(placement.num_cpus), "GPU": float(placement.num_gpus)}
    needs.update(placement.resources or {})
    return {name: amount for name, amount in needs.items() if amount}


def _key(placement: Placement) -> str:
    return repr((sorted(_needs(placement).items()), placement.runtime_env))


def _amounts(needs: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in needs.items())


def _infeasible(
    needs: Mapping[str, float], nodes: Sequence[tuple[str, Mapping[str, float]]]
) -> ConfigError:
    have = "; ".join(
        _amounts({name: resources.get(name, 0.0) for name in needs}) for _, resources in nodes
    )
    return ConfigError(
        "PLACEMENT_INFEASIBLE",
        f"contexts ask for {_amounts(needs)}, the cluster's nodes have {have}",
        "contexts need no CPU of their own (num_cpus=0); ask for less, or add nodes",
    )


def _no_own_process(placement: Placement, asked: int, free: int, limit: int) -> ConfigError:
    return ConfigError(
        "PLACEMENT_INFEASIBLE",
        f"placement 'strict': {asked} contexts ask for a process of their own, {free} of "
        f"max_actors={limit} are free",
        "raise Placement(max_actors=...), run fewer at once, or use placement 'actor'",
    )
