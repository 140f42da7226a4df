"""assistant: create, model and tools, next, done, each once; and the work handed on to another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noetic_ray.canonical import from_json
from noetic_ray.engine.assistant_hooks import (
    Delegation,
    added_to,
    as_input,
    read_created,
    read_next,
)
from noetic_ray.engine.children import spawn
from noetic_ray.engine.flow import callback
from noetic_ray.engine.layers.hooks import diagnose
from noetic_ray.engine.model_call import Conversation, first_of_step, model_of
from noetic_ray.engine.outcome import Completed, translate
from noetic_ray.engine.window.step_window import Shown
from noetic_ray.errors import Cancelled, ConfigError, NoeticError
from noetic_ray.items import FunctionCallItem, FunctionCallOutputItem, Item, item_text
from noetic_ray.steps import Step
from noetic_ray.steps.assistant import (
    Assistant,
    AssistantReply,
    Completion,
    Delegated,
    ToolOutcome,
)
from noetic_ray.steps.kinds import CallModel
from noetic_ray.usage import StepMeta, TokenUsage

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.layers.entry import LayerEntry

ERROR_MARK = "error: "


async def assistant(cell: Cell, step: Any, input: Any) -> AssistantReply:
    """Run the hooks and the model between them; `done` hears how it ended."""
    try:
        reply = await _Turn(cell, step).run(input)
    except GeneratorExit:  # nothing can be awaited any more
        raise
    except BaseException as error:
        if step.done is not None:
            await _tell_failure(cell, step, error)
        raise
    if step.done is not None:
        await callback(cell, step.done, cell.ctx, reply, None)
    return reply


async def _tell_failure(cell: Cell, step: Any, error: BaseException) -> None:
    """Call `done` with what went wrong, which stays the step's error whatever `done` does."""
    try:
        await callback(cell, step.done, cell.ctx, None, _told(cell, step, error))
    except (asyncio.CancelledError, Completed, GeneratorExit):
        raise
    except BaseException as problem:
        diagnose(cell, step.id, "done", problem)


def _told(cell: Cell, step: Any, error: BaseException) -> NoeticError | None:
    if isinstance(error, Completed):
        return None
    raised = translate(cell.ctx, step.id, error)
    return raised if isinstance(raised, NoeticError) else Cancelled("the step was cancelled")


class _Turn:
    """One call of an assistant."""

    def __init__(self, cell: Cell, step: Any) -> None:
        self.cell = cell
        self.step = step
        self.log = cell.ctx.item_log
        self.start = len(self.log)
        self.talk = Conversation(cell, step.call, model_of(cell, step))
        self.shown: Shown | None = None

    async def run(self, input: Any) -> AssistantReply:
        """All but `done`."""
        cell, talk = self.cell, self.talk
        if not cell.ctx.request.assistant_id:
            cell.change_request(cell.ctx.request.changed(assistant_id=self.step.id))
        talk.split = first_of_step(self.log.items)
        again = await talk.take(as_input(cell, input))
        again |= await self._create()
        asked: Sequence[Item] = self.log.items if self.shown is None else self.shown.items
        await talk.ready(again, shown=self.shown)
        text = await talk.ask()
        self._check()
        reply = await self._next(asked, text)
        cell.check()
        return reply

    def _check(self) -> None:
        """Go on only when nobody aborted or completed the context meanwhile."""
        self.cell.check()
        if self.cell.ctx.completed:
            raise Completed

    # -- create --------------------------------------------------------------------------------

    async def _create(self) -> set[LayerEntry]:
        """Call `create` and do what it asks; returns the layers whose texts are made again."""
        cell, step = self.cell, self.step
        if step.create is None:
            return set()
        given = await callback(cell, step.create, cell.ctx, tuple(self.log.items))
        self._check()
        created = read_created(cell, step, given)
        request = cell.ctx.request.changed(**created.request) if created.request else None
        self._tell_unknown("create", created.unknown)
        if request is not None:
            cell.change_request(request)
        self.talk.settings = created.over(self.talk.settings)
        return set() if created.messages is None else await self._replace(created.messages)

    async def _replace(self, messages: tuple[Item, ...]) -> set[LayerEntry]:
        """Log what messages add to the log; if they are others, show them in its place."""
        added = added_to(self.log.items, messages)
        if added is not None:
            return await self.talk.take(added)
        self.shown = Shown(messages, len(self.log))
        return set()

    def _tell_unknown(self, hook: str, names: Sequence[str]) -> None:
        if names:
            what = f"ignored in what it returned: {', '.join(sorted(names))}"
            diagnose(self.cell, self.step.id, hook, ValueError(what))

    # -- next ----------------------------------------------------------------------------------

    async def _next(self, asked: Sequence[Item], text: str) -> AssistantReply:
        cell, step = self.cell, self.step
        if step.next is None:
            return self._reply(text)
        messages = tuple(asked)
        completion = self._completion(text)
        given = await callback(
            cell, step.next, cell.ctx, messages, completion, self._tool_outcomes()
        )
        self._check()
        asks = read_next(cell, step, given)
        target = None if asks.delegate is None else self._target(asks.delegate)
        self._tell_unknown("next", asks.unknown)
        if asks.delegate is None or target is None:
            return self._reply(text, asks.data, asks.metadata)
        handed = messages if asks.delegate.messages is None else asks.delegate.messages
        reply = _wrapped(await spawn(cell, Delegated(target.id, target), handed))
        return replace(reply, metadata={**reply.metadata, **asks.metadata})

    def _target(self, delegate: Delegation) -> Step[Any, Any]:
        agent = delegate.agent
        if isinstance(agent, Step):
            return agent
        known = self.cell.rt.config.assistants
        if agent in known:
            return known[agent]
        if agent == self.step.id:
            return self.step  # type: ignore[no-any-return]
        raise ConfigError(
            "UNKNOWN_ASSISTANT",
            f"step {self.step.id!r} delegates to {agent!r}; known: {', '.join(known) or 'none'}",
            "Give it to Harness(assistants=[...]), or delegate to the step itself.",
        )

    def _completion(self, text: str) -> Completion:
        return Completion(text, StepMeta.over(self.talk.done).response_items, self._usage())

    def _reply(
        self, text: str, data: Any = None, metadata: Mapping[str, Any] | None = None
    ) -> AssistantReply:
        items = self.log.since(self.start)
        return AssistantReply(text, items, self._usage(), data, dict(metadata or {}))

    def _usage(self) -> TokenUsage:
        usage = TokenUsage()
        for each in self.talk.done:
            usage.add(each.usage)
        return usage

    def _tool_outcomes(self) -> list[ToolOutcome]:
        """The calls of all rounds, in order, with what the log has as their outputs."""
        outputs = {
            item.call_id: item
            for item in self.log.since(self.start)
            if isinstance(item, FunctionCallOutputItem)
        }
        calls = [call for each in self.talk.done for call in each.tool_calls]
        return [self._outcome(each, outputs.get(each.call_id)) for each in calls]

    def _outcome(self, call: FunctionCallItem, ended: FunctionCallOutputItem | None) -> ToolOutcome:
        tool = self.talk.toolbox.find(call.name)
        name = call.name if tool is None else getattr(tool, "tool_name", tool.name)
        arguments = _value_of(call.arguments)
        output = "" if ended is None else ended.output
        failed = ended is None or ended.status != "completed"
        return ToolOutcome(
            call.call_id,
            getattr(tool, "client", None),
            name,
            arguments if isinstance(arguments, dict) else {},
            None if failed else _value_of(output),
            output.removeprefix(ERROR_MARK) if failed else None,
        )


def _value_of(text: str) -> Any:
    """What JSON text says; any other text itself."""
    try:
        return from_json(text)
    except (ValueError, RecursionError):  # no JSON, or nested too deep to be read
        return text


async def delegated(cell: Cell, step: Any, input: tuple[Item, ...]) -> AssistantReply:
    """In the child: run the target on the messages, known as asked by an agent.

    A step that is no assistant gets the text of the last message, a model step its log alone.
    """
    ctx, target = cell.ctx, step.target
    cell.change_request(ctx.request.changed(referer="agent", assistant_id=target.id))
    if isinstance(target, Assistant):
        return await cell.rt.dispatch(ctx, target, input)  # type: ignore[no-any-return]
    asks_itself = isinstance(target, CallModel)
    for item in input if asks_itself else input[:-1]:
        ctx.item_log.append(item)
    given = None if asks_itself or not input else item_text(input[-1])
    start = len(ctx.item_log)
    output = await cell.rt.dispatch(ctx, target, given)
    return _wrapped(output, ctx.item_log.since(start), ctx.tokens.copy())


def _wrapped(
    output: Any, items: tuple[Item, ...] = (), usage: TokenUsage | None = None
) -> AssistantReply:
    """What another step gave, or its context was completed with; what is no text is data."""
    if isinstance(output, AssistantReply):
        return output
    usage = TokenUsage() if usage is None else usage
    if isinstance(output, str):
        return AssistantReply(output, items, usage)
    return AssistantReply("", items, usage, output)
