"""One round with a model: its span, usage and events, and what is left of it when it is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.code import in_thread
from noetic_ray.engine.figures import tokens_of
from noetic_ray.engine.spans import chat_span, close_chat, close_cut
from noetic_ray.errors import ModelFailed, NoeticError, to_wire
from noetic_ray.items import MessageItem, OutputText
from noetic_ray.models.protocol import DeltaKind, ModelReply

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell


class ModelRound:
    """Hears what the provider says during one round: implements `ModelEvents`.

    A `quiet` one tells nobody but the trace and the accounts.
    """

    def __init__(self, cell: Cell, step: Any, model: str, quiet: bool = False) -> None:
        self.cell = cell
        self.step = step
        self.speaks = step.emit and not quiet
        self.span = chat_span(cell, step, model)
        self.partial: list[str] = []
        self.attempts = 1
        self.streaming = False

    def delta(self, kind: DeltaKind, text: str) -> None:
        """Keep partial text; pass it on when somebody listens."""
        if kind == "text":
            self.partial.append(text)
        cell = self.cell
        run_id = cell.spec.scope.run_id
        if self.speaks and not cell.closed and not cell.spec.quiet and cell.rt.journal.live(run_id):
            cell.rt.journal.delta(run_id, cell.ctx.id, {"kind": kind, "text": text})
            if not self.streaming:  # the first words are what somebody waits for
                self.streaming = True
                cell.rt.journal.hasten()

    def retried(self, attempt: int, delay: float, error: NoeticError) -> None:
        """Drop the failed attempt's text and say so."""
        self.partial.clear()
        self.attempts = attempt + 1
        self.span.event("retry", {"attempt": attempt, "delay": delay, "error": str(error)})
        if self.speaks:
            data = {"attempt": attempt, "delay": delay, "discarded": True, "error": to_wire(error)}
            self.cell.emit("model.retried", data)

    def discarded(self, reason: str) -> None:
        """An answer is not kept, and asked for again."""
        self.partial.clear()
        self.span.event("guided", {"reason": reason})
        if self.speaks:
            data = {"attempt": 0, "delay": 0.0, "discarded": True, "guidance": reason}
            self.cell.emit("model.retried", data)

    async def run_sync(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a provider's synchronous user code like any synchronous body."""
        return await in_thread(self.cell, fn, *args)

    def completed(self, reply: ModelReply) -> None:
        """Count the round's usage and say what it was."""
        cell, usage = self.cell, reply.usage
        ctx = cell.ctx
        ctx.tokens.add(usage)
        ctx._own.add(usage)
        if reply.cost:
            ctx.cost += reply.cost
            cell.own_cost += reply.cost
        cell.emit("usage.updated", {"tokens": tokens_of(ctx._own), "cost": cell.own_cost})
        close_chat(self.span, reply)
        if self.speaks:
            cell.emit("model.completed", _completed_data(self.step, reply))

    def cut(self, error: BaseException, keep_text: bool = True) -> None:
        """The round failed or was aborted: what had arrived is logged, once, as incomplete."""
        cell = self.cell
        text = "".join(self.partial)
        if isinstance(error, ModelFailed) and error.partial:
            text = error.partial
        if text and keep_text and not cell.closed:
            cell.ctx.item_log.append(
                MessageItem(role="assistant", content=[OutputText(text=text)], status="incomplete")
            )
        close_cut(cell, self.span, error)
        if self.speaks:
            data: dict[str, Any] = {"model": self.step.model}
            data["error"] = (
                to_wire(error) if isinstance(error, NoeticError) else {"kind": "cancelled"}
            )
            cell.emit("model.failed", data)


def _completed_data(step: Any, reply: ModelReply) -> dict[str, Any]:
    usage = reply.usage
    figures = None
    if usage is not None:
        figures = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        }
    model = reply.model or step.model
    return {"model": model, "usage": figures, "cost": reply.cost, "warnings": reply.warnings}
