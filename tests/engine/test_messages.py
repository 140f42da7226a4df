"""What an agent shows its client: sends, replacements and added texts, and `ctx.release`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import unique
from tests.support.marks import mark, marked, text_of, wait_for
from tests.support.wait import wait_until

CUI = {"accept": "cui-web"}


def gate(name: str) -> nr.Channel[Any]:
    return nr.channel(name, str, mode="queue", external=True)


def refusal(call: Callable[[], Any]) -> str:
    """What a MessageError says, or what came instead."""
    try:
        return f"not refused: {call()!r}"
    except nr.MessageError as refused:
        return str(refused)


def told(run: nr.Run[Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(what happened, message id, message) of each message event."""
    return [
        (event.type.removeprefix("message."), event.data["message_id"], event.data["message"])
        for event in run.events()
        if event.type.startswith("message.")
    ]


def suffix(context_id: str) -> str:
    return "@" + context_id.replace("-", "")[-8:]


# -- sending -------------------------------------------------------------------------------------


@nr.step
async def sends_all_kinds(_: Any, ctx: nr.Context) -> list[str]:
    send = ctx.messages.send
    return [
        send("Hello"),
        send({"type": "text", "props": {"content": "two"}}),
        send(""),
        send({"type": "tool", "message_id": "mine", "props": {"name": "calc", "sum": 42}}),
        send({"type": "text", "message_id": "", "props": {"content": "no id"}}),
        send({"type": "chart", "message_id": None}),
        send({"type": "text", "message_id": "M6", "props": {"content": "taken"}}),
        send("after a taken one"),
        send({"type": "text", "props": {"content": "x"}, "metadata": {"sequence": 1}}),
    ]


def test_each_send_is_one_message_with_an_id(harness: nr.Harness) -> None:
    run = harness.start(sends_all_kinds, request=CUI)
    ids = ["M1", "M2", "M3", "mine", "M4", "M5", "M6", "M7", "M8"]
    assert run.result(30) == ids
    frames = run.messages()
    assert [frame["message_id"] for frame in frames] == ids
    assert frames[0] == {"type": "text", "props": {"content": "Hello"}, "message_id": "M1"}
    assert frames[2]["props"] == {"content": ""}
    assert frames[3] == {
        "type": "tool",
        "props": {"name": "calc", "sum": 42},
        "message_id": "mine",
    }
    assert frames[5]["props"] == {}
    assert frames[8]["metadata"] == {"sequence": 1}
    assert [kind for kind, _, _ in told(run)] == ["sent"] * 9
    shown = run.shown()
    assert [each.id for each in shown] == ids
    assert shown[3] == nr.Message("mine", "tool", {"name": "calc", "sum": 42}, run.id)


@nr.step
async def counts_below(_: Any, ctx: nr.Context) -> list[str]:
    ids = [ctx.messages.send("one"), ctx.messages.send("two")]
    first, second = await asyncio.gather(ctx.spawn(sends_two), ctx.spawn(sends_two))
    return [*ids, *first, *second, ctx.messages.send("three")]


@nr.step
async def sends_two(_: Any, ctx: nr.Context) -> list[str]:
    return [ctx.id, ctx.messages.send("a"), ctx.messages.send("b")]


def test_each_context_counts_for_itself(harness: nr.Harness) -> None:
    run = harness.start(counts_below)
    ids = run.result(30)
    one, two = ids[2], ids[5]
    assert ids == [
        *("M1", "M2"),
        *(one, f"M1{suffix(one)}", f"M2{suffix(one)}"),
        *(two, f"M1{suffix(two)}", f"M2{suffix(two)}"),
        "M3",
    ]
    senders = {each.id: each.context_id for each in run.shown()}
    assert len(senders) == 7
    assert senders["M3"] == run.id
    assert senders[f"M2{suffix(two)}"] == two
    assert harness.run(sends_two)[1:] == ["M1", "M2"], "another run begins again"


@nr.step
async def sends_what_is_wrong(_: Any, ctx: nr.Context) -> list[str]:
    messages: Any = ctx.messages
    known = messages.send("known")
    return [
        refusal(lambda: messages.send(42)),
        refusal(lambda: messages.send(None)),
        refusal(lambda: messages.send({"props": {}})),
        refusal(lambda: messages.send({"type": "text", "props": "str"})),
        refusal(lambda: messages.send({"type": "text", "message_id": 3})),
        refusal(lambda: messages.send({"type": "text", "message_id": known})),
        refusal(lambda: messages.replace(7, "x")),
        refusal(lambda: messages.replace(known, {"props": {}})),
        refusal(lambda: messages.replace("nope", "x")),
        refusal(lambda: messages.append("nope", "x")),
        refusal(lambda: messages.append(known, {"type": "text"})),
        refusal(lambda: messages.append(messages.send({"type": "card"}), "x")),
    ]


def test_what_is_wrong_is_refused_and_nothing_of_it_is_sent(harness: nr.Harness) -> None:
    run = harness.start(sends_what_is_wrong)
    said = run.result(30)
    clues = [
        *("not int", "not NoneType", "`type`", "`props`", "`message_id`", "sent before"),
        *("must be a text, not int", "`type`", "'nope' cannot be replaced"),
        *("'nope' cannot be extended", "not dict", "'card'"),
    ]
    for sentence, clue in zip(said, clues, strict=True):
        assert clue in sentence
        assert "not refused" not in sentence
    assert [(kind, id) for kind, id, _ in told(run)] == [("sent", "M1"), ("sent", "M2")]


@nr.step
async def forgets_arguments(_: Any, ctx: nr.Context) -> int:
    messages: Any = ctx.messages
    wrong = 0
    for call in (messages.send, lambda: messages.replace("M1"), lambda: messages.append("M1")):
        with contextlib.suppress(TypeError):
            call()
            wrong += 1
    return wrong


def test_a_missing_argument_is_a_type_error(harness: nr.Harness) -> None:
    assert harness.run(forgets_arguments) == 0


@nr.step
async def sends_then_waits(name: str, ctx: nr.Context) -> str:
    ctx.messages.send("there already")
    return await ctx.recv(gate(name), timeout=60)


def test_a_message_arrives_while_its_sender_still_works(harness: nr.Harness) -> None:
    name = unique("gate")
    run = harness.start(sends_then_waits, name, request=CUI)
    wait_until(run.messages)
    assert run.messages() == [
        {"type": "text", "props": {"content": "there already"}, "message_id": "M1"}
    ]
    assert run.status == "running"
    harness.channel(gate(name)).send("go")
    assert run.result(30) == "go"


@nr.step
async def sends_many(count: int, ctx: nr.Context) -> None:
    for n in range(count):
        ctx.messages.send(str(n))


def test_everything_sent_before_the_end_is_there_after_it(harness: nr.Harness) -> None:
    run = harness.start(sends_many, 1000, request=CUI)
    run.result(30)
    assert [frame["props"]["content"] for frame in run.messages()] == list(map(str, range(1000)))


def test_a_client_that_left_holds_nothing_up(harness: nr.Harness) -> None:
    run = harness.start(sends_many, 300)
    for event in run.events():
        assert event.seq == 1
        break
    run.result(30)
    assert len(run.shown()) == 300


# -- replacing and adding ------------------------------------------------------------------------


@nr.step
async def changes_its_messages(_: Any, ctx: nr.Context) -> list[str]:
    messages = ctx.messages
    first = messages.send("Step 1")
    second = messages.send({"type": "text", "props": {"content": "a", "status": "run"}})
    third = messages.send("so")
    return [
        messages.replace(first, "Done"),
        messages.replace(second, {"type": "text", "props": {"content": "b"}}),
        messages.append(third, " far"),
        messages.append(third, ", so good"),
        messages.replace(first, {"type": "image", "props": {"url": "https://x.test/i.png"}}),
    ]


def test_a_replacement_is_whole_and_added_text_goes_to_the_end(harness: nr.Harness) -> None:
    run = harness.start(changes_its_messages, request=CUI)
    assert run.result(30) == ["M1", "M2", "M3", "M3", "M1"]
    frames = run.messages()
    assert frames[3] == {
        "type": "text",
        "props": {"content": "Done"},
        "message_id": "M1",
        "delta": True,
        "delta_action": "replace",
    }
    assert frames[5]["props"] == {"content": " far"}
    assert frames[5]["delta"] is True
    assert frames[5]["delta_action"] == "append"
    assert [(each.type, each.props) for each in run.shown()] == [
        ("image", {"url": "https://x.test/i.png"}),
        ("text", {"content": "b"}),
        ("text", {"content": "so far, so good"}),
    ]
    chunks = run.messages("openai")
    assert [chunk["id"] for chunk in chunks] == ["M1", "M2", "M3", "M1", "M2", "M3", "M3", "M1"]
    texts = [chunk["choices"][0]["delta"]["content"] for chunk in chunks]
    assert texts[3] == "Done", "a replacement is one more chunk with the whole text"
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"


@nr.step
async def shows_all_formats(_: Any, ctx: nr.Context) -> list[str]:
    send = ctx.messages.send
    send({"type": "thinking", "props": {"content": "hm"}})
    send({"type": "loading", "props": {"message": "Searching"}})
    send({"type": "error", "props": {"message": "m", "code": "server_error"}})
    send({"type": "action", "props": {"name": "open"}})
    send({"type": "event", "props": {"event": "stream_end"}})
    return [refusal(lambda: send({"type": "image", "props": {"alt": "nothing"}}))]


def test_the_format_is_the_one_the_client_asked_for(harness: nr.Harness) -> None:
    run = harness.start(shows_all_formats)
    (said,) = run.result(30)
    assert "`url`" in said, "the standard format cannot show an image without an address"
    chunks = run.messages()
    assert len(chunks) == 3, "actions and the stream's end are not told"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:2]]
    assert [delta["reasoning_content"] for delta in deltas] == ["hm", "Searching"]
    assert chunks[2]["error"]["message"] == "m"
    assert chunks[2]["error"]["code"] == "server_error"
    assert [frame["type"] for frame in run.messages("cui-web")] == [
        *("thinking", "loading", "error", "action", "event")
    ]

    other = harness.start(shows_all_formats, request=CUI)
    assert "not refused" in other.result(30)[0]
    assert [frame["type"] for frame in other.messages()][-1] == "image"


# -- across contexts -----------------------------------------------------------------------------


@nr.step
async def shares_a_message(_: Any, ctx: nr.Context) -> Any:
    status, log = ctx.messages.send("working"), ctx.messages.send("log:")
    card = ctx.messages.send({"type": "card", "message_id": "card"})
    first = await ctx.spawn(goes_between, (status, log, card))
    later = ctx.messages.send("later")
    second = await ctx.spawn(knows, [first["own"], later])
    return first, second, refusal(lambda: ctx.messages.replace(first["own"], "x"))


@nr.step
async def goes_between(ids: tuple[str, str, str], ctx: nr.Context) -> dict[str, Any]:
    return await ctx.spawn(changes_what_is_above, ids)


@nr.step
async def changes_what_is_above(ids: tuple[str, str, str], ctx: nr.Context) -> dict[str, Any]:
    status, log, card = ids
    own = ctx.messages.send("mine")
    ctx.messages.replace(status, "done below")
    ctx.messages.append(log, " from below")
    return {
        "own": own,
        "id": ctx.id,
        "again": refusal(lambda: ctx.messages.send({"type": "text", "message_id": card})),
        "card": refusal(lambda: ctx.messages.append(card, "x")),
    }


@nr.step
async def knows(ids: list[str], ctx: nr.Context) -> list[bool]:
    def is_known(id: str) -> bool:
        return "cannot be replaced" not in refusal(lambda: ctx.messages.replace(id, "x"))

    return [is_known(id) for id in ids]


def test_children_change_what_those_above_had_sent_and_nothing_else(harness: nr.Harness) -> None:
    run = harness.start(shares_a_message)
    below, known, above = run.result(30)
    assert "sent before" in below["again"]
    assert "'card'" in below["card"]
    assert known == [False, True], "a sibling's message is not known, an earlier one above is"
    assert "cannot be replaced" in above, "nor does a parent know its children's"
    contents = {each.id: each.props.get("content") for each in run.shown()}
    assert contents["M1"] == "done below"
    assert contents["M2"] == "log: from below"
    assert contents["M3"] == "x"
    assert contents[f"M1{suffix(below['id'])}"] == "mine"
    senders = {each.id: each.context_id for each in run.shown()}
    assert senders["M1"] == run.id, "whoever changed it, it is its sender's"


# -- threads -------------------------------------------------------------------------------------


@nr.step
def sends_from_a_thread(count: int, ctx: nr.Context) -> list[str]:
    ids = [ctx.messages.send(f"{n}") for n in range(count)]
    ctx.messages.append(ids[-1], " last")
    ctx.messages.replace(ids[0], "first")
    return ids


@nr.step
def sends_from_many_threads(each: int, ctx: nr.Context) -> list[list[str]]:
    def work(worker: int) -> list[str]:
        return [ctx.messages.send(f"{worker}-{n}") for n in range(each)]

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(work, range(8)))


def test_threads_send_in_order(harness: nr.Harness) -> None:
    run = harness.start(sends_from_a_thread, 300)
    assert run.result(30) == [f"M{n}" for n in range(1, 301)]
    assert [id for _, id, _ in told(run)] == [f"M{n}" for n in range(1, 301)] + ["M300", "M1"]

    many = harness.start(sends_from_many_threads, 50)
    by_worker = many.result(30)
    events = told(many)
    assert [id for _, id, _ in events] == [f"M{n}" for n in range(1, 401)]
    place = {id: message["props"]["content"] for _, id, message in events}
    for worker, ids in enumerate(by_worker):
        assert [place[id] for id in ids] == [f"{worker}-{n}" for n in range(50)]
        assert [int(id[1:]) for id in ids] == sorted(int(id[1:]) for id in ids)


# -- the end -------------------------------------------------------------------------------------


@nr.step
async def says_goodbye(folder: str, ctx: nr.Context) -> None:
    id = ctx.messages.send("working")
    mark(folder, "there")
    try:
        await asyncio.sleep(60)
    finally:
        ctx.messages.replace(id, f"stopped: {ctx.abort_reason}")
        ctx.messages.send("bye")


def test_an_aborted_context_still_speaks_while_it_ends(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(says_goodbye, str(tmp_path))
    wait_for(tmp_path, "there")
    run.abort("enough")
    assert [each.props["content"] for each in run.shown()] == ["stopped: enough", "bye"]


@nr.step
async def leaves_a_thread_behind(folder: str, ctx: nr.Context) -> str:
    ctx.messages.send("in time")
    node = ctx.trace.add(None, label="node")

    def late() -> None:
        wait_for(folder, "ended", timeout=30.0)
        try:
            said = ctx.messages.send("too late"), ctx.messages.append("M1", "!")
            ctx.trace.info("too late")
            node.set_output(1).complete(2)
            ctx.trace.add(None, label="too late")
            ctx.release()
            mark(folder, "late", repr(said))
        except BaseException as error:
            mark(folder, "late", repr(error))

    threading.Thread(target=late, daemon=True).start()
    return "over"


def test_nothing_is_recorded_after_the_end_and_nothing_breaks(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(leaves_a_thread_behind, str(tmp_path))
    assert run.result(30) == "over"
    before = list(run.events())
    assert before[-1].type == "run.ended"
    mark(tmp_path, "ended")
    wait_for(tmp_path, "late")
    assert text_of(tmp_path, "late") == "('M2', 'M1')"
    harness.run(sends_many, 1)  # whatever was on its way in that process has arrived now
    assert list(run.events()) == before
    assert len(run.messages()) == 1
    assert [node.label for node in run.trace()] == ["node"]


@nr.step
async def ignores_its_abort(folder: str, ctx: nr.Context) -> None:
    def late() -> None:
        wait_for(folder, "over", timeout=30.0)
        mark(folder, "said", outcome(lambda: ctx.messages.send("too late")))

    threading.Thread(target=late, daemon=True).start()
    mark(folder, "there")
    await asyncio.sleep(60)


def outcome(call: Callable[[], Any]) -> str:
    try:
        return repr(call())
    except nr.Cancelled as cut:
        return f"cancelled: {cut.reason}"


def test_a_message_of_an_aborted_context_that_is_over_is_refused_with_the_reason(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(ignores_its_abort, str(tmp_path))
    wait_for(tmp_path, "there")
    run.abort("enough")
    mark(tmp_path, "over")
    wait_for(tmp_path, "said")
    assert text_of(tmp_path, "said") == "cancelled: enough"
    assert run.messages() == []


# -- release -------------------------------------------------------------------------------------


@nr.step
async def releases_and_fails(_: Any, ctx: nr.Context) -> None:
    try:
        ctx.messages.send("before")
        ctx.trace.add(None, label="before")
        raise ValueError("Simulated error")
    finally:
        ctx.release()
        ctx.release()
        ctx.messages.send("after")
        ctx.trace.info("after")


def test_release_is_optional_repeatable_and_hides_no_error(harness: nr.Harness) -> None:
    run = harness.start(releases_and_fails)
    with pytest.raises(nr.StepFailed) as failed:
        run.result(30)
    assert "Simulated error" in str(failed.value)
    assert [each.props["content"] for each in run.shown()] == ["before", "after"]
    (node,) = run.trace()
    assert [line.message for line in node.logs] == ["after"]
    assert node.status == "failed"
    assert "Simulated error" in (node.error or "")


@nr.step
async def releases_below(_: Any, ctx: nr.Context) -> str:
    ctx.trace.add(None, label="above")
    await ctx.spawn(only_releases)
    ctx.trace.add(None, label="goes on")
    return ctx.messages.send("goes on")


@nr.step
async def only_releases(_: Any, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="below")
    ctx.release()


def test_a_child_s_release_is_its_own(harness: nr.Harness) -> None:
    run = harness.start(releases_below)
    assert run.result(30) == "M1"
    assert [node.label for node in run.trace()] == ["above", "below", "goes on"]


@nr.step
async def releases_while_others_write(folder: str, ctx: nr.Context) -> int:
    ctx.trace.add(None, label="busy")
    lines = 0

    async def writes() -> None:
        nonlocal lines
        while not marked(folder, "stop"):
            ctx.trace.info("line")
            ctx.messages.send("line")
            lines += 1
            await asyncio.sleep(0.001)

    writers = [asyncio.ensure_future(writes()) for _ in range(20)]
    await asyncio.sleep(0.01)
    ctx.release()
    while lines < 200:
        await asyncio.sleep(0.001)
    mark(folder, "stop")
    await asyncio.gather(*writers)
    return lines


def test_release_while_others_write_loses_nothing(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(releases_while_others_write, str(tmp_path))
    lines = run.result(30)
    assert len(run.shown()) == len(run.trace().nodes[0].logs) == lines >= 200


@nr.step
async def writes_until_aborted(folder: str, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="busy")
    mark(folder, "there")
    while True:
        ctx.trace.info("line")
        ctx.release()
        await asyncio.sleep(0)


def test_abort_and_release_at_once_end_soon(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(writes_until_aborted, str(tmp_path))
    wait_for(tmp_path, "there")
    with ThreadPoolExecutor(4) as threads:
        reports = list(threads.map(lambda _: run.abort("enough"), range(4)))
    assert all(report.elapsed < 5 for report in reports)
    (node,) = run.trace()
    assert (node.status, node.error) == ("failed", "enough")
