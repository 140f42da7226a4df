from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.cli.conftest import Here
from tests.support.commands import Command

AGENTS = """
import asyncio
import noetic_ray as nr

@nr.step
async def shout(text, ctx):
    return text.upper()

@nr.step
async def waits(text, ctx):
    ctx.messages.send("waiting")
    await asyncio.sleep(600)

def play(request):
    return "echo: " + request.items[-1].content[0].text

provider = nr.testing.ScriptedModel(play)
talk = nr.call_model("talk", "tiny")
team = [shout, waits]
desk = {"front": talk, "back": shout}
empty = []
mixed = [shout, 7]
box = nr.channel("box", int, mode="queue", external=True)
inner = nr.channel("inner", int, mode="queue")
nothing = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "served.py").write_text(AGENTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Serving:
    """The command as a process, listening on a free port."""

    def __init__(self, folder: Path, *args: str, **env: str) -> None:
        self.command = Command("serve", *args, "--port", "0", cwd=folder, **env)
        self.command.read_until(lambda lines: lines[-1].startswith("serving "))
        self.said = self.command.lines[-1]
        self.url = self.said.split(" on ")[1].split("/v1")[0]

    def openai(self, token: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url + "/v1", api_key=token, max_retries=0)


@pytest.fixture
def serving(folder: Path) -> Iterator[Serving]:
    args = ("served:talk", "served:team", "--placement", "inline")
    found = Serving(folder, *args, "--model-provider", "served:provider")
    yield found
    if found.command.process.poll() is None:
        found.command.interrupt(signal.SIGINT)


def ask(client: openai.OpenAI, model: str) -> str | None:
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hi"}]
    )
    return answer.choices[0].message.content


def test_openai_clients_talk_to_the_agents(serving: Serving) -> None:
    assert serving.said.startswith("serving talk, shout, waits on http://127.0.0.1:")
    assert ask(serving.openai(), "talk") == "echo: hi"
    assert ask(serving.openai(), "shout") == "HI"
    done, left = serving.command.interrupt(signal.SIGINT)
    assert (done.code, done.out, left) == (130, "", [])
    assert done.err.splitlines()[1:] == ["interrupted"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_open_streams_and_leaves_nothing(
    serving: Serving, number: signal.Signals, code: int
) -> None:
    asked = {"model": "waits", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    with httpx.stream("POST", serving.url + "/v1/chat/completions", json=asked) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if "waiting" in line)
        started = time.monotonic()
        ended: list[object] = []
        ending = threading.Thread(target=lambda: ended.extend(serving.command.interrupt(number)))
        ending.start()
        last = [line for line in lines if line.startswith("data: ")][-1]
        ending.join(20.0)
    assert "shutting_down" in last
    done, left = ended
    assert (done.code, left) == (code, [])  # type: ignore[attr-defined]
    assert "Traceback" not in done.err  # type: ignore[attr-defined]
    assert time.monotonic() - started < 5.0


def test_a_token_from_the_environment(folder: Path) -> None:
    serving = Serving(folder, "served:shout", "--placement", "inline", NOETIC_RAY_TOKEN="s3cret")
    try:
        assert ask(serving.openai("s3cret"), "shout") == "HI"
        with pytest.raises(openai.AuthenticationError):
            ask(serving.openai("wrong"), "shout")
    finally:
        done, _ = serving.command.interrupt(signal.SIGINT)
    assert "s3cret" not in done.err


@pytest.mark.ray
@pytest.mark.slow
def test_agents_on_ray_end_with_the_server(folder: Path) -> None:
    serving = Serving(folder, "served:desk", "--model-provider", "served:provider")
    assert ask(serving.openai(), "front") == "echo: hi"
    assert "raylet" in serving.command.family()
    done, left = serving.command.interrupt(signal.SIGTERM)
    assert (done.code, left) == (143, [])
    assert "Traceback" not in done.err


def test_another_address_needs_a_token(cli: Here, folder: Path) -> None:
    done = cli("serve", "served:shout", "--host", "0.0.0.0", "--placement", "inline")
    assert done.code == 1
    assert "TOKEN_REQUIRED" in done.err


def test_a_port_that_is_taken(cli: Here, folder: Path, serving: Serving) -> None:
    port = serving.url.rpartition(":")[2]
    done = cli("serve", "served:shout", "--port", port, "--placement", "inline")
    assert done.code == 1
    assert "CANNOT_LISTEN" in done.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["served:none"], "has no 'none'"),
        (["served"], "not of the form"),
        (["served:nothing"], "is int, no step"),
        (["served:empty"], "is empty"),
        (["served:mixed"], "which is no step"),
        (["served:shout", "served:team"], "two agents are named 'shout'"),
        (["served:shout", "--channel", "served:shout"], "not a channel"),
        (["served:shout", "--port", "70000"], "--port"),
        ([], "Missing argument"),
    ],
)
def test_wrong_arguments(cli: Here, folder: Path, args: list[str], said: str) -> None:
    done = cli("serve", *args, "--placement", "inline")
    assert done.code == 2
    assert said in done.err


def test_a_channel_for_contexts_only_is_refused(cli: Here, folder: Path) -> None:
    done = cli("serve", "served:shout", "--channel", "served:inner", "--placement", "inline")
    assert done.code == 1
    assert "CHANNEL_NOT_EXTERNAL" in done.err


def test_a_channel_is_served(folder: Path) -> None:
    serving = Serving(folder, "served:waits", "--channel", "served:box", "--placement", "inline")
    try:
        id = httpx.post(serving.url + "/v1/runs", json={}).json()["id"]
        answer = httpx.post(f"{serving.url}/v1/runs/{id}/channels/box", json={"value": 3})
        assert answer.status_code == 202
    finally:
        serving.command.interrupt(signal.SIGINT)


def test_help_names_what_matters(cli: Here) -> None:
    done = cli("serve", "--help")
    assert done.code == 0
    assert "NOETIC_RAY_TOKEN" in done.out
    assert "/openapi.json" in done.out
