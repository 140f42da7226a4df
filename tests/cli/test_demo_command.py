from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from noetic_ray.demo.documents import samples
from tests.cli.conftest import Here
from tests.support import wires
from tests.support.commands import Command
from tests.support.model_server import Answer, ModelServer, Recorded
from tests.support.wait import wait_until

INLINE = ("demo", "--placement", "inline")
FAST = (*INLINE, "--pace", "0")
KEYS = {
    "id", "parent_id", "depth", "step", "status", "items", "tokens", "cost", "elapsed", "node",
    "pid",
}  # fmt: skip


def by_step(given: dict[str, Any], step: str) -> list[dict[str, Any]]:
    return [context for context in given["contexts"] if context["step"] == step]


def test_json_is_one_object_with_all_contexts(cli: Here) -> None:
    given = cli.json(*FAST)
    assert all(context.keys() == KEYS for context in given["contexts"])
    (root,) = (each for each in given["contexts"] if each["parent_id"] is None)
    assert (root["step"], root["depth"]) == ("planner", 0)
    assert {each["depth"] for each in by_step(given, "reader")} == {1}
    (helper,) = by_step(given, "helper")
    assert helper["parent_id"] in {each["id"] for each in by_step(given, "reader")}
    assert root["tokens"] == given["usage"]
    assert given["usage"]["total"] > 1000
    assert given["aborted"] is False
    assert given["error"] is None
    assert [each["name"] for each in given["report"]["documents"]] == [d.name for d in samples()]


def test_people_see_the_tree_and_the_report(cli: Here) -> None:
    done = cli(*FAST)
    assert done.code == 0
    for text in ("✓ planner", "├─ ✓ collector", "│  └─ ✓ helper", "Read tide_pools.txt."):
        assert text in done.out
    assert "slow_bread.txt  571 words, 5 chunks, 1 reader" in done.out
    assert "dough 12" in done.out
    assert "“Bread needs four things: flour, water, salt and time.”" in done.out
    assert "Terms that documents share" in done.out


def test_progress_is_plain_lines_on_stderr_without_a_terminal(cli: Here) -> None:
    done = cli(*FAST)
    assert "4 documents; starting in this process ..." in done.err
    assert done.err.count("started in process") == 7
    assert done.err.count("completed: ") == 7
    assert "\x1b" not in done.err


def test_with_json_stderr_is_for_errors_only(cli: Here) -> None:
    assert cli(*FAST, "--json").err == ""


def test_the_number_of_agents_is_the_number_of_readers(cli: Here) -> None:
    assert len(by_step(cli.json(*FAST, "--agents", "50"), "reader")) == 50
    assert len(by_step(cli.json(*FAST, "--agents", "2"), "reader")) == 2


def test_bad_files_are_listed_and_the_others_are_read(cli: Here, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Good texts have words. Words are what texts are made of.")
    (tmp_path / "bad.bin").write_bytes(b"\0\1")
    missing = str(tmp_path / "missing.txt")
    done = cli(*FAST, "--json", str(tmp_path), missing)
    report = json.loads(done.out)["report"]
    assert done.code == 0
    assert [each["name"] for each in report["documents"]] == [str(tmp_path / "good.txt")]
    problems = {each["path"]: each["problem"] for each in report["problems"]}
    assert problems == {
        str(tmp_path / "bad.bin"): "a binary file, not text",
        missing: "no such file or directory",
    }
    for path, problem in problems.items():
        assert f"error: cannot read {path}: {problem}\n" in done.err


def test_without_any_readable_document_it_fails_and_starts_nothing(cli: Here) -> None:
    done = cli("demo", "/no/such/file", "--json")
    assert done.code == 1
    given = json.loads(done.out)
    assert given["contexts"] == given["report"]["documents"] == []
    assert given["report"]["problems"] == [
        {"path": "/no/such/file", "problem": "no such file or directory"}
    ]
    assert cli("demo", "/no/such/file").code == 1


def test_a_requested_abort_shows_the_cascade_and_is_no_failure(cli: Here) -> None:
    done = cli(*INLINE, "--abort-after", "0.3")
    assert done.code == 0
    assert "■ planner cancelled" in done.out
    assert "■ helper cancelled" in done.out
    assert "The abort reached 7 contexts" in done.out
    assert "level 1: collector (1), reader (4)" in done.out


def test_an_abort_as_json(cli: Here) -> None:
    given = cli.json(*INLINE, "--agents", "20", "--abort-after", "0.3")
    assert given["aborted"] is True
    assert given["abort"]["reached"] == given["abort"]["settled"] == 22
    assert {each["status"] for each in given["contexts"]} == {"cancelled"}


def test_a_run_that_ends_before_its_abort_is_complete(cli: Here) -> None:
    given = cli.json(*FAST, "--abort-after", "60")
    assert given["aborted"] is False
    assert len(given["report"]["documents"]) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        ("--agents", "0"),
        ("--abort-after", "0"),
        ("--placement", "nowhere"),
        ("--model", "x"),
        ("--base-url", "localhost"),
        ("--base-url", "http://127.0.0.1:9", "--pace", "1"),
    ],
)
def test_wrong_options_are_usage_errors(cli: Here, wrong: tuple[str, ...]) -> None:
    done = cli(*INLINE, *wrong)
    assert done.code == 2
    assert wrong[0] in done.err or wrong[-2] in done.err
    assert done.out == ""


# Over HTTP


def reads_then_talks(recorded: Recorded) -> Answer:
    """A model that reads one chunk, counts one word and says what it was told."""
    messages = recorded.json["messages"]
    told = [message["content"] for message in messages if message["role"] == "tool"]
    if not told:
        return Answer(chunks=[wires.chat_call("read_chunk", '{"number": 1}')])
    if len(told) == 1:
        word = json.dumps({"terms": [told[0].split()[0]]})
        return Answer(chunks=[wires.chat_call("count_terms", word)])
    return Answer(chunks=[wires.chat_text(f"I was told {told[-1]}.")])


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_model_server_is_used_over_http(cli: Here, tmp_path: Path, how: str) -> None:
    (tmp_path / "a.txt").write_text("Otters swim. Otters dive. Others do not.")
    with ModelServer() as server:
        server.respond(reads_then_talks)
        if how == "option":
            args, env = ("--base-url", server.url, "--model", "tiny"), {}
        else:
            args, env = (), {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k"}
        given = cli.json(*INLINE, str(tmp_path), *args, **env)
        requests = server.requests
    (found,) = given["report"]["documents"]
    assert found["terms"] == {"otters": 2}
    assert found["summaries"] == ['I was told {"Otters":2}.']
    assert len(requests) == 3
    assert requests[0].json["model"] == ("tiny" if how == "option" else "gpt-4.1-mini")
    assert requests[0].headers.get("authorization") == (None if how == "option" else "Bearer k")
    tools = {tool["function"]["name"] for tool in requests[0].json["tools"]}
    assert tools == {"read_chunk", "count_terms", "note", "delegate"}
    assert given["usage"]["total"] == 360


def test_a_model_server_that_refuses_is_named_for_each_document(cli: Here) -> None:
    with ModelServer() as server:
        server.respond(lambda _: Answer(401))
        done = cli(*INLINE, "--base-url", server.url, "--json")
    report = json.loads(done.out)["report"]
    assert done.code == 1
    assert report["documents"] == []
    assert [each["path"] for each in report["problems"]] == [each.name for each in samples()]
    assert all("401" in each["problem"] for each in report["problems"])


# On Ray


@pytest.mark.ray
def test_on_ray_contexts_live_in_processes_of_their_own() -> None:
    done = Command("demo", "--json", "--pace", "0.05").wait()
    assert done.code == 0, done.err
    given = json.loads(done.out)
    assert len({each["pid"] for each in given["contexts"]}) >= 5
    assert {each["status"] for each in given["contexts"]} == {"completed"}


@pytest.mark.ray
def test_ctrl_c_aborts_the_tree_and_leaves_no_process() -> None:
    command = Command("demo", "--pace", "30")
    command.read_until(lambda lines: any("  reader " in line for line in lines))
    done, left = command.interrupt(signal.SIGINT)
    assert done.code == 130
    assert "aborted: interrupted" in done.err
    assert done.err.rstrip().endswith("interrupted")
    assert "Traceback" not in done.err
    assert left == []


@pytest.mark.ray
def test_ctrl_c_while_ray_starts_leaves_no_process_either() -> None:
    command = Command("demo")
    wait_until(lambda: any("Agent" in name for name in command.family()), 60)
    done, left = command.interrupt(signal.SIGINT)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert left == []
