"""call_model: rounds of model call and tool calls until the model answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from noetic_ray.engine.cell import Cell
from noetic_ray.engine.code import in_thread
from noetic_ray.engine.figures import tokens_of
from noetic_ray.engine.flow import callback
from noetic_ray.engine.outcome import Completed
from noetic_ray.engine.spans import chat_span, close_chat, close_cut
from noetic_ray.engine.structured import output_spec, parse_output
from noetic_ray.engine.tasks import shared_tasks
from noetic_ray.engine.tool_calls import Toolbox, leave_calls, run_calls
from noetic_ray.errors import (
    ConfigError,
    ErrorRecord,
    ModelFailed,
    ModelParseError,
    ModelRefused,
    NoeticError,
    StepFailed,
    to_wire,
)
from noetic_ray.items import (
    FunctionCallItem,
    Item,
    MessageItem,
    OutputText,
    Refusal,
    last_assistant_text,
    new_id,
    user_message,
)
from noetic_ray.models.protocol import DeltaKind, ModelReply, ModelRequest
from noetic_ray.tracing.records import SpanRecord
from noetic_ray.usage import RoundMeta, StepMeta


async def call_model(cell: Cell, step: Any, input: Any) -> Any:
    """Log the input, run rounds, return the last answer's text or its parsed form."""
    model = cell.rt.config.model
    if model is None:
        raise ConfigError(
            "NO_MODEL_PROVIDER",
            f"step {step.id!r} calls a model, but the harness has no model provider",
            "pass model_provider=nr.models.OpenAI() to the Harness",
        )
    _log_input(cell, input)
    call = _Call(cell, step, model)
    instructions = step.instructions
    if callable(instructions):
        instructions = await callback(cell, instructions, cell.ctx)
    call.instructions = instructions
    try:
        await call.rounds()
        return await call.answer()
    finally:
        if call.done:
            cell.ctx.last_step_meta = StepMeta.over(call.done)


def _log_input(cell: Cell, input: Any) -> None:
    """A non-empty text becomes a user message, unless it is what the model just said."""
    if not isinstance(input, str) or not input:
        return
    log = cell.ctx.item_log
    if last_assistant_text(log.items) != input:
        log.append(user_message(input))


class _Call:
    """One call_model step while it runs."""

    def __init__(self, cell: Cell, step: Any, model: Any) -> None:
        self.cell = cell
        self.step = step
        self.model = model
        self.instructions: str | None = None
        self.toolbox = Toolbox.of(cell, step)
        self.done: list[RoundMeta] = []
        self.last: Sequence[Item] = ()

    async def rounds(self) -> None:
        """Call the model until a round asks for no tools. Every round stays in the log."""
        for _ in range(self.step.max_rounds):
            calls = self._log_reply(await self._round())
            refused = _refusal(self.last)
            if refused is not None:
                self._refused(refused, calls)
            if not calls or refused is not None:
                return
            await run_calls(self.cell, self.step, self.toolbox, calls)
            self.cell.check()
            if self.cell.ctx.completed:
                raise Completed
        limit = RuntimeError(f"the model still asks for tools after {self.step.max_rounds} rounds")
        raise StepFailed(self.step.id, ErrorRecord.of(limit), False)

    async def _round(self) -> ModelReply:
        cell, step = self.cell, self.step
        ear = _Ear(cell, step, chat_span(cell, step))
        if step.emit:
            cell.emit("model.started", {"model": step.model, "round": len(self.done)})
        try:
            with shared_tasks():
                reply: ModelReply = await self.model.generate(self._request(), ear)
        except BaseException as error:
            ear.cut(error)
            raise
        ear.completed(reply)
        return reply

    def _request(self) -> ModelRequest:
        step = self.step
        return ModelRequest(
            model=step.model,
            instructions=self.instructions,
            items=self.cell.ctx.item_log.items,
            tools=self.toolbox.specs,
            settings=step.settings or {},
            output=output_spec(step),
            context_id=self.cell.ctx.id,
        )

    def _log_reply(self, reply: ModelReply) -> list[FunctionCallItem]:
        log = self.cell.ctx.item_log
        kept = [log.append_from_provider(self._with_own_call_id(item)) for item in reply.items]
        calls = [item for item in kept if isinstance(item, FunctionCallItem)]
        self.last = kept
        self.done.append(RoundMeta(tuple(calls), reply.usage, reply.cost, tuple(kept)))
        return calls

    def _with_own_call_id(self, item: Item) -> Item:
        """A call's id is unique in its log, or outputs could not be told apart."""
        if not isinstance(item, FunctionCallItem):
            return item
        taken = _call_ids(self.cell)
        if item.call_id and item.call_id not in taken:
            return item
        given = item.call_id if item.provider_call_id is None else item.provider_call_id
        fresh = {"call_id": f"call_{new_id()}", "provider_call_id": given}
        return item.model_copy(update=fresh)

    def _refused(self, text: str, calls: Sequence[FunctionCallItem]) -> None:
        """The model declined: what it called in the same breath is not run."""
        leave_calls(self.cell, calls, "error: the call was not run, the answer was a refusal")
        if self.step.on_refusal == "raise":
            raise ModelRefused(text, self.step.id)

    async def answer(self) -> Any:
        """The last round's text, parsed when the step has an `output` type."""
        text = self._text()
        if self.step.output is None or _refusal(self.last) is not None:
            return text
        tries = self.step.output_retries
        while True:
            try:
                return parse_output(self.step, text)
            except ModelParseError as error:
                if tries <= 0:
                    raise
                tries -= 1
                self.cell.ctx.item_log.append(user_message(_ask_again(error)))
            await self.rounds()
            text = self._text()

    def _text(self) -> str:
        refused = _refusal(self.last)
        return refused if refused is not None else last_assistant_text(self.last)


def _call_ids(cell: Cell) -> set[str]:
    """The call ids in a context's log. Only what is new since the last look is read."""
    taken, seen = cell.call_ids or (set(), 0)
    log = cell.ctx.item_log
    taken.update(each.call_id for each in log.since(seen) if type(each) is FunctionCallItem)
    cell.call_ids = taken, len(log)
    return taken


class _Ear:
    """Hears what the provider says during one round: implements `ModelEvents`."""

    def __init__(self, cell: Cell, step: Any, span: SpanRecord) -> None:
        self.cell = cell
        self.step = step
        self.span = span
        self.partial: list[str] = []
        self.attempts = 1

    def delta(self, kind: DeltaKind, text: str) -> None:
        """Keep partial text; pass it on when somebody listens."""
        if kind == "text":
            self.partial.append(text)
        cell = self.cell
        run_id = cell.spec.scope.run_id
        if self.step.emit and not cell.closed and cell.rt.journal.live(run_id):
            cell.rt.journal.delta(run_id, cell.ctx.id, {"kind": kind, "text": text})

    def retried(self, attempt: int, delay: float, error: NoeticError) -> None:
        """Drop the failed attempt's text and say so."""
        self.partial.clear()
        self.attempts = attempt + 1
        self.span.event("retry", {"attempt": attempt, "delay": delay, "error": str(error)})
        if self.step.emit:
            data = {"attempt": attempt, "delay": delay, "discarded": True, "error": to_wire(error)}
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
        if self.step.emit:
            cell.emit("model.completed", _completed_data(self.step, reply))

    def cut(self, error: BaseException) -> None:
        """The round failed or was aborted: what had arrived is logged, once, as incomplete."""
        cell = self.cell
        text = "".join(self.partial)
        if isinstance(error, ModelFailed) and error.partial:
            text = error.partial
        if text and not cell.closed:
            cell.ctx.item_log.append(
                MessageItem(role="assistant", content=[OutputText(text=text)], status="incomplete")
            )
        close_cut(cell, self.span, error)
        if self.step.emit:
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


def _refusal(items: Sequence[Item]) -> str | None:
    for item in items:
        if isinstance(item, MessageItem):
            for part in item.content:
                if isinstance(part, Refusal):
                    return part.refusal
    return None


def _ask_again(error: ModelParseError) -> str:
    return f"That answer does not fit the requested form: {error}. Answer again in that form only."
