from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noetic_ray.models.sse import SseEvent, SseParser

STREAM = (
    "\ufeff: hello\n\n"
    'data: {"t":"日本🧑‍🚀é"}\n\n'
    "retry: 1000\n\n"
    "id: 7\n: comment after id\n\n"
    "event: alone\n\n"
    "data:\n\n"
    "data\n\n"
    'event: named\ndata:{"n":1}\n\n'
    'data: {"a":\ndata: 1}\n\n'
    'data: {"u":"a\u2028b\u2029c\u0085d\x0be\x1cf"}\n\n'
    "data: [DONE]\n\n"
).encode()

EVENTS = [
    SseEvent(b"", '{"t":"日本🧑‍🚀é"}'.encode()),
    SseEvent(b"named", b'{"n":1}'),
    SseEvent(b"", b'{"a":\n1}'),
    SseEvent(b"", '{"u":"a\u2028b\u2029c\u0085d\x0be\x1cf"}'.encode()),
    SseEvent(b"", b"[DONE]"),
]


def parse(*chunks: bytes) -> list[SseEvent]:
    parser = SseParser()
    found = [event for chunk in chunks for event in parser.feed(chunk)]
    return found + parser.finish()


def test_a_whole_stream_in_one_chunk() -> None:
    assert parse(STREAM) == EVENTS


def test_one_byte_per_chunk() -> None:
    assert parse(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == EVENTS


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending(ending: bytes) -> None:
    assert parse(STREAM.replace(b"\n", ending)) == EVENTS


def test_mixed_line_endings() -> None:
    mixed = STREAM.replace(b"\n\n", b"\r\n\n").replace(b"{\n", b"{\r")
    assert parse(mixed) == EVENTS


def test_crlf_cut_between_its_two_bytes() -> None:
    assert parse(b"data: 1\r", b"\ndata: 2\r", b"", b"\n\r", b"\n") == [SseEvent(b"", b"1\n2")]


@given(
    cuts=st.lists(st.integers(0, len(STREAM) * 2), max_size=30),
    ending=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_cutting_gives_the_same_events(cuts: list[int], ending: bytes) -> None:
    stream = STREAM.replace(b"\n", ending)
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert parse(*chunks) == EVENTS


@given(
    lines=st.lists(
        st.sampled_from(
            ["data: x", "data:y", "data:", ": note", "event: e", "id: 3", "retry: 1", "other", ""]
        ),
        max_size=20,
    ),
    endings=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=20, max_size=20),
    size=st.integers(1, 7),
)
def test_control_lines_never_change_the_data(
    lines: list[str], endings: list[str], size: int
) -> None:
    stream = "".join(line + end for line, end in zip(lines, endings, strict=False)).encode()
    # A CR before an empty line that ends with LF is one line end, not two.
    assume(
        all(
            (e, n, f) != ("\r", "", "\n")
            for e, n, f in zip(endings, lines[1:], endings[1:], strict=False)
        )
    )
    chunks = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert parse(*chunks) == parse("".join(line + "\n" for line in lines).encode())


def test_a_last_event_without_its_blank_line_counts() -> None:
    assert parse(b"data: 1\n\ndata: [DONE]") == [SseEvent(b"", b"1"), SseEvent(b"", b"[DONE]")]


def test_the_name_of_an_event_without_data_does_not_stick() -> None:
    assert parse(b"event: error\n\ndata: 1\n\n") == [SseEvent(b"", b"1")]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert parse(b"data:  x \n\n") == [SseEvent(b"", b" x ")]


def test_a_long_line_in_many_chunks() -> None:
    chunk = b"x" * 1000
    assert parse(b"data: ", *[chunk] * 500, b"\n\n") == [SseEvent(b"", chunk * 500)]
