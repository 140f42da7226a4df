"""The actor that hosts contexts.

Two kinds of loops: Ray's own, which take calls in and answer them, and the run loop, a thread of
ours on which the steps run. Calls of the `control` group work while the run loop is blocked.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import ray
from ray import cloudpickle

from noetic_ray.actors import codec
from noetic_ray.actors.channel_client import RayChannels
from noetic_ray.actors.environment import check_environment
from noetic_ray.actors.fleet import node_name
from noetic_ray.actors.journal_client import JournalClient
from noetic_ray.actors.launcher import Launcher
from noetic_ray.actors.mcp_client import RayMcp
from noetic_ray.actors.wire import Packed, SpecReader, pack_reply
from noetic_ray.engine.figures import snapshot
from noetic_ray.engine.runtime import Runtime
from noetic_ray.engine.spec import ContextSpec, EngineConfig, Reply
from noetic_ray.engine.tasks import LoopThread
from noetic_ray.errors import NoeticError, to_wire
from noetic_ray.journal.paging import read_items
from noetic_ray.journal.sender import JournalSender

CONTROL = "control"
Method = TypeVar("Method", bound=Callable[..., Any])
SLOTS = 10_000


def control(method: Method) -> Method:
    """A method that is answered while the run loop, and every other call, is busy."""
    marked: Method = ray.method(concurrency_group=CONTROL)(method)
    return marked


class Boot(NamedTuple):
    """What a context actor is started with; `config` is a pickled EngineConfig."""

    config: bytes
    actor_id: str
    supervisor: Any
    journal: Any
    environment: tuple[str, str]


class _Group:
    """The contexts of one `run` call, and the call that waits for their replies."""

    __slots__ = ("_actor", "_scheduled", "_waiter", "key", "left", "ready", "steps")

    def __init__(self, actor: ContextActor, key: tuple[str, int]) -> None:
        self._actor = actor
        self._scheduled = False
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[bytes]] | None = None
        self.key = key
        self.left = 0
        self.ready: list[Packed] = []
        self.steps: dict[str, str] = {}

    def replied(self, reply: Reply) -> None:
        """A context has a result or has settled; what settles in one turn goes out together."""
        self.ready.append(pack_reply(reply, lambda id: self.steps.get(id, "")))
        if reply.settled:
            self.left -= 1
            self.steps.pop(reply.id, None)
        self._schedule()

    def wait(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[bytes]) -> None:
        """Answer `future` as soon as there is something to say."""
        self._waiter = (loop, future)
        if self.ready:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and self._waiter is not None:
            self._scheduled = True
            self._actor.loop.call_soon(self._answer)

    def _answer(self) -> None:
        self._scheduled = False
        if self._waiter is None or not self.ready:
            return
        (loop, future), self._waiter = self._waiter, None
        ready, self.ready = self.ready, []
        if not self.left:
            self._actor.groups.pop(self.key, None)
        loop.call_soon_threadsafe(_resolve, future, pickle.dumps(ready, 5))


class ContextActor:
    """Hosts contexts of one harness."""

    def __init__(self, boot: Boot) -> None:
        boot = Boot(*boot)
        check_environment(boot.environment)
        config: EngineConfig = cloudpickle.loads(boot.config)
        self._id = boot.actor_id
        self._thread = LoopThread(f"noetic-run-{boot.actor_id}")
        self.loop = self._thread.loop
        self.groups: dict[tuple[str, int], _Group] = {}
        self._reader = SpecReader(config.params, config.layers)
        journal = JournalClient(boot.journal)
        sender = JournalSender(f"{boot.actor_id}/{os.getpid()}", journal.transport)
        sender.bind(self.loop)
        self._launcher = Launcher(
            self.loop,
            boot.supervisor,
            boot.actor_id,
            sender,
            config.kill_after,
            config.layers,
            span_sink=sender.span if config.tracing else None,
        )
        self._runtime = Runtime(
            config,
            self._thread,
            sender,
            RayChannels(
                partial(_channel_actor, boot.supervisor),
                process_id=boot.actor_id,
                loop=self.loop,
            ),
            codec,
            partial(read_items, journal),
            journal,
            journal,
            RayMcp(config.mcp_clients, partial(_mcp_gateways, boot.supervisor)),
            self._launcher,
            boot.actor_id,
            this_node(),
        )
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)

    async def ready(self) -> tuple[int, str]:
        """(pid, node) once the actor works."""
        return os.getpid(), this_node()

    # -- contexts --------------------------------------------------------------------------------

    async def run(self, payload: bytes) -> bytes:
        """Start contexts; returns the first replies that are there."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        self.loop.call_soon_threadsafe(self._start, payload, loop, future)
        return await future

    async def collect(self, holder: str, group: int) -> bytes:
        """More replies of a group."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        self.loop.call_soon_threadsafe(self._collect, (holder, group), loop, future)
        return await future

    def _start(
        self, payload: bytes, loop: asyncio.AbstractEventLoop, future: asyncio.Future[bytes]
    ) -> None:
        try:
            holder, packed = pickle.loads(payload)
            number, specs = self._reader.read(packed)
        except Exception as error:
            loop.call_soon_threadsafe(_fail, future, error)
            return
        group = self.groups[(holder, number)] = _Group(self, (holder, number))
        group.left = len(specs)
        group.wait(loop, future)
        for spec in specs:
            if isinstance(spec, ContextSpec):
                group.steps[spec.id] = spec.step.id
                self._runtime.start(spec, group)
            else:
                group.replied(_refused(*spec))

    def _collect(
        self,
        key: tuple[str, int],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[bytes],
    ) -> None:
        group = self.groups.get(key)
        if group is None:
            loop.call_soon_threadsafe(_resolve, future, pickle.dumps([]))
        else:
            group.wait(loop, future)

    # -- control ---------------------------------------------------------------------------------

    @control
    async def abort(self, payload: bytes) -> None:
        """Abort contexts; their replies tell how they ended."""
        for reason, ids in pickle.loads(payload).items():
            self._runtime.abort_soon(ids, reason)

    @control
    async def snapshot(self, context_id: str) -> bytes | None:
        """A context's figures; None when it is not here (any more)."""
        cell = self._runtime.cells.get(context_id)
        return pickle.dumps(snapshot(cell)) if cell is not None else None

    @control
    async def watch(self) -> None:
        """Never returns: the supervisor learns of this process's death by the call's failure."""
        await asyncio.get_running_loop().create_future()

    @control
    async def ping(self) -> None:
        """Answers when the run loop has come round."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self.loop.call_soon_threadsafe(loop.call_soon_threadsafe, _resolve, done, None)
        await done

    @control
    async def actor_died(self, actor_id: str) -> dict[str, int]:
        """Another actor is dead: forget it, abort the contexts it had started, wait for them.

        Returns how far the journal has to be read to have heard of their ends.
        """
        done = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        self.loop.call_soon_threadsafe(self._parent_died, actor_id, loop, done)
        await done
        return self._runtime.journal.mark()

    def _parent_died(
        self, actor_id: str, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]
    ) -> None:
        self._launcher.pool.actor_died(actor_id)
        orphans = self._runtime.abort_children_of(actor_id)
        waiting = asyncio.Task(_settled(self._runtime, orphans), loop=self.loop)
        self._runtime.keep(waiting)
        waiting.add_done_callback(lambda _: loop.call_soon_threadsafe(_resolve, done, None))

    @control
    async def give_back(self) -> None:
        """Release idle actors now: somebody needs them."""
        self.loop.call_soon_threadsafe(self._launcher.pool.release_idle)


async def _settled(runtime: Runtime, cells: list[Any]) -> None:
    """Return when cells have settled."""
    for cell in cells:
        await runtime.wait_settled(cell)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _refused(id: str, error: NoeticError) -> Reply:
    return Reply(id, "failed", error=to_wire(error))


async def _channel_actor(supervisor: Any) -> Any:
    return await supervisor.channel_actor.remote()


async def _mcp_gateways(supervisor: Any, client: str) -> Any:
    return await supervisor.mcp_gateways.remote(client)


def this_node() -> str:
    """The Ray node this process runs on."""
    return node_name(str(ray.get_runtime_context().get_node_id()))
