"""call_model: rounds of model call and tool calls until the model answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.cell import Cell
from noetic_ray.engine.flow import callback
from noetic_ray.engine.inbox import take_mail
from noetic_ray.engine.layers.guards import admit, judge_answer
from noetic_ray.engine.layers.learning import store
from noetic_ray.engine.layers.stack import active, those_with
from noetic_ray.engine.model_round import ModelRound
from noetic_ray.engine.outcome import Completed
from noetic_ray.engine.structured import output_spec, parse_output
from noetic_ray.engine.tasks import shared_tasks
from noetic_ray.engine.tool_calls import Toolbox, leave_calls, run_calls
from noetic_ray.engine.window.step_window import Shown, StepWindow
from noetic_ray.errors import (
    ConfigError,
    ErrorRecord,
    ModelParseError,
    ModelRefused,
    SteeringDenied,
    StepFailed,
)
from noetic_ray.items import (
    FunctionCallItem,
    Item,
    MessageItem,
    Refusal,
    developer_message,
    item_text,
    last_assistant_text,
    new_id,
    user_message,
)
from noetic_ray.layers.hooks import Deny, Guide, Response
from noetic_ray.models.protocol import ModelReply, ModelRequest
from noetic_ray.usage import RoundMeta, StepMeta

if TYPE_CHECKING:
    from noetic_ray.engine.layers.entry import LayerEntry

MAX_GUIDANCE = 3


async def call_model(cell: Cell, step: Any, input: Any) -> Any:
    """Log the input, run rounds, return the last answer's text or its parsed form."""
    call = Conversation(cell, step, model_of(cell, step))
    await call.open(input)
    return await call.ask()


def model_of(cell: Cell, step: Any) -> Any:
    """The harness's model provider. Raises ConfigError `NO_MODEL_PROVIDER` when it has none."""
    model = cell.rt.config.model
    if model is None:
        raise ConfigError(
            "NO_MODEL_PROVIDER",
            f"step {step.id!r} calls a model, but the harness has no model provider",
            "pass model_provider=nr.models.OpenAI() to the Harness",
        )
    return model


def as_input(cell: Cell, input: Any) -> Sequence[Item]:
    """A non-empty text becomes a user message, unless it is what the model just said.

    Nor is it one when a context was started with it twice: as its input, and as its last item.
    """
    if not isinstance(input, str) or not input:
        return ()
    log = cell.ctx.item_log.items
    if last_assistant_text(log) == input or (_untouched(cell) and _asks(log[-1], input)):
        return ()
    return (user_message(input),)


def _untouched(cell: Cell) -> bool:
    """Whether the log still is what the context was started with, or inherited."""
    return len(cell.ctx.item_log) > 0 and cell.rt.own_items(cell) == len(cell.spec.items)


def _asks(item: Item, text: str) -> bool:
    return isinstance(item, MessageItem) and item.role == "user" and item_text(item) == text


def first_of_step(items: Sequence[Item]) -> int:
    """Where a step's own items begin: at the messages at the end that nobody has answered."""
    split = len(items)
    while split and _is_asking(items[split - 1]):
        split -= 1
    return split


def _is_asking(item: Item) -> bool:
    return isinstance(item, MessageItem) and item.role in ("user", "developer")


class Conversation:
    """One call_model step while it runs.

    `settings` are the step's; whoever asks the model in parts may change them before `ready`.
    """

    def __init__(self, cell: Cell, step: Any, model: Any) -> None:
        self.cell = cell
        self.step = step
        self.model = model
        self.settings: Mapping[str, Any] = step.settings or {}
        self.instructions: str | None = None
        self.done: list[RoundMeta] = []
        self.last: Sequence[Item] = ()
        self.guided = 0
        self.split = 0
        self.box: Toolbox | None = None
        self.window: StepWindow | None = None
        self.pictured = False

    async def open(self, input: Any) -> None:
        """Log the input, make the instructions, put the window together."""
        self.split = first_of_step(self.cell.ctx.item_log.items)
        again = await self.take(as_input(self.cell, input))
        await self.ready(again, input if isinstance(input, str) else None)

    async def take(self, items: Sequence[Item]) -> set[LayerEntry]:
        """Log items as the layers leave them; returns the layers whose texts are made again."""
        admitted = await admit(self.cell, items)
        for item in admitted.items:
            self.cell.ctx.item_log.append(item)
        return admitted.again

    async def ready(
        self, again: set[LayerEntry], query: str | None = None, shown: Shown | None = None
    ) -> None:
        """Make the instructions and put the window together; `shown` stands for the log."""
        cell, step = self.cell, self.step
        self.instructions = step.instructions
        if callable(step.instructions):
            self.instructions = await callback(cell, step.instructions, cell.ctx)
        self.box = await Toolbox.ready(cell, step)
        asked = cell.ctx.item_log.items if shown is None else shown.items
        split = self.split if shown is None else first_of_step(asked)
        self.window = StepWindow(cell, step, self.toolbox, self.instructions, split, shown)
        await self.window.open(_last_asked(asked) if query is None else query, again)

    async def ask(self) -> Any:
        """Run the rounds and return the answer; what they used is the context's last step's."""
        try:
            await self.rounds()
            return await self.answer()
        finally:
            if self.done:
                self.cell.ctx.last_step_meta = StepMeta.over(self.done)

    async def rounds(self) -> None:
        """Call the model until a round asks for no tools. Every round stays in the log."""
        for _ in range(self.step.max_rounds):
            calls = self._log_reply(await self._accepted_round())
            refused = _refusal(self.last)
            if refused is not None:
                self._refused(refused, calls)
            if not calls or refused is not None:
                return
            again = await run_calls(self.cell, self.step, self.toolbox, calls)
            self.cell.check()
            if self.cell.ctx.completed:
                raise Completed
            again |= await self._take_mail()
            if again:
                await self.open_window.refresh(again)
                self.pictured = False
        limit = RuntimeError(f"the model still asks for tools after {self.step.max_rounds} rounds")
        raise StepFailed(self.step.id, ErrorRecord.of(limit), False)

    async def _take_mail(self) -> set[LayerEntry]:
        """Log what was sent to the run's inbox meanwhile; returns the layers to ask again."""
        cell = self.cell
        mail = await take_mail(cell) if cell.spec.inbox is not None else ()
        return await self.take(mail) if mail else set()

    @property
    def toolbox(self) -> Toolbox:
        """The step's tools, once `open` has asked the servers for theirs."""
        assert self.box is not None
        return self.box

    @property
    def open_window(self) -> StepWindow:
        """The step's window, once `open` has put it together."""
        assert self.window is not None
        return self.window

    async def _accepted_round(self) -> ModelReply:
        """A round whose answer the layers let pass; at most three are sent back with advice."""
        cell = self.cell
        while True:
            round_, reply = await self._round()
            self.open_window.judge(reply.usage)
            if not those_with(active(cell), "after_model_call"):
                return reply
            cell.check()
            response = Response(tuple(reply.items), reply.usage, reply.cost)
            verdict = await judge_answer(cell, response)
            if isinstance(verdict, Deny):
                self.open_window.rejected()
                raise SteeringDenied(verdict.text)
            if not isinstance(verdict, Guide) or self.guided >= MAX_GUIDANCE:
                return reply
            self.guided += 1
            round_.discarded(verdict.text)
            cell.ctx.item_log.append(developer_message(verdict.text))

    async def _round(self) -> tuple[ModelRound, ModelReply]:
        cell, step = self.cell, self.step
        round_ = ModelRound(cell, step, step.model)
        if step.emit:
            cell.emit("model.started", self._started_data())
        try:
            with shared_tasks():
                reply: ModelReply = await self.model.generate(self.request(), round_)
        except BaseException as error:
            round_.cut(error)
            raise
        round_.completed(reply)
        return round_, reply

    def _started_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"model": self.step.model, "round": len(self.done)}
        if not self.pictured:
            self.pictured = True
            data["window"] = self.open_window.picture()
        return data

    def request(self) -> ModelRequest:
        """What the next round sends."""
        step, window = self.step, self.open_window
        return ModelRequest(
            model=step.model,
            instructions=self.instructions,
            items=window.items,
            tools=self.toolbox.specs,
            settings=self.settings,
            output=output_spec(step),
            context_id=self.cell.ctx.id,
            cache_boundary=window.cache_boundary,
            cache_key=window.cache_key,
        )

    async def _answered(self) -> None:
        """The step has its answer: keep the window's figures, and let the layers learn."""
        self.open_window.accepted()
        await store(self.cell, self.split, self.done)

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
        """The last round's text, parsed when the step has an `output` type.

        The layers learn from the step when nothing more is asked, also from one that failed here.
        """
        text = self._text()
        if self.step.output is None or _refusal(self.last) is not None:
            await self._answered()
            return text
        tries = self.step.output_retries
        while True:
            try:
                parsed = parse_output(self.step, text)
            except ModelParseError as error:
                if tries <= 0:
                    await self._answered()
                    raise
                tries -= 1
                self.cell.ctx.item_log.append(user_message(_ask_again(error)))
            else:
                await self._answered()
                return parsed
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


def _last_asked(items: Sequence[Item]) -> str:
    """The text of the last message, when it is one to be answered."""
    return item_text(items[-1]) if items and _is_asking(items[-1]) else ""


def _refusal(items: Sequence[Item]) -> str | None:
    for item in items:
        if isinstance(item, MessageItem):
            for part in item.content:
                if isinstance(part, Refusal):
                    return part.refusal
    return None


def _ask_again(error: ModelParseError) -> str:
    return f"That answer does not fit the requested form: {error}. Answer again in that form only."
