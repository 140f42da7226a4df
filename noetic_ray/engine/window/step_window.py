"""The window of one model step: put together once, kept while its rounds go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from noetic_ray.context import current_frame
from noetic_ray.engine.layers.stack import Active, active
from noetic_ray.engine.window.lineage import keep_lineage, lineage_of
from noetic_ray.engine.window.memory import Cut, WindowMemory
from noetic_ray.engine.window.recall import Recalls, project, render_deltas
from noetic_ray.engine.window.summary import summarize
from noetic_ray.items import Item
from noetic_ray.layers.allocator import UNBOUNDED
from noetic_ray.layers.anchoring import Draft, Plan, judge
from noetic_ray.layers.picture import picture_of
from noetic_ray.layers.window import Assembled, Parts, Window, assemble
from noetic_ray.usage import LastLayerUsage, RoundUsage, estimate_tokens

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.layers.entry import LayerEntry
    from noetic_ray.engine.tool_calls import Toolbox
    from noetic_ray.layers.epochs import Lineage


class Shown(NamedTuple):
    """Messages that stand for the first `log_items` items of the log, in one step."""

    items: tuple[Item, ...]
    log_items: int


class StepWindow:
    """What stands before the items of this step, and what became of the layers in it.

    The items from `split` on are the step's own: they follow the head, unchanged and whole. With
    `shown` it is counted in what is shown instead of the log.
    """

    def __init__(
        self,
        cell: Cell,
        step: Any,
        toolbox: Toolbox,
        instructions: str | None,
        split: int,
        shown: Shown | None = None,
    ) -> None:
        self._cell = cell
        self._step = step
        self._toolbox = toolbox
        self._instructions = instructions
        self._entries: Active = active(cell)
        self._window = _window_of(cell, step, self._entries)
        self._split = split
        self._shown = shown
        self._system = estimate_tokens(instructions or "")
        if cell.windows is None:
            cell.windows = WindowMemory()
        self._memory = cell.windows
        self._recalls: Recalls | None = None
        self._before: Lineage | None = None
        self._plan: Plan | None = None
        self._assembled: Assembled | None = None
        self._judged: tuple[RoundUsage | None] | None = None

    # -- putting it together ---------------------------------------------------------------------

    async def open(self, query: str, again: Iterable[LayerEntry] = ()) -> None:
        """Recall, pin, and fit."""
        self._recalls = Recalls(self._cell, self._entries, query, self._window, self._system)
        await self._recalls.all(self._memory.estimates, again)
        self._before = await lineage_of(self._cell)
        await self._assemble()

    async def refresh(self, again: Iterable[LayerEntry]) -> None:
        """Ask some layers again before the next round; it still counts as one assembly."""
        assert self._recalls is not None
        await self._recalls.again(self._memory.estimates, again)
        await self._assemble()

    async def _assemble(self) -> None:
        assert self._recalls is not None
        assert self._before is not None
        cell = self._cell
        draft = Draft.open(
            self._before, self._recalls.blocks, self._instructions, cell.rt.config.cache
        )
        deltas = await render_deltas(cell, self._entries, draft) if draft.stale else {}
        self._plan = draft.finish(deltas, self._room_for_updates())
        if not self._is_plain:
            self._assembled = await self._fit(self._plan, self._window)

    def _room_for_updates(self) -> int | None:
        if self._window is None:
            return None
        used = self._system + self._window.response_reserve + self._tail_tokens()
        return max(0, int(min(self._window.token_budget, UNBOUNDED) - used))

    def _tail_tokens(self) -> int:
        estimates = self._memory.estimates
        return sum(estimates.of(item) for item in self._tail)

    async def _fit(self, plan: Plan, window: Window | None) -> Assembled:
        cell, memory = self._cell, self._memory
        cut = memory.cut_of(window) if self._shown is None else Cut()
        raw = self._history
        history = await project(cell, self._entries, raw, self._tail)
        parts = Parts(plan.anchor, history, plan.live, plan.update, self._tail, self._system)
        start = cut.start if history is raw else 0
        assembled = assemble(parts, window, memory.estimates, start, cut.summary)
        as_logged = history is raw and self._shown is None
        if window is not None and window.overflow == "summarize" and as_logged:
            assembled = await self._summarized(parts, window, assembled, cut)
        if history is raw:
            cut.start = assembled.history_start
        return assembled

    async def _summarized(
        self, parts: Parts, window: Window, assembled: Assembled, cut: Cut
    ) -> Assembled:
        """Put a summary in the place of what fell out; without one it is simply left out.

        A summary that failed is not asked for again before more has fallen out.
        """
        if assembled.history_start <= cut.summarized or self._cell.spec.preview:
            return assembled
        fallen = parts.history[cut.summarized : assembled.history_start]
        cut.summarized = assembled.history_start
        summary = await summarize(self._cell, self._step, window, cut.summary, fallen)
        if summary is None:
            return assembled
        cut.summary = summary
        estimates = self._memory.estimates
        return assemble(parts, window, estimates, assembled.history_start, summary)

    # -- the request -----------------------------------------------------------------------------

    @property
    def _is_plain(self) -> bool:
        """Without layers and without a limit the log is sent as it is."""
        return self._window is None and not self._entries

    @property
    def _history(self) -> Sequence[Item]:
        """What was there before the step."""
        if self._shown is not None:
            return self._shown.items[: self._split]
        return self._cell.ctx.item_log.before(self._split)

    @property
    def _tail(self) -> Sequence[Item]:
        log = self._cell.ctx.item_log
        if self._shown is not None:
            return (*self._shown.items[self._split :], *log.since(self._shown.log_items))
        return log.since(self._split)

    @property
    def items(self) -> Sequence[Item]:
        """What the next round is asked with."""
        if self._assembled is None:
            if self._shown is not None:
                return (*self._history, *self._tail)
            return self._cell.ctx.item_log.items
        assembled = self._assembled
        head = assembled.items[: len(assembled.items) - assembled.tail_items]
        return (*head, *self._tail)

    @property
    def cache_boundary(self) -> int | None:
        """How many leading items stay the same from request to request; None without anchoring."""
        if self._assembled is None or not self._entries or not self._cell.rt.config.cache.enabled:
            return None
        return self._assembled.cache_boundary

    @property
    def cache_key(self) -> str | None:
        """The name of the conversation whose prefix is shared."""
        return None if self.cache_boundary is None or self._before is None else self._before.key

    # -- what became of it -----------------------------------------------------------------------

    def judge(self, usage: RoundUsage | None) -> None:
        """Hear what the provider's cache did with the first round."""
        if self._judged is None:
            self._judged = (usage,)

    def rejected(self) -> None:
        """The answer is not kept: pins and ages stay as they were."""
        plan, before, cache = self._plan, self._before, self._cell.rt.config.cache
        if self._judged is None or plan is None or before is None or not cache.enabled:
            return
        usage = self._judged[0]
        said = usage is not None and usage.cached_tokens is not None
        if said and plan.lineage.generation != before.generation:
            return  # the prefix was new, and is dropped again: that it was cold says nothing
        judge(before, usage, plan.expected_prefix, cache)

    def accepted(self) -> None:
        """Keep the pins, and say how the window was used."""
        plan = self._plan
        assert plan is not None
        cache = self._cell.rt.config.cache
        if cache.enabled and self._judged is not None:
            judge(plan.lineage, self._judged[0], plan.expected_prefix, cache)
        keep_lineage(self._cell, plan.lineage)
        usage = self.usage()
        self._cell.ctx.last_layer_usage = usage
        self._mark_span(usage)

    def usage(self) -> LastLayerUsage:
        """The figures of this window, the log as it is now."""
        plan = self._plan
        assert plan is not None
        ctx, estimates = self._cell.ctx, self._memory.estimates
        history = estimates.history_total(ctx.item_log.items)
        tools = self._toolbox.tokens
        layers = sum(entry.token_count for entry in plan.entries)
        return LastLayerUsage(
            execution_id=ctx.id,
            model_id=self._step.model,
            layers=plan.entries,
            system_prompt_tokens=self._system,
            tools_tokens=tools,
            history_tokens=history,
            total_used_tokens=self._system + tools + history + layers,
            epoch=plan.epoch,
        )

    def picture(self) -> dict[str, Any]:
        """The window as event data."""
        assert self._plan is not None
        estimates = self._memory.estimates
        tools = (len(self._toolbox.specs), self._toolbox.tokens)
        if self._assembled is not None:
            return picture_of(self._plan, self._assembled, self._system, tools, len(self._tail))
        tail = self._tail_tokens()
        if self._shown is not None:
            history = estimates.total(self._history)
        else:
            history = estimates.history_total(self._cell.ctx.item_log.items) - tail
        return picture_of(
            self._plan, None, self._system, tools, len(self._tail), (self._split, history), tail
        )

    def _mark_span(self, usage: LastLayerUsage) -> None:
        frame = current_frame.get()
        if frame is None or self._cell.rt.span_sink is None:
            return
        span = frame.span
        span.set("noetic.context.total_tokens", usage.total_used_tokens)
        span.set("noetic.context.system_tokens", usage.system_prompt_tokens)
        span.set("noetic.context.tools_tokens", usage.tools_tokens)
        span.set("noetic.context.history_tokens", usage.history_tokens)
        epoch = usage.epoch
        if epoch is None:
            return
        span.set("noetic.context.epoch.id", epoch.id)
        span.set("noetic.context.epoch.age", epoch.age)
        span.set("noetic.context.anchor_tokens", epoch.anchor_tokens)
        span.set("noetic.context.live_tokens", epoch.live_tokens)
        span.set("noetic.context.delta_tokens", epoch.delta_tokens)
        if epoch.reanchor_reason is not None:
            span.set("noetic.context.reanchor_reason", epoch.reanchor_reason)


def _window_of(cell: Cell, step: Any, entries: Active) -> Window | None:
    """The step's window, the harness's, or, with layers, the default one."""
    chosen: Window | None = step.window or cell.rt.config.window
    if chosen is None and entries:
        return Window()
    return chosen
