from __future__ import annotations

import json
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Here
from tests.support import wires
from tests.support.commands import Command
from tests.support.model_server import Answer, ModelServer

AGENTS = '''
import asyncio
import noetic_ray as nr

@nr.step
async def shout(text, ctx):
    return (text or "nothing").upper()

@nr.step
async def chatters(text, ctx):
    print("on the way")
    return text

@nr.step
async def nested(text, ctx):
    return {"said": await ctx.spawn(shout, text), "depth": ctx.depth}

@nr.step
async def broken(text, ctx):
    raise ValueError("no luck with " + text)

@nr.step
async def waits(text, ctx):
    await asyncio.sleep(600)

@nr.step
async def swarm(text, ctx):
    await asyncio.gather(*(ctx.spawn(waits, n) for n in range(2)))

@nr.tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b

def play(request):
    done = [item for item in request.items if item.type == "function_call_output"]
    if done:
        return nr.testing.reply("sum " + done[-1].output, input_tokens=5, output_tokens=2)
    call = nr.testing.call("add", a=2, b=3)
    return nr.testing.reply(calls=[call], input_tokens=5, output_tokens=2, cost=0.25)

provider = nr.testing.ScriptedModel(play)
make_provider = lambda: provider
ask = nr.call_model("ask", "tiny", tools=[add])
number = 3
'''
HERE = ("--placement", "inline")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with a module of agents."""
    (tmp_path / "some_agents.py").write_text(AGENTS)
    (tmp_path / "bad_syntax.py").write_text("def")
    (tmp_path / "needs_more.py").write_text("import not_there_at_all")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("some_agents", "bad_syntax", "needs_more"):
        sys.modules.pop(name, None)


def test_the_output_alone_is_on_stdout_and_progress_on_stderr(cli: Here) -> None:
    done = cli("run", "some_agents:shout", "-i", "hello", *HERE)
    assert done[:2] == (0, "HELLO\n")
    assert "started in process" in done.err
    assert "completed: " in done.err


def test_an_output_that_is_no_text_is_json(cli: Here) -> None:
    done = cli("run", "some_agents:nested", "-i", "hello", *HERE)
    assert json.loads(done.out) == {"said": "HELLO", "depth": 0}


def test_input_comes_from_a_file_from_stdin_or_not_at_all(cli: Here, folder: Path) -> None:
    (folder / "in.txt").write_text("füle")
    assert cli("run", "some_agents:shout", "-i", "@in.txt", *HERE).out == "FÜLE\n"
    assert cli("run", "some_agents:shout", "-i", "-", *HERE, stdin="piped").out == "PIPED\n"
    assert cli("run", "some_agents:shout", *HERE).out == "NOTHING\n"


def test_json_tells_output_usage_and_cost(cli: Here) -> None:
    args = ("run", "some_agents:ask", "-i", "2+3?", "--model-provider", "some_agents:provider")
    given = cli.json(*args, *HERE)
    assert given["status"] == "completed"
    assert given["output"] == "sum 5"
    assert given["error"] is None
    assert given["usage"]["total"] == 14
    assert given["cost"] == 0.25
    assert given["elapsed"] > 0


def test_what_steps_print_does_not_get_into_the_json(cli: Here) -> None:
    done = cli("run", "some_agents:chatters", "-i", "x", "--json", *HERE)
    assert json.loads(done.out)["output"] == "x"
    assert "on the way" in done.err


def test_a_provider_may_be_made_by_a_function(cli: Here) -> None:
    args = ("--model-provider", "some_agents:make_provider")
    assert cli("run", "some_agents:ask", "-i", "2+3?", *args, *HERE).out == "sum 5\n"


def test_tool_calls_are_told_while_it_runs(cli: Here) -> None:
    args = ("--model-provider", "some_agents:provider")
    assert "calls add\n" in cli("run", "some_agents:ask", "-i", "2+3?", *args, *HERE).err


def test_a_failed_run_is_exit_code_1_with_the_place_in_the_agent_s_code(cli: Here) -> None:
    done = cli("run", "some_agents:broken", "-i", "that", *HERE)
    assert done[:2] == (1, "")
    assert "some_agents.py" in done.err
    assert "error: step_failed: step 'broken' failed: ValueError: no luck with that" in done.err


def test_a_failed_run_as_json_holds_the_error(cli: Here) -> None:
    done = cli("run", "some_agents:broken", "-i", "that", "--json", *HERE)
    given = json.loads(done.out)
    assert done.code == 1
    assert given["status"] == "failed"
    assert given["error"]["kind"] == "step_failed"
    assert "no luck" in given["error"]["message"]


def test_a_model_step_without_a_provider_says_what_to_do(cli: Here) -> None:
    done = cli("run", "some_agents:ask", "-i", "x", *HERE)
    assert done.code == 1
    assert "error: config_error: " in done.err


@pytest.mark.parametrize("how", ["option", "environment"])
def test_the_provider_is_the_environment_s_or_the_option_s(cli: Here, how: str) -> None:
    with ModelServer() as server:
        server.respond(lambda _: Answer(chunks=[wires.chat_text("over HTTP")]))
        args = ("--base-url", server.url) if how == "option" else ()
        env = {} if how == "option" else {"OPENAI_BASE_URL": server.url}
        assert cli("run", "some_agents:ask", "-i", "x", *args, *HERE, **env).out == "over HTTP\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["some_agents"], "not of the form module:name"),
        (["no_such_module:x"], "there is no module 'no_such_module'"),
        (["no_such.module:x"], "there is no module 'no_such.module'"),
        (["needs_more:x"], "needs 'not_there_at_all'"),
        (["bad_syntax:x"], "does not load"),
        (["some_agents:other"], "has no 'other'"),
        (["some_agents:number"], "is int, not a step"),
        (["some_agents:shout", "-i", "@missing.txt"], "cannot read @missing.txt"),
        (["some_agents:shout", "--model-provider", "some_agents:number"], "no model provider"),
        (["some_agents:shout", "--placement", "nowhere"], "nowhere"),
        (["some_agents:shout", "--base-url", "nonsense"], "base URL"),
        ([], "MODULE:AGENT"),
    ],
)
def test_wrong_arguments_are_usage_errors(cli: Here, args: list[str], says: str) -> None:
    done = cli("run", *args)
    assert done[:2] == (2, "")
    assert says in " ".join(done.err.split())


def test_a_store_keeps_the_run(cli: Here, folder: Path) -> None:
    cli("run", "some_agents:shout", "-i", "kept", "--store", "runs.db", *HERE)
    with sqlite3.connect(folder / "runs.db") as opened:
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master")]
    assert "events" in tables


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_aborts_the_run(folder: Path, number: signal.Signals, code: int) -> None:
    command = Command("run", "some_agents:swarm", *HERE, cwd=folder)
    command.read_until(lambda lines: sum("waits" in line for line in lines) == 2)
    done, left = command.interrupt(number)
    assert done.code == code
    assert f"aborted: {'interrupted' if code == 130 else 'terminated'}" in done.err
    assert "Traceback" not in done.err
    assert left == []


@pytest.mark.ray
def test_on_ray_actors_find_the_module_and_sigterm_leaves_nothing(folder: Path) -> None:
    command = Command("run", "some_agents:swarm", cwd=folder)
    command.read_until(lambda lines: sum("waits" in line for line in lines) == 2)
    done, left = command.interrupt(signal.SIGTERM)
    assert done.code == 143
    assert "Traceback" not in done.err
    assert left == []
