"""A model provider for tests of call_model: a step's `model` names how it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import noetic_ray as nr

Answer = Callable[[Any, Any], Any]
_answers: dict[str, Answer] = {}


def answers(fn: Answer) -> Answer:
    """Register `fn(request, events)`, sync or async, under its name."""
    _answers[fn.__name__] = fn
    return fn


class Provider:
    """Asks the registered answer named by the request's model."""

    async def generate(self, request: Any, events: Any) -> nr.ModelReply:
        """One round."""
        given = _answers[request.model](request, events)
        if isinstance(given, Awaitable):
            given = await given
        return given if isinstance(given, nr.ModelReply) else nr.testing.reply(given)


def results(request: Any) -> list[Any]:
    """The tool outputs a request holds."""
    return [item for item in request.items if item.type == "function_call_output"]


def rounds(request: Any) -> int:
    """How many answers of the model a request holds."""
    return sum(getattr(item, "role", "") == "assistant" for item in request.items)


def _call(id: str, name: str, arguments: str, **more: Any) -> nr.FunctionCallItem:
    return nr.FunctionCallItem(call_id=id, name=name, arguments=arguments, **more)


@answers
def hello(request: Any, events: Any) -> Any:
    return nr.testing.reply("hello", input_tokens=10, output_tokens=5, cost=0.25)


@answers
def request_as_text(request: Any, events: Any) -> str:
    """Say what the request held."""
    said = [(item.role, item.content[0].text) for item in request.items if item.type == "message"]
    tools = [tool.name for tool in request.tools]
    return repr((request.instructions, said, tools, dict(request.settings)))


@answers
def output_schema(request: Any, events: Any) -> str:
    """Say which fields the output asked for has."""
    return repr((request.output.name, sorted(request.output.schema["properties"])))


@answers
def repeats(request: Any, events: Any) -> Any:
    """Say the same every time."""
    return nr.testing.reply("same", input_tokens=1, output_tokens=1)


@answers
def tools_in_turn(request: Any, events: Any) -> Any:
    """One call of `note` after another, four of them, then the outputs."""
    done = results(request)
    if len(done) < 4:
        call = _call(f"c{len(done)}", "note", f'{{"text": "{len(done)}"}}')
        return nr.testing.reply(calls=[call], input_tokens=10, output_tokens=1, cost=0.5)
    return nr.testing.reply(
        ",".join(each.output for each in done), input_tokens=10, output_tokens=2, cost=0.5
    )


@answers
def asks_for_ever(request: Any, events: Any) -> Any:
    """Call `note` in every round."""
    return nr.testing.reply(calls=[nr.testing.call("note", text="again")], input_tokens=1)


@answers
def calls_in_settings(request: Any, events: Any) -> Any:
    """Ask for the calls in the settings, as (name, arguments, id, status)."""
    if results(request):
        return "done"
    given = request.settings["calls"]
    return nr.testing.reply(
        calls=[_call(id, name, text, status=status) for name, text, id, status in given]
    )


@answers
def refuses(request: Any, events: Any) -> Any:
    return nr.testing.reply(refusal="I will not", input_tokens=3, output_tokens=2)


@answers
def refuses_after_empty_text(request: Any, events: Any) -> Any:
    return nr.testing.reply("", refusal="I will not", input_tokens=3, output_tokens=2)


@answers
def refuses_and_calls(request: Any, events: Any) -> Any:
    return nr.testing.reply(refusal="no", calls=[_call("c", "note", '{"text": "x"}')])


@answers
def says_setting(request: Any, events: Any) -> Any:
    """Say the texts of the setting `say`, one a round."""
    said = request.settings["say"]
    return nr.testing.reply(said[min(rounds(request), len(said) - 1)], input_tokens=1)


@answers
def truncated(request: Any, events: Any) -> Any:
    """Say the setting `text`, cut off by a length limit."""
    item = nr.assistant_message(request.settings["text"]).model_copy(
        update={"status": "incomplete"}
    )
    return nr.ModelReply([item], warnings=["max_output_tokens"])


@answers
def usage_of_setting(request: Any, events: Any) -> Any:
    """Report the usage in the setting `usage`: a dict for reply, one for each round."""
    given = request.settings["usage"]
    usage = given[min(rounds(request), len(given) - 1)]
    return nr.testing.reply("text", **usage)


@answers
async def streams_then_hangs(request: Any, events: Any) -> Any:
    events.delta("text", "half a ")
    events.delta("reasoning", "not text")
    events.delta("text", "sentence")
    await asyncio.Event().wait()


@answers
async def streams_when_told(request: Any, events: Any) -> Any:
    """Stream as soon as the file named by the setting `go` is there."""
    while not Path(request.settings["go"]).exists():
        await asyncio.sleep(0.005)
    events.delta("text", "one ")
    events.delta("reasoning", "hm")
    events.delta("text", "two")
    return nr.testing.reply("one two")


@answers
async def streams_then_fails(request: Any, events: Any) -> Any:
    events.delta("text", "the beginning")
    raise nr.ModelFailed(None, "http://m", 1, "the beginning", True)


@answers
def fails_with_partial(request: Any, events: Any) -> Any:
    raise nr.ModelFailed(500, "http://m", 5, "what had come", True, detail="server error")


@answers
async def fails_after_a_discarded_attempt(request: Any, events: Any) -> Any:
    events.delta("text", "thrown away")
    events.retried(1, 0.0, nr.ModelFailed(None, "http://m", 1, "thrown away", True))
    events.delta("text", "second")
    raise nr.ModelFailed(None, "http://m", 2, "", True)


@answers
async def succeeds_after_a_discarded_attempt(request: Any, events: Any) -> Any:
    events.delta("text", "thrown away")
    events.retried(1, 0.0, nr.ModelFailed(None, "http://m", 1, "thrown away", True))
    events.delta("text", "kept")
    return "kept"


@answers
def rate_limited(request: Any, events: Any) -> Any:
    raise nr.ModelRateLimited(90.0, base_url="http://m")


@answers
def broken_provider(request: Any, events: Any) -> Any:
    raise KeyError("choices")


@answers
def raises_cancelled_error(request: Any, events: Any) -> Any:
    raise asyncio.CancelledError


@answers
def fixed_item_ids(request: Any, events: Any) -> Any:
    """Answer with the same item id each time."""
    return nr.ModelReply([nr.assistant_message("x").model_copy(update={"id": "msg_1"})])


@answers
def three_messages(request: Any, events: Any) -> Any:
    """Reasoning and two messages in one answer."""
    thought = nr.ReasoningItem(content=[nr.ReasoningText(text="hm")])
    return nr.ModelReply([thought, nr.assistant_message("one"), nr.assistant_message("two")])


@answers
def calls_same_id(request: Any, events: Any) -> Any:
    """Ask for `note` until there are three outputs, always under the same call id."""
    if len(results(request)) >= 3:
        return "done"
    return nr.testing.reply(calls=[_call("same", "note", '{"text": "again"}')])
