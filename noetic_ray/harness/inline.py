"""The `inline` backend: contexts, journal and channels on one private loop, without Ray."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import partial

from noetic_ray.engine.child import Link, Listener
from noetic_ray.engine.local_channels import LocalChannels, OnDropped, warn_dropped
from noetic_ray.engine.runtime import Runtime
from noetic_ray.engine.spec import ContextSpec, EngineConfig
from noetic_ray.engine.tasks import LoopThread
from noetic_ray.harness.copying import CopyCodec
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.local import LocalJournal
from noetic_ray.journal.paging import read_items
from noetic_ray.journal.sender import JournalSender
from noetic_ray.journal.spans import SpanSink
from noetic_ray.journal.sqlite import open_store
from noetic_ray.mcp.local import LocalMcp
from noetic_ray.mcp.servers import McpServer
from noetic_ray.placement import Placement


class InlineBackend:
    """Everything in this process."""

    def __init__(
        self,
        config: EngineConfig,
        thread: LoopThread,
        store: str | None,
        span_sink: SpanSink | None = None,
        mcp: Mapping[str, McpServer] | None = None,
    ) -> None:
        self.thread = thread
        self._core = JournalCore(open_store(store) if store else None, span_sink)
        self.reader = LocalJournal(self._core)
        self.journal = JournalSender("driver", self.reader.transport)
        self.journal.bind(thread.loop)
        self.on_dropped: OnDropped = warn_dropped
        self.channels = LocalChannels(lambda name, count: self.on_dropped(name, count))
        self._mcp = LocalMcp(mcp or {}, thread.loop)
        self._runtime = Runtime(
            config,
            thread,
            self.journal,
            self.channels,
            CopyCodec(),
            partial(read_items, self.reader),
            self.reader,
            self.reader,
            self._mcp,
            node=platform.node(),
        )

    def launch(self, spec: ContextSpec, placement: Placement, listener: Listener) -> Link:
        """Every placement means this process here."""
        return self._runtime.start(spec, listener)

    def abort_now(self, run_id: str, reason: str | None) -> None:
        """Put the flag up at once: the loop may be held by the very body to abort."""
        self._runtime.abort_soon((run_id,), reason)

    def require_alive(self) -> None:
        """This process is alive."""

    async def check(self, placement: Placement) -> None:
        """There is always room in this process."""

    async def aclose(self, seconds: float) -> None:
        """Close channels, MCP servers, runtime and journal, in this order."""
        await self.channels.aclose()
        await self._mcp.aclose()
        self._runtime.close()
        await self.journal.aclose(seconds)
        await self.reader.aclose(seconds)
