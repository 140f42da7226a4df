"""The actor that owns all other actors of a harness: leases, deaths, kills.

Only it creates long-lived actors, because Ray kills what an actor created together with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RayError

from noetic_ray.actors.channel_actor import channel_actor_class
from noetic_ray.actors.context_actor import CONTROL, SLOTS, Boot, ContextActor
from noetic_ray.actors.environment import check_environment
from noetic_ray.actors.fleet import Fleet, Plan, Worker
from noetic_ray.actors.gateways import Gateways
from noetic_ray.actors.journal_actor import start_journal_actor
from noetic_ray.actors.nodes import on_this_node
from noetic_ray.actors.start_errors import never_started, start_failure
from noetic_ray.errors import ConfigError, NoeticError, to_wire
from noetic_ray.mcp.servers import McpServer
from noetic_ray.placement import Placement

NAMESPACE = "noetic-ray"
START_SECONDS = 120.0
PING_SECONDS = 5.0
NOTICE_SECONDS = 5.0
ORPHANS_SECONDS = 30.0
NODES_SECONDS = 5.0
DRIVER = "driver"


class Charter(NamedTuple):
    """What a supervisor is started with."""

    name: str
    config: bytes
    environment: tuple[str, str]
    store: str | None
    span_sink_factory: bytes | None
    mcp: Mapping[str, McpServer]


class Grave:
    """What is known of a dead actor: when it was found, and who has been told.

    `marks` is how far the journal has to be read to have heard of everything it left behind.
    """

    __slots__ = ("found_at", "marks", "told")

    def __init__(self) -> None:
        self.found_at = time.time()
        self.marks: dict[str, int] = {}
        self.told = asyncio.Event()


class Supervisor:
    """One per harness. Every method runs on Ray's event loop of this actor."""

    def __init__(self, charter: Charter) -> None:
        charter = Charter(*charter)
        check_environment(charter.environment)
        self._charter = charter
        self._fleet = Fleet()
        self._channel: Any = None
        self._gateways = Gateways(charter.name, NAMESPACE, charter.mcp)
        self._graves: dict[str, Grave] = {}
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        factory = charter.span_sink_factory
        self._journal = start_journal_actor(
            store=charter.store,
            span_sink_factory=ray.cloudpickle.loads(factory) if factory else None,
            name=f"{charter.name}:journal",
            namespace=NAMESPACE,
            scheduling_strategy=on_this_node(),
        )

    async def journal_actor(self) -> Any:
        """The journal's handle."""
        return self._journal

    async def channel_actor(self) -> Any:
        """The handle of the actor that owns the channels; it is started by the first use."""
        if self._channel is None:
            options = {
                "name": f"{self._charter.name}:channels",
                "namespace": NAMESPACE,
                "scheduling_strategy": on_this_node(),
            }
            self._channel = channel_actor_class().options(**options).remote()
        return self._channel

    async def mcp_gateways(self, client: str) -> list[Any]:
        """Handles of the actors of an MCP server, started by the first use or after a death."""
        return await self._gateways.of(client)

    # -- leases ----------------------------------------------------------------------------------

    async def open(self, placement: Placement) -> None:
        """Start warm actors, in the background."""
        await self._look_at_nodes()
        for worker in self._fleet.warm_up(placement):
            self._launch(worker, placement)

    async def check(self, placement: Placement) -> dict[str, Any] | None:
        """An error record when no node could ever host such an actor."""
        try:
            await self._look_at_nodes()
            self._fleet.check(placement)
        except NoeticError as error:
            return to_wire(error)
        return None

    async def lease(self, payload: bytes) -> tuple[dict[str, Any] | None, list[Any]]:
        """Room for contexts: (error record or None, [(actor id, handle or None, count)]).

        Answers when every actor it names has answered a ping. What was reserved goes back when
        there is not room for all, or when the holder died meanwhile.
        """
        holder, placement, count, known = pickle.loads(payload)
        held: list[Plan] = []
        granted = False
        try:
            await self._grant(holder, placement, count, held)
            granted = holder not in self._graves
        except NoeticError as error:
            return to_wire(error), []
        finally:
            if not granted:
                for worker, n in held:
                    self._give_up(holder, worker.id, n)
        return None, [
            (worker.id, None if worker.id in known else worker.handle, n) for worker, n in held
        ]

    async def _grant(self, holder: str, placement: Placement, count: int, held: list[Plan]) -> None:
        """Reserve until `held` has room for all on actors that answer."""
        if placement.asks() or not self._fleet.knows_nodes(NODES_SECONDS):
            await self._look_at_nodes()
        while count:
            plans = await self._plan(holder, placement, count)
            held += plans
            count = 0
            answers = await asyncio.gather(*(self._usable(worker, n) for worker, n in plans))
            for plan, usable in zip(plans, answers, strict=True):
                if not usable:
                    held.remove(plan)
                    count += plan[1]
                    self._raise_failure(plan[0])

    async def _plan(self, holder: str, placement: Placement, count: int) -> list[Plan]:
        try:
            return self._reserve(holder, placement, count)
        except ConfigError:
            if placement.mode != "strict" and not placement.asks():
                raise
        await self._reclaim_idle()
        for worker in self._fleet.idle_hoarders(placement):
            self._kill(worker)
        return self._reserve(holder, placement, count)

    def _reserve(self, holder: str, placement: Placement, count: int) -> list[Plan]:
        plans = self._fleet.reserve(holder, placement, count)
        try:
            for worker, _ in plans:
                if worker.handle is None:
                    self._launch(worker, placement)
        except BaseException:
            for worker, n in plans:
                self._give_up(holder, worker.id, n)
            raise
        return plans

    async def _reclaim_idle(self) -> None:
        """Ask every holder to give idle actors back, and wait a moment for it."""
        released = asyncio.ensure_future(self._fleet.wait_released(0.5))
        for worker in self._fleet.alive():
            worker.handle.give_back.remote()
        await released

    async def _usable(self, worker: Worker, reserved: int) -> bool:
        """Whether contexts can be sent there now; one that was idle has to prove it."""
        await worker.ready.wait()
        if worker.dead:
            return False
        if worker.load > reserved or worker.seems_alive():
            return True
        try:
            async with asyncio.timeout(PING_SECONDS):
                await worker.handle.ping.remote()
        except (RayError, TimeoutError):
            self._kill(worker)
            return False
        worker.heard()
        return not worker.dead

    def _raise_failure(self, worker: Worker) -> None:
        if worker.failure is not None:
            raise worker.failure

    async def release(self, payload: bytes) -> None:
        """Take leases back."""
        holder, leases = pickle.loads(payload)
        for actor_id, count in leases:
            self._give_up(holder, actor_id, count)

    def _give_up(self, holder: str, actor_id: str, count: int) -> None:
        worker = self._fleet.release(holder, actor_id, count)
        if worker is not None and worker.tainted and not worker.leases:
            self._kill(worker)

    async def fleet_report(self) -> list[dict[str, Any]]:
        """Every context actor: `id`, `pid`, `node`, `ready`, `tainted`, `load`, and `leases`.

        Leases are counts by holder; a load above 0 with nothing running means idle actors that
        a holder keeps for a moment.
        """
        return [
            {
                "id": worker.id,
                "pid": worker.pid,
                "node": worker.node,
                "ready": worker.ready.is_set(),
                "tainted": worker.tainted,
                "load": worker.load,
                "leases": dict(worker.leases),
            }
            for worker in self._fleet.all()
        ]

    # -- actors ----------------------------------------------------------------------------------

    def _launch(self, worker: Worker, placement: Placement) -> None:
        """Start a context actor for a reserved place."""
        charter = self._charter
        boot = Boot(
            charter.config,
            worker.id,
            ray.get_runtime_context().current_actor,
            self._journal,
            charter.environment,
        )
        options: dict[str, Any] = {
            "name": f"{charter.name}:{worker.id}",
            "namespace": NAMESPACE,
            "num_cpus": placement.num_cpus,
            "num_gpus": placement.num_gpus,
            "resources": dict(placement.resources or {}),
            "runtime_env": placement.runtime_env,
            "scheduling_strategy": self._fleet.strategy(worker, placement),
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": SLOTS,
            "enable_task_events": False,
        }
        actor_class: Any = ray.remote(concurrency_groups={CONTROL: SLOTS})(ContextActor)
        try:
            worker.handle = actor_class.options(**options).remote(tuple(boot))
        except (TypeError, ValueError) as error:
            self._fleet.bury(worker)
            raise _refused_options(placement, error) from error
        self._own(self._attend(worker))

    async def _attend(self, worker: Worker) -> None:
        """Wait until an actor works, then until it dies."""
        try:
            async with asyncio.timeout(START_SECONDS):
                worker.pid, worker.node = await worker.handle.ready.remote()
        except (RayError, TimeoutError) as error:
            gone = isinstance(error, ActorUnschedulableError)
            if not (gone and self._fleet.avoid_node_of(worker)):
                worker.failure = _start_failure(worker, error)
            await self._died(worker)
            return
        worker.heard()
        worker.ready.set()
        with contextlib.suppress(RayError):
            await worker.handle.watch.remote()
        if not self._closing:
            await self._died(worker)

    async def _died(self, worker: Worker) -> None:
        """Make sure of it, and tell everybody."""
        self._kill(worker)
        grave = self._graves[worker.id] = Grave()
        news, self._news = self._news, asyncio.Event()
        news.set()
        worker.ready.set()
        telling = [
            self._own(self._tell_death(worker.id, other, grave)) for other in self._fleet.alive()
        ]
        if self._channel is not None:
            telling.append(self._own(self._tell_channels(worker.id)))
        if telling:
            await asyncio.wait(telling, timeout=ORPHANS_SECONDS)
        grave.told.set()

    async def _tell_death(self, dead: str, other: Worker, grave: Grave) -> None:
        """Abort what the dead actor had started in another one, and take its lease back."""
        try:
            grave.marks.update(await other.handle.actor_died.remote(dead))
        except RayError:
            return  # dead as well, and all that lived there
        finally:
            self._fleet.drop_holder(other, dead)
            self._give_up(dead, other.id, 0)

    async def _tell_channels(self, dead: str) -> None:
        with contextlib.suppress(RayError):
            await self._channel.owner_lost.remote(dead)

    async def deaths(self, since: int) -> list[str]:
        """Ids of actors that died, after the first `since` of them; waits for the next one."""
        while len(self._graves) <= since:
            await self._news.wait()
        return list(self._graves)[since:]

    async def death_of(self, actor_id: str) -> tuple[float | None, dict[str, int]]:
        """When an actor was found dead, once its orphans have settled, and the marks to read to.

        (None, {}) when it is not known to be dead after a while.
        """
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                while actor_id not in self._graves:
                    await self._news.wait()
        except TimeoutError:
            return None, {}
        grave = self._graves[actor_id]
        await grave.told.wait()
        return grave.found_at, grave.marks

    async def handle_of(self, actor_id: str) -> Any:
        """A live actor's handle."""
        worker = self._fleet.find(actor_id)
        return worker.handle if worker is not None else None

    # -- kills -----------------------------------------------------------------------------------

    async def kill(self, actor_id: str, alone: bool) -> bool:
        """Kill an actor whose only context does not end; False when others live there too.

        `alone` is what the actor itself knows: contexts placed `inline` need no lease. One that
        is spared is not used again once it is empty.
        """
        worker = self._fleet.find(actor_id)
        if worker is None:
            return True
        if worker.load > 1 or not alone:
            worker.tainted = True
            return False
        self._kill(worker)
        return True

    async def kill_stuck(self, actor_id: str) -> None:
        """Kill an actor that answers nothing, whoever lives there."""
        worker = self._fleet.find(actor_id)
        if worker is not None:
            self._kill(worker)

    def _kill(self, worker: Worker) -> None:
        self._fleet.bury(worker)
        with contextlib.suppress(RayError):
            ray.kill(worker.handle)

    # -- end -------------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Kill every actor of the harness but this one; the journal writes what is left first."""
        self._closing = True
        for worker in self._fleet.all():
            if worker.handle is not None:
                ray.kill(worker.handle)
        with contextlib.suppress(RayActorError):
            await self._journal.close.remote(2.0)
        ray.kill(self._journal)
        if self._channel is not None:
            ray.kill(self._channel)
        await self._gateways.close()

    async def ping(self) -> None:
        """Answer."""

    async def _look_at_nodes(self) -> None:
        nodes = await asyncio.get_running_loop().run_in_executor(None, ray.nodes)
        self._fleet.nodes_are(nodes)

    def _own(self, coro: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _refused_options(placement: Placement, error: Exception) -> ConfigError:
    return ConfigError(
        "INVALID_PLACEMENT",
        f"Ray refuses to start an actor with {placement}: {error}",
        "check resources and runtime_env",
    )


def _start_failure(worker: Worker, error: BaseException) -> NoeticError:
    if isinstance(error, TimeoutError):
        return never_started("a context actor", START_SECONDS, worker.needs)
    return start_failure("a context actor", error)
