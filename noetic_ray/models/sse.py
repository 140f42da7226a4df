"""Server-sent events: bytes in, events out, whatever way the bytes were cut.

Lines end at LF, CR or CRLF and nowhere else: U+2028, U+0085 and their kin are ordinary text. The
data of an event stays bytes until it is complete, so a character is never decoded in halves.
"""

from __future__ import annotations

from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"
_CR = 0x0D


class SseEvent(NamedTuple):
    """One event; `name` is empty when the stream named none."""

    name: bytes
    data: bytes


class SseParser:
    """An incremental parser of one stream.

    Comments, ids, retry hints and events without data give nothing.
    """

    __slots__ = ("_after_cr", "_data", "_name", "_pieces", "_started")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take the next bytes and return the events they complete."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\n" not in chunk and b"\r" not in chunk:
            if chunk:
                self._pieces.append(chunk)
            return []
        if self._pieces:
            chunk = b"".join((*self._pieces, chunk))
            self._pieces.clear()
        lines = chunk.splitlines()
        last = chunk[-1]
        if last == _CR:
            self._after_cr = True
        elif last != 0x0A:
            self._pieces.append(lines.pop())
        return self._take(lines)

    def finish(self) -> list[SseEvent]:
        """End of the stream: a last event that lacks its blank line still counts."""
        lines = [b"".join(self._pieces), b""] if self._pieces else [b""]
        self._pieces.clear()
        return self._take(lines)

    def _take(self, lines: list[bytes]) -> list[SseEvent]:
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[SseEvent] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if data:
                    joined = data[0] if len(data) == 1 else b"\n".join(data)
                    if joined.strip():
                        events.append(SseEvent(self._name, joined))
                    data.clear()
                self._name = b""
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
        return events
