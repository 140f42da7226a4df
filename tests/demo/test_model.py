"""The embedded model answers from what it is given, not from what it remembers."""

from __future__ import annotations

import json
from typing import Any

import noetic_ray as nr
from noetic_ray.demo.model import ReaderModel, respond
from noetic_ray.models.protocol import ModelRequest, ToolSpec

TOOLS = ("read_chunk", "count_terms", "note", "delegate")


def request(*items: nr.Item, chunks: int = 2, tools: tuple[str, ...] = TOOLS) -> ModelRequest:
    task = nr.user_message(f"Read odd.txt. Its chunks are 1 to {chunks}.")
    return ModelRequest("m", None, [task, *items], [ToolSpec(name, "", {}) for name in tools])


def called(name: str, output: Any, /, failed: bool = False, **args: Any) -> list[nr.Item]:
    """A call and its output."""
    call = nr.testing.call(name, **args)
    text = output if isinstance(output, str) else json.dumps(output)
    status = "failed" if failed else "completed"
    return [call, nr.FunctionCallOutputItem(call_id=call.call_id, output=text, status=status)]


def asked(request: ModelRequest) -> list[tuple[str, dict[str, Any]]]:
    text, calls = respond(request)
    assert text is None
    return [(call.name, json.loads(call.arguments)) for call in calls]


READ = [
    *called("read_chunk", "Zebras eat plums every day. Nobody knows why.", number=1),
    *called("read_chunk", "Plums are eaten by zebras alone. Plums are blue.", number=2),
]


def test_it_reads_what_it_has_not_read() -> None:
    assert asked(request()) == [("read_chunk", {"number": 1}), ("read_chunk", {"number": 2})]
    assert asked(request(*READ[:2])) == [("read_chunk", {"number": 2})]


def test_it_counts_terms_of_the_text_it_read() -> None:
    ((name, args),) = asked(request(*READ))
    assert name == "count_terms"
    assert args["terms"][:2] == ["plums", "zebras"]


def test_its_notes_depend_on_the_counts_it_was_told() -> None:
    plums = asked(request(*READ, *called("count_terms", {"plums": 9, "alone": 9}, terms=[])))
    nobody = asked(request(*READ, *called("count_terms", {"zebras": 9, "eat": 30}, terms=[])))
    assert plums[0] == ("note", {"chunk": 2, "sentence": "Plums are eaten by zebras alone."})
    assert nobody[0] == ("note", {"chunk": 1, "sentence": "Zebras eat plums every day."})


def test_it_sums_up_with_real_counts_and_a_noted_sentence() -> None:
    counted = called("count_terms", {"plums": 41, "zebras": 7}, terms=[])
    noted = called("note", "noted", chunk=2, sentence="Plums are blue.")
    text, calls = respond(request(*READ, *counted, *noted))
    assert not calls
    assert text == "odd.txt is about plums (41), zebras (7). At its heart: “Plums are blue.”"


def test_it_asks_for_help_with_the_second_half_of_a_long_text() -> None:
    calls = asked(request(chunks=9))
    assert calls[0] == ("delegate", {"first": 5, "last": 9})
    assert [args["number"] for _, args in calls[1:]] == [1, 2, 3]


def test_it_reads_all_alone_when_it_may_not_delegate() -> None:
    assert {name for name, _ in asked(request(chunks=9, tools=TOOLS[:3]))} == {"read_chunk"}


def test_it_reads_everything_itself_after_a_helper_failed() -> None:
    items = called("delegate", "error: lost", failed=True, first=2, last=7)
    items += [item for n in (1,) for item in called("read_chunk", "One.", number=n)]
    assert [args["number"] for _, args in asked(request(*items, chunks=7))] == [2, 3, 4]


def test_it_does_not_read_again_what_could_not_be_read() -> None:
    items = [*READ[:2], *called("read_chunk", "error: no such chunk", failed=True, number=2)]
    assert asked(request(*items))[0][0] == "count_terms"


async def test_it_reports_estimated_tokens_and_no_cost() -> None:
    class Quiet:
        def delta(self, kind: str, text: str) -> None: ...
        def retried(self, attempt: int, delay: float, error: nr.NoeticError) -> None: ...

    reply = await ReaderModel(0).generate(request(*READ), Quiet())
    assert reply.cost == 0
    assert reply.usage is not None
    assert reply.usage.input_tokens > 20
    assert reply.usage.output_tokens > 0
