from __future__ import annotations

import asyncio
import json
import pickle
import threading
from typing import Any

import pytest

from noetic_ray.errors import ConfigError, ModelRateLimited, NoeticError
from noetic_ray.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    Item,
    MessageItem,
    ReasoningItem,
    Refusal,
    assistant_message,
    item_text,
    user_message,
)
from noetic_ray.models.protocol import Model, ModelReply, ModelRequest
from noetic_ray.testing import ScriptedModel, call, reply
from noetic_ray.usage import RoundUsage


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def delta(self, kind: str, text: str) -> None:
        self.heard.append((kind, text))

    def retried(self, attempt: int, delay: float, error: NoeticError) -> None:
        raise AssertionError("a script never retries")


class ThreadedEar(Ear):
    async def run_sync(self, fn: Any, *args: Any) -> Any:
        return await asyncio.to_thread(fn, *args)


def request(*items: Item, **changes: Any) -> ModelRequest:
    return ModelRequest("gpt", "be brief", list(items), **changes)


async def answer(model: ScriptedModel, *items: Item) -> ModelReply:
    return await model.generate(request(*items), Ear())


async def texts(model: ScriptedModel, *items: Item) -> list[str]:
    return [item_text(item) for item in (await answer(model, *items)).items]


class TestReplies:
    def test_a_call_is_an_item_with_json_arguments_and_an_id_of_its_own(self) -> None:
        one, other = call("lookup", city="Rome", name="x"), call("lookup")
        assert isinstance(one, FunctionCallItem)
        assert one.name == "lookup"
        assert json.loads(one.arguments) == {"city": "Rome", "name": "x"}
        assert other.arguments == "{}"
        assert one.call_id != other.call_id

    def test_a_reply_holds_text_refusal_and_calls_in_order(self) -> None:
        asked = call("lookup")
        made = reply("hi", refusal="no", calls=[asked])
        message, refused, last = made.items
        assert isinstance(message, MessageItem)
        assert isinstance(refused, MessageItem)
        assert item_text(message) == "hi"
        assert refused.content == (Refusal(refusal="no"),)
        assert last == asked

    def test_figures_not_given_are_not_reported(self) -> None:
        assert (reply("hi").usage, reply("hi").cost) == (None, None)
        assert reply("hi", cost=0.5).cost == 0.5
        assert reply("hi", input_tokens=3).usage == RoundUsage(3, 0, None, None)
        assert reply("hi", cached_tokens=0).usage == RoundUsage(0, 0, 0, None)
        assert reply(
            input_tokens=1, output_tokens=2, cached_tokens=3, cache_write_tokens=4
        ).usage == RoundUsage(1, 2, 3, 4)
        assert reply().items == []


class TestScriptedModel:
    def test_it_is_a_model_and_picklable(self) -> None:
        model = ScriptedModel.of(["a"])
        assert isinstance(model, Model)
        assert pickle.loads(pickle.dumps(model)) == model

    async def test_the_script_sees_the_request(self) -> None:
        seen: list[ModelRequest] = []

        def script(asked: ModelRequest) -> str:
            seen.append(asked)
            return "ok"

        sent = request(user_message("hi"), settings={"temperature": 0})
        await ScriptedModel(script).generate(sent, Ear())
        assert seen == [sent]
        assert (seen[0].model, seen[0].instructions, seen[0].tools) == ("gpt", "be brief", ())

    @pytest.mark.parametrize(
        "given",
        [
            "hi",
            assistant_message("hi"),
            [assistant_message("hi")],
            (assistant_message("hi"),),
            reply("hi", input_tokens=1),
        ],
        ids=["text", "item", "list", "tuple", "reply"],
    )
    async def test_a_script_may_answer_in_each_of_these_ways(self, given: Any) -> None:
        assert await texts(ScriptedModel(lambda asked: given)) == ["hi"]

    async def test_a_script_may_be_async(self) -> None:
        async def script(asked: ModelRequest) -> str:
            await asyncio.sleep(0)
            return "hi"

        assert await texts(ScriptedModel(script)) == ["hi"]

    @pytest.mark.parametrize("given", [None, 3, [1], {"text": "hi"}])
    async def test_any_other_answer_is_a_mistake_in_the_script(self, given: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            await answer(ScriptedModel(lambda asked: given))
        assert caught.value.code == "INVALID_SCRIPT_ANSWER"

    async def test_an_error_of_the_script_is_the_models_error(self) -> None:
        def script(asked: ModelRequest) -> str:
            raise ModelRateLimited(2.0)

        with pytest.raises(ModelRateLimited):
            await answer(ScriptedModel(script))

    def test_a_script_takes_one_request(self) -> None:
        wrong: Any = lambda: "hi"  # noqa: E731
        scripts: list[Any] = [wrong, "hi"]
        for script in scripts:
            with pytest.raises(ConfigError) as caught:
                ScriptedModel(script)
            assert caught.value.code == "INVALID_CALLBACK"

    async def test_text_is_streamed_in_pieces_before_the_answer_is_there(self) -> None:
        ear = Ear()
        items = [
            ReasoningItem(content="hmm"),
            *reply("hello world", refusal="no", calls=[call("lookup", a=1)]).items,
        ]
        await ScriptedModel(lambda asked: items).generate(request(), ear)
        joined: dict[str, str] = {}
        for kind, text in ear.heard:
            joined[kind] = joined.get(kind, "") + text
        assert joined == {
            "reasoning": "hmm",
            "text": "hello world",
            "refusal": "no",
            "arguments": '{"a": 1}',
        }
        assert len([kind for kind, _ in ear.heard if kind == "text"]) == 3

    async def test_an_empty_text_streams_nothing(self) -> None:
        ear = Ear()
        await ScriptedModel(lambda asked: "").generate(request(), ear)
        assert ear.heard == []

    async def test_cancelling_ends_it_between_pieces(self) -> None:
        class Interrupting(Ear):
            def delta(self, kind: str, text: str) -> None:
                super().delta(kind, text)
                running.cancel()

        ear = Interrupting()
        running = asyncio.ensure_future(ScriptedModel(lambda asked: "abc").generate(request(), ear))
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ear.heard == [("text", "a")]

    async def test_synchronous_scripts_run_where_the_engine_says(self) -> None:
        ran: list[int] = []

        def script(asked: ModelRequest) -> str:
            ran.append(threading.get_ident())
            return "hi"

        await ScriptedModel(script).generate(request(), ThreadedEar())
        await ScriptedModel(script).generate(request(), Ear())
        assert ran[0] != threading.get_ident()
        assert ran[1] == threading.get_ident()


class TestAnswersInTurn:
    async def test_each_conversation_follows_the_script_from_the_start(self) -> None:
        model = ScriptedModel.of(["one", "two"])
        said = user_message("hi")
        assert await texts(model, said) == ["one"]
        assert await texts(model, said, assistant_message("one"), user_message("more")) == ["two"]
        assert await texts(model, user_message("another")) == ["one"]

    async def test_tool_rounds_count_as_turns(self) -> None:
        asked = [call("a"), call("b")]
        model = ScriptedModel.of([reply("let me see", calls=asked), "done"])
        log: list[Item] = [user_message("hi"), *(await answer(model, user_message("hi"))).items]
        log += [FunctionCallOutputItem(call_id=each.call_id, output="1") for each in asked]
        assert await texts(model, *log) == ["done"]

    async def test_answers_that_follow_each_other_directly_are_told_apart(self) -> None:
        model = ScriptedModel.of(["one", "two", "three"])
        spoken = [assistant_message("one"), assistant_message("two")]
        assert await texts(model, user_message("hi"), *spoken) == ["three"]

    async def test_going_past_the_end_is_an_error(self) -> None:
        model = ScriptedModel.of(["one"])
        with pytest.raises(ConfigError) as caught:
            await answer(model, user_message("hi"), assistant_message("one"))
        assert caught.value.code == "SCRIPT_EXHAUSTED"
        assert caught.value.hint

    async def test_texts_become_fresh_items_each_time(self) -> None:
        model = ScriptedModel.of(["one"])
        first, second = await answer(model), await answer(model)
        assert first.items[0].id != second.items[0].id
