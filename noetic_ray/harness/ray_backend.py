"""The Ray backend: a supervisor and its actors, seen from the driver's private loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError, RayError

from noetic_ray.actors.channel_client import RayChannels
from noetic_ray.actors.environment import environment
from noetic_ray.actors.journal_client import JournalClient
from noetic_ray.actors.launcher import Launcher
from noetic_ray.actors.nodes import on_this_node
from noetic_ray.actors.pool import supervisor_lost
from noetic_ray.actors.start_errors import never_started, start_failure
from noetic_ray.actors.supervisor import DRIVER, NAMESPACE, START_SECONDS, Charter, Supervisor
from noetic_ray.engine.child import Link, Listener
from noetic_ray.engine.local_channels import OnDropped, warn_dropped
from noetic_ray.engine.spec import ContextSpec
from noetic_ray.engine.tasks import LoopThread, engine_task
from noetic_ray.errors import ConfigError, from_wire
from noetic_ray.harness import signals
from noetic_ray.harness.exporting import sink_factory
from noetic_ray.harness.ray_session import RaySession
from noetic_ray.harness.settings import Settings
from noetic_ray.journal.sender import JournalSender
from noetic_ray.placement import Placement

log = logging.getLogger("noetic_ray")
SLOTS = 10_000


def open_ray_backend(settings: Settings, thread: LoopThread) -> RayBackend:
    """Connect to Ray or start it, then start the harness's supervisor."""
    config = _pickled_config(settings)
    make_sink = _pickled_sink_factory(settings)
    session = RaySession.open(settings.address)
    try:
        signals.install()
        charter = Charter(
            settings.engine.name,
            config,
            environment(),
            _store(settings),
            make_sink,
            settings.mcp,
        )
        supervisor = _start_supervisor(charter)
        return thread.call(_connect(settings, thread, session, supervisor))
    except BaseException:
        session.close()
        raise


def _pickled_config(settings: Settings) -> bytes:
    try:
        return bytes(cloudpickle.dumps(settings.engine))
    except Exception as error:
        raise ConfigError(
            "UNPICKLABLE_CAPTURE",
            f"harness {settings.engine.name!r} cannot be sent to its actors: {error}",
            "model provider, tools, hooks and params must not hold clients, locks or files",
        ) from None


def _pickled_sink_factory(settings: Settings) -> bytes | None:
    make_sink = sink_factory(settings.exporter, settings.engine.name)
    if make_sink is None:
        return None
    try:
        return bytes(cloudpickle.dumps(make_sink))
    except Exception as error:
        raise ConfigError(
            "UNPICKLABLE_CAPTURE",
            f"what makes the exporter cannot be sent to the journal's process: {error}",
            "make clients and locks inside the function given as exporter=, not around it",
        ) from None


def _store(settings: Settings) -> str | None:
    """The store's place, seen from the driver's folder: the actors have other ones."""
    if settings.store is None:
        return None
    from noetic_ray.journal.sqlite import store_path

    return store_path(settings.store)


def _start_supervisor(charter: Charter) -> Any:
    options = {
        "name": f"{charter.name}:supervisor",
        "namespace": NAMESPACE,
        "num_cpus": 0,
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": SLOTS,
        "enable_task_events": False,
        "scheduling_strategy": on_this_node(),
    }
    try:
        return ray.remote(Supervisor).options(**options).remote(tuple(charter))
    except ValueError as taken:
        raise ConfigError(
            "HARNESS_NAME_TAKEN",
            f"a harness named {charter.name!r} is open in another driver of this cluster",
            "choose another name, or close the other one",
        ) from taken


async def _connect(
    settings: Settings, thread: LoopThread, session: RaySession, supervisor: Any
) -> RayBackend:
    what = f"harness {settings.engine.name!r}"
    try:
        async with asyncio.timeout(START_SECONDS):
            journal = JournalClient(await supervisor.journal_actor.remote())
            await journal.hello()
            await supervisor.open.remote(settings.engine.placement)
    except (RayError, TimeoutError) as error:
        ray.kill(supervisor)
        if isinstance(error, TimeoutError):
            raise never_started(what, START_SECONDS, {}) from None
        raise start_failure(what, error) from None
    except BaseException:
        ray.kill(supervisor)
        raise
    return RayBackend(settings, thread, session, supervisor, journal)


class RayBackend:
    """Everything but the driver's part lives in actors that the supervisor owns."""

    def __init__(
        self,
        settings: Settings,
        thread: LoopThread,
        session: RaySession,
        supervisor: Any,
        journal: JournalClient,
    ) -> None:
        self.thread = thread
        self.reader = journal
        self.supervisor = supervisor
        self.journal = JournalSender(DRIVER, journal.transport)
        self.journal.bind(thread.loop)
        self.on_dropped: OnDropped = warn_dropped
        self.channels = RayChannels(
            partial(_channel_actor, supervisor),
            process_id=DRIVER,
            loop=thread.loop,
            on_dropped=lambda name, count: self.on_dropped(name, count),
        )
        self._session = session
        self._supervisor_gone = False
        self._launcher = Launcher(
            thread.loop,
            supervisor,
            DRIVER,
            self.journal,
            settings.engine.kill_after,
            settings.engine.layers,
            fresh_programs=True,
            span_sink=self.journal.span if settings.engine.tracing else None,
        )
        self._deaths = engine_task(thread.loop, self._follow_deaths())

    def launch(self, spec: ContextSpec, placement: Placement, listener: Listener) -> Link:
        """Start a root context in an actor."""
        return self._launcher.launch(spec, placement, listener)

    async def check(self, placement: Placement) -> None:
        """Raise ConfigError PLACEMENT_INFEASIBLE for what can never be placed."""
        if not placement.asks():
            return
        try:
            problem = await self.supervisor.check.remote(placement)
        except RayActorError:
            raise supervisor_lost() from None
        if problem is not None:
            raise from_wire(problem)

    def abort_now(self, run_id: str, reason: str | None) -> None:
        """Not needed: no body runs on the driver's loop."""

    def require_alive(self) -> None:
        """Raise ConfigError SESSION_ENDED after somebody shut Ray down."""
        if not self._session.alive():
            raise ConfigError(
                "SESSION_ENDED",
                "Ray was shut down (or started anew) after this harness was opened",
                "close it and open a new Harness",
            )
        if self._supervisor_gone:
            raise supervisor_lost()

    async def _follow_deaths(self) -> None:
        """Forget dead actors as soon as the supervisor knows of them."""
        seen = 0
        with contextlib.suppress(RayError):
            while True:
                died = await self.supervisor.deaths.remote(seen)
                seen += len(died)
                for actor_id in died:
                    self._launcher.pool.actor_died(actor_id)
        self._supervisor_gone = True

    async def aclose(self, seconds: float) -> None:
        """Kill every actor of the harness; shut Ray down if we started it.

        After `seconds` what is left to write is left.
        """
        self._deaths.cancel()
        if not self._session.alive():
            return
        try:
            with contextlib.suppress(RayError, TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.channels.aclose()
                    await self._launcher.aclose()
                    await self.journal.aclose()
                    await self.supervisor.shutdown.remote()
        finally:
            with contextlib.suppress(RayError):
                ray.kill(self.supervisor)
            self._session.close()


async def _channel_actor(supervisor: Any) -> Any:
    return await supervisor.channel_actor.remote()
