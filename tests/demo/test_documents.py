from __future__ import annotations

import os
from pathlib import Path

import pytest

from noetic_ray.demo.documents import CHUNK, MAX_BYTES, Document, load, samples
from noetic_ray.demo.model import LONG
from noetic_ray.demo.words import flat


def names(paths: list[Path]) -> tuple[list[str], dict[str, str]]:
    """What is loaded of paths: file names, and problems by file name."""
    documents, problems = load([str(path) for path in paths])
    found = [os.path.basename(document.name) for document in documents]
    return found, {os.path.basename(path): why for path, why in problems}


def test_the_samples_are_four_and_one_needs_a_helper() -> None:
    lengths = [len(document.chunks()) for document in samples()]
    assert len(lengths) == 4
    assert [length > LONG for length in lengths].count(True) == 1


def test_a_folder_is_walked_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "sub/a.md", ".hidden", ".git/config", "__pycache__/x.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("words")
    assert names([tmp_path]) == (["b.txt", "a.md"], {})


def test_what_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("good words")
    (tmp_path / "binary.bin").write_bytes(b"\x7fELF\0\1")
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    found, problems = names([tmp_path, tmp_path / "missing.txt"])
    assert found == ["good.txt"]
    assert problems == {
        "binary.bin": "a binary file, not text",
        "empty.txt": "empty",
        "latin.txt": "not UTF-8 text (byte 3)",
        "missing.txt": "no such file or directory",
    }


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert names([tmp_path / "pipe"]) == ([], {"pipe": "not a regular file"})


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert names([path])[1] == {"large.txt": "larger than 5 MB"}


def test_a_folder_without_files_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert names([tmp_path / "nothing"]) == ([], {"nothing": "no files in this folder"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("words")
    path.chmod(0)
    assert names([path])[1] == {"secret.txt": "permission denied"}


def test_a_file_given_twice_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("words")
    assert names([path, tmp_path, path])[0] == ["a.txt"]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfwords")
    assert load([str(path)])[0][0].text == "words"


@pytest.mark.parametrize(
    "text",
    [
        "One sentence. " * 300,
        "a line without an end\n" * 200,
        "word " * 1000,
        "x" * 5000,
        "A paragraph.\r\n\r\nAnother one.\r\n\r\n" * 100,
        *(document.text for document in samples()),
    ],
)
def test_chunks_hold_the_whole_text_and_none_is_too_long(text: str) -> None:
    chunks = Document("d", text).chunks()
    assert all(0 < len(chunk) <= CHUNK + 2 for chunk in chunks)
    assert flat("".join(chunks)).replace(" ", "") == flat(text).replace(" ", "")


def test_a_long_paragraph_is_cut_after_a_sentence() -> None:
    chunks = Document("d", "This is one sentence of many. " * 100).chunks()
    assert len(chunks) > 2
    assert all(chunk.rstrip().endswith("many.") for chunk in chunks)
