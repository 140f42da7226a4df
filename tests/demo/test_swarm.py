"""The swarm on both backends, and with models that do not behave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.demo.documents import Document, samples
from noetic_ray.demo.model import ReaderModel, respond
from noetic_ray.demo.report import Report
from noetic_ray.demo.swarm import Task, planner
from noetic_ray.models.protocol import ModelRequest

Make = Callable[..., nr.Harness]
PARAMS = {"model": "m"}


@pytest.fixture
def swarm(make_harness: Make, backend: str) -> nr.Harness:
    return make_harness(ReaderModel(0.0), placement=backend, params=PARAMS)


def steps(run: nr.Run[Report]) -> Counter[str | None]:
    return Counter(row.step for row in run.rows())


def test_every_document_gets_a_reader_and_a_report(swarm: nr.Harness, backend: str) -> None:
    run = swarm.start(planner, Task(samples()))
    report = run.result(60)
    assert [each.name for each in report.documents] == [each.name for each in samples()]
    assert report.problems == []
    assert steps(run) == {"planner": 1, "collector": 1, "reader": 4, "helper": 1}
    assert {row.status for row in run.rows()} == {"completed"}
    pids = {row.pid for row in run.rows() if row.step == "reader"}
    assert len(pids) == (1 if backend == "inline" else 4)


def test_the_report_holds_exact_counts_and_sentences_of_the_text(make_harness: Make) -> None:
    harness = make_harness(ReaderModel(0.0), placement="inline", params=PARAMS)
    report = harness.run(planner, Task(samples()))
    for document, found in zip(samples(), report.documents, strict=True):
        flat = " ".join(document.text.split())
        assert found.sentences
        assert all(sentence in flat for sentence in found.sentences)
        assert len(found.terms) == 8
        for term, n in found.terms.items():
            spaced = "".join(c if c.isalpha() else " " for c in document.text.lower())
            assert spaced.split().count(term) == n
    assert set(report.shared_terms) <= {t for each in report.documents for t in each.terms}


def test_other_texts_give_other_reports(make_harness: Make) -> None:
    harness = make_harness(ReaderModel(0.0), placement="inline", params=PARAMS)
    text = "Quokkas juggle lemons at noon. " * 3 + "Nobody paints the quokkas green."
    (found,) = harness.run(planner, Task([Document("odd", text)])).documents
    assert found.terms["quokkas"] == 4
    assert found.sentences[0] == "Quokkas juggle lemons at noon."
    assert "quokkas (4)" in found.summaries[0]


def test_fifty_readers_really_read(make_harness: Make) -> None:
    harness = make_harness(ReaderModel(0.0), placement="inline", params=PARAMS)
    run = harness.start(planner, Task(samples(), 50))
    report = run.result(60)
    assert steps(run)["reader"] == 50
    assert sum(each.readers for each in report.documents) == 50
    logs = [run.items(row.id) for row in run.rows() if row.step == "reader"]
    assert all(any(item.type == "function_call_output" for item in log) for log in logs)


def test_a_reader_that_fails_is_a_problem_and_the_others_go_on(make_harness: Make) -> None:
    def script(request: ModelRequest) -> Any:
        if "bad" in request.items[0].content[0].text:  # type: ignore[union-attr]
            raise nr.ModelFailed("the model is out of order")
        text, calls = respond(request)
        return nr.testing.reply(text, calls=calls)

    harness = make_harness(nr.testing.ScriptedModel(script), placement="inline", params=PARAMS)
    task = Task([Document("bad", "One text."), Document("good", "Another text to be read.")])
    report = harness.run(planner, task)
    assert [each.name for each in report.documents] == ["good"]
    ((path, problem),) = report.problems
    assert path == "bad"
    assert "out of order" in problem


def test_a_model_that_only_talks_gives_a_report_of_its_words(make_harness: Make) -> None:
    model = nr.testing.ScriptedModel(lambda request: "I say nothing.")
    harness = make_harness(model, placement="inline", params=PARAMS)
    (found,) = harness.run(planner, Task([Document("a", "A text.")])).documents
    assert (found.terms, found.sentences, found.summaries) == ({}, [], ["I say nothing."])


def test_a_made_up_quotation_is_refused(make_harness: Make) -> None:
    def script(request: ModelRequest) -> Any:
        outputs = [i for i in request.items if isinstance(i, nr.FunctionCallOutputItem)]
        if outputs:
            return outputs[-1].output
        return nr.testing.call("note", chunk=1, sentence="It never said this.")

    harness = make_harness(nr.testing.ScriptedModel(script), placement="inline", params=PARAMS)
    (found,) = harness.run(planner, Task([Document("a", "It said that.")])).documents
    assert found.sentences == []
    assert "word for word" in found.summaries[0]


def test_an_abort_reaches_readers_and_helpers(make_harness: Make) -> None:
    harness = make_harness(ReaderModel(0.01), placement="inline", params=PARAMS)
    run = harness.start(planner, Task(samples()))
    for event in run.events():
        if event.type == "tool.started" and event.data["tool"] == "count_terms":
            break
    report = run.abort("enough")
    assert run.status == "cancelled"
    assert report.killed == report.abandoned == 0
    live = {row.status for row in run.rows()}
    assert live <= {"cancelled", "completed"}


@pytest.mark.ray
def test_a_reader_whose_process_dies_is_reported(make_harness: Make) -> None:
    harness = make_harness(_Deadly(), placement="actor", params=PARAMS)
    task = Task([Document("deadly", "Text one."), Document("plain", "Text two is longer.")])
    report = harness.run(planner, task)
    assert [each.name for each in report.documents] == ["plain"]
    assert report.problems[0].path == "deadly"
    assert report.problems[0].problem.startswith("context_lost")


class _Deadly:
    """Ends its process when it is asked about one document."""

    async def generate(self, request: ModelRequest, events: Any) -> Any:
        import os

        if "deadly" in request.items[0].content[0].text:  # type: ignore[union-attr]
            os._exit(1)
        await asyncio.sleep(0)
        text, calls = respond(request)
        return nr.testing.reply(text, calls=calls)
