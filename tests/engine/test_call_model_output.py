"""Structured output, truncation and refusals."""

from __future__ import annotations

import threading
from ast import literal_eval
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

import noetic_ray as nr

Talk = nr.Harness


class Town(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    name: str
    people: int = 0

    @pydantic.field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name == "Atlantis":
            raise ValueError("it sank")
        return name


@dataclass
class Pair:
    left: int
    right: int


def _say(*texts: str, output: Any = Town, **more: Any) -> Any:
    return nr.call_model(
        "ask", "says_setting", output=output, settings={"say": list(texts)}, **more
    )


def _texts(run: nr.Run[Any]) -> list[tuple[str, str]]:
    return [(item.role, item.content[0].text) for item in run.items()]  # type: ignore[union-attr]


def test_the_answer_becomes_the_output_type(talk: Talk) -> None:
    assert talk.run(_say('{"name": "Bonn"}'), "hi") == Town(name="Bonn")
    assert talk.run(_say('{"left": 1, "right": 2}', output=Pair), "hi") == Pair(1, 2)
    assert talk.run(_say("[1, 2]", output=list[int]), "hi") == [1, 2]


BAD = ["no json", '{"name": 5}', '{"people": 1}', '{"name": "Atlantis"}', "[]", "", '{"name": "B']


@pytest.mark.parametrize("text", BAD)
def test_an_answer_that_does_not_fit_is_an_error_with_its_text(talk: Talk, text: str) -> None:
    run = talk.start(_say(text), "hi")
    with pytest.raises(nr.ModelParseError) as caught:
        run.result()
    assert (caught.value.raw, caught.value.step_id) == (text, "ask")
    assert _texts(run) == [("user", "hi"), ("assistant", text)]
    assert run.usage.input == 1


def test_the_model_is_asked_again_as_often_as_allowed(talk: Talk) -> None:
    run = talk.start(_say("no", "nor this", '{"name": "Bonn"}', output_retries=2), "hi")
    assert run.result() == Town(name="Bonn")
    roles = [role for role, _ in _texts(run)]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert run.usage.input == 3


def test_and_not_more_often(talk: Talk) -> None:
    run = talk.start(_say("no", "nor this", '{"name": "Bonn"}', output_retries=1), "hi")
    with pytest.raises(nr.ModelParseError) as caught:
        run.result()
    assert caught.value.raw == "nor this"
    assert run.usage.input == 2


def test_what_is_asked_again_names_the_problem(talk: Talk) -> None:
    run = talk.start(_say('{"name": "Atlantis"}', '{"name": "Bonn"}', output_retries=1), "hi")
    assert run.result() == Town(name="Bonn")
    assert "it sank" in _texts(run)[2][1]


@nr.step
async def output_here(step: nr.Step[Any, Any], ctx: nr.Context) -> tuple[bool, Any, Any]:
    here = await ctx.run(step, "hi")
    there = await ctx.spawn(step, "hi")
    return type(here) is Town, here, there


def test_an_output_is_of_the_same_class_everywhere(talk: Talk) -> None:
    same, here, there = talk.run(output_here, _say('{"name": "Bonn"}'))
    assert same
    assert type(here) is type(there) is Town


def test_a_type_without_a_schema_is_refused(talk: Talk) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        talk.run(_say("x", output=threading.Lock), "hi")
    assert caught.value.code == "INVALID_OUTPUT"


# -- truncation ----------------------------------------------------------------------------------


def _cut(text: str, **more: Any) -> Any:
    return nr.call_model("ask", "truncated", settings={"text": text}, **more)


def test_truncated_text_is_a_success_with_a_warning(talk: Talk) -> None:
    run = talk.start(_cut("and then she sai"), "hi")
    assert run.result() == "and then she sai"
    assert run.items()[-1].status == "incomplete"
    (completed,) = [event for event in run.events() if event.type == "model.completed"]
    assert completed.data["warnings"] == ["max_output_tokens"]
    assert run.status == "completed"


def test_truncated_text_that_still_fits_is_fine(talk: Talk) -> None:
    assert talk.run(_cut('{"name": "Bonn"}', output=Town), "hi") == Town(name="Bonn")


def test_truncated_text_that_does_not_fit_is_a_parse_error(talk: Talk) -> None:
    with pytest.raises(nr.ModelParseError) as caught:
        talk.run(_cut('{"name": "Bo', output=Town), "hi")
    assert caught.value.raw == '{"name": "Bo'


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["refuses", "refuses_after_empty_text"])
@pytest.mark.parametrize("output", [None, Town])
def test_a_refusal_is_logged_and_raised(talk: Talk, model: str, output: Any) -> None:
    step = nr.call_model("ask", model, output=output, output_retries=3)
    run = talk.start(step, "hi")
    with pytest.raises(nr.ModelRefused) as caught:
        run.result()
    assert (caught.value.text, caught.value.step_id) == ("I will not", "ask")
    refusals = [
        part.refusal
        for item in run.items()
        for part in item.content  # type: ignore[union-attr]
        if isinstance(part, nr.Refusal)
    ]
    assert refusals == ["I will not"]
    assert run.usage == nr.TokenUsage(3, 2, 5)  # asked once


@pytest.mark.parametrize("output", [None, Town])
def test_a_refusal_may_be_the_output(talk: Talk, output: Any) -> None:
    step = nr.call_model("ask", "refuses", output=output, on_refusal="return")
    assert talk.run(step, "hi") == "I will not"


def test_a_refusal_passes_containers_and_children_unchanged(talk: Talk) -> None:
    ask = nr.call_model("ask", "refuses")
    with pytest.raises(nr.ModelRefused):
        talk.run(nr.spawn("s", nr.sequence("q", [ask])), "hi")


def test_the_request_says_what_is_wanted(talk: Talk) -> None:
    step = nr.call_model("ask", "output_schema", output=Town, output_retries=0)
    with pytest.raises(nr.ModelParseError) as caught:
        talk.run(step, "hi")
    assert literal_eval(caught.value.raw) == ("Town", ["name", "people"])
