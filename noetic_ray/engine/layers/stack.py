"""The layers of one context: attached, made ready, and at the end let go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from noetic_ray.context import current_frame
from noetic_ray.engine.layers.entry import LayerEntry, decode, state_key
from noetic_ray.engine.layers.hooks import (
    call_hook,
    diagnose,
    hook_failed,
    keep_state,
    try_hook,
)
from noetic_ray.engine.layers.serial import Serial
from noetic_ray.engine.outcome import Completed
from noetic_ray.engine.spec import LayerSeed
from noetic_ray.engine.tasks import engine_task
from noetic_ray.errors import ErrorRecord, NoeticError, StepFailed
from noetic_ray.layers.base import ContextLayer, has_hook
from noetic_ray.layers.hooks import (
    CompleteParams,
    DisposeParams,
    EndOfContext,
    InitParams,
    Update,
)
from noetic_ray.layers.writer import StateWriter

if TYPE_CHECKING:
    from noetic_ray.context import Context
    from noetic_ray.engine.cell import Cell

Active = tuple[LayerEntry, ...]


class LayerStack:
    """All layers a context ever had, and the ones that are active at its root.

    A layer's state is saved by the context it was attached to; children have copies.
    """

    __slots__ = ("_known", "cell", "merges", "values", "writer")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.values = cell.values
        self.merges = Serial()
        self.writer: StateWriter | None = None
        self._known: dict[int, LayerEntry] = {}

    @property
    def entries(self) -> Iterable[LayerEntry]:
        """In the order they were attached."""
        return self._known.values()

    async def attach(self, seeds: Sequence[LayerSeed]) -> Active:
        """Make layers ready in the order given; those that were attached before keep their state.

        Raises StepFailed when an init fails that is not to be survived.
        """
        entries = []
        fresh: list[tuple[LayerEntry, LayerSeed]] = []
        for seed in seeds:
            entry = self._known.get(id(seed.layer))
            if entry is None:
                entry = LayerEntry(seed.layer, self.cell.ctx, self.values)
                self._known[id(seed.layer)] = entry
                fresh.append((entry, seed))
            entries.append(entry)
        saved = await self._saved(fresh)
        for entry, seed in fresh:
            await self._make_ready(entry, seed, saved)
        return tuple(sorted(entries, key=lambda entry: entry.layer.slot))

    async def _saved(self, fresh: Sequence[tuple[LayerEntry, LayerSeed]]) -> dict[str, bytes]:
        """The saved states of layers this context is the first to have, in one request."""
        cell = self.cell
        for entry, seed in fresh:
            if seed.owned and _is_kept(cell, entry.layer):
                entry.key = state_key(entry.layer, cell.ctx)
        keys = [entry.key for entry, _ in fresh if entry.key is not None]
        if not keys:
            return {}
        self.open_writer()
        try:
            return await self.values.load(keys)
        except NoeticError as error:
            diagnose(cell, "layers", "restore", error)
            return {}

    def open_writer(self) -> None:
        """Have states saved from here on."""
        if self.writer is None:
            self.writer = StateWriter(self.values, self._not_saved, self._own)

    def _own(self, coro: Any) -> Any:
        task = engine_task(self.cell.rt.loop, coro)
        self.cell.rt.keep(task)
        return task

    def _not_saved(self, key: str, error: Exception) -> None:
        by_key = {entry.key: entry.layer.id for entry in self.entries}
        diagnose(self.cell, by_key.get(key) or key, "persist", error)

    async def _make_ready(
        self, entry: LayerEntry, seed: LayerSeed, saved: dict[str, bytes]
    ) -> None:
        if seed.seeded:
            entry.state = seed.state
        elif not self._restored(entry, saved) and has_hook(entry.layer, "init"):
            await self._init(entry)
            return
        entry.ready = True

    def _restored(self, entry: LayerEntry, saved: dict[str, bytes]) -> bool:
        data = saved.get(entry.key) if entry.key is not None else None
        if data is None:
            return False
        try:
            entry.state = decode(entry.layer, data)
        except ValueError as error:
            diagnose(self.cell, entry.layer.id, "restore", error)
            return False
        return True

    async def _init(self, entry: LayerEntry) -> None:
        ctx = self.cell.ctx
        try:
            entry.state = await call_hook(
                self.cell,
                entry,
                "init",
                lambda: InitParams(ctx, entry.storage, ctx.item_log.items),
            )
        except BaseException as error:
            if not hook_failed(self.cell, error):
                raise
            diagnose(self.cell, entry.layer.id, "init", error)
            if entry.layer.on_init_error == "throw":
                raise _init_failed(entry.layer, error) from None
            return
        entry.ready = True

    # -- the end ---------------------------------------------------------------------------------

    async def finish(self, outcome: EndOfContext) -> None:
        """on_complete in order, then dispose in reverse; each once."""
        cell = self.cell
        ctx = cell.ctx
        entries = [entry for entry in self.entries if entry.live]
        for entry in () if cell.spec.preview else entries:
            entry.completed = True
            if has_hook(entry.layer, "on_complete"):
                with _open_end(ctx):
                    await self._complete(entry, outcome)
        for entry in reversed(entries):
            if has_hook(entry.layer, "dispose"):
                with _open_end(ctx):
                    await self._dispose(entry)
            entry.disposed = True
        if self.writer is not None:
            await self.writer.flush()

    async def _dispose(self, entry: LayerEntry) -> None:
        ctx = self.cell.ctx
        await try_hook(
            self.cell, entry, "dispose", lambda: DisposeParams(ctx, entry.storage, entry.state)
        )

    async def _complete(self, entry: LayerEntry, outcome: EndOfContext) -> None:
        ctx = self.cell.ctx
        answer = await try_hook(
            self.cell,
            entry,
            "on_complete",
            lambda: CompleteParams(ctx, entry.storage, entry.state, ctx.item_log.items, outcome),
            Update,
        )
        if answer:
            keep_state(self.cell, entry, answer.state)


@contextmanager
def _open_end(ctx: Context) -> Iterator[None]:
    """A last hook may still run steps; completing the context has no more meaning for others."""
    ctx.completed = False
    with suppress(Completed):
        yield


def _is_kept(cell: Cell, layer: ContextLayer[Any]) -> bool:
    """Whether a layer's state outlives the context: its scope has a name somebody can use again."""
    if layer.scope == "execution":
        return False
    if layer.scope == "global":
        return True
    if layer.scope == "resource" and cell.ctx.resource_id is not None:
        return True
    return cell.spec.named_thread


def _init_failed(layer: ContextLayer[Any], error: BaseException) -> NoeticError:
    if isinstance(error, NoeticError):
        return error
    return StepFailed(f"{layer.id}.init", ErrorRecord.of(error), False)


def fresh_seeds(layers: Iterable[ContextLayer[Any]]) -> tuple[LayerSeed, ...]:
    """Layers that begin here."""
    return tuple(LayerSeed(layer) for layer in layers)


def active(cell: Cell) -> Active:
    """The layers that are active where the caller stands, in slot order."""
    frame = current_frame.get()
    if frame is None or frame.context is not cell.ctx:
        frame = cell.ctx._root_frame
    return () if frame is None else frame.layers


def with_added(outer: Active, added: Active) -> Active:
    """Outer layers without those whose ids come again, and the added ones, in slot order."""
    ids = {entry.layer.id for entry in added}
    kept = [entry for entry in outer if entry.layer.id not in ids]
    return tuple(sorted((*kept, *added), key=lambda entry: entry.layer.slot))


async def enter(cell: Cell, layers: Iterable[ContextLayer[Any]]) -> None:
    """Make layers active for the rest of the step in flight, and what it runs."""
    if cell.layers is None:
        cell.layers = LayerStack(cell)
    frame = current_frame.get()
    assert frame is not None
    frame.layers = with_added(frame.layers, await cell.layers.attach(fresh_seeds(layers)))


def those_with(entries: Iterable[LayerEntry], hook: str) -> list[LayerEntry]:
    """The live ones that override a hook."""
    return [entry for entry in entries if entry.live and has_hook(entry.layer, hook)]
