"""JSON that can always be written, and reads back as the same JSON.

The canonical form of a value is what ``from_json(to_json_bytes(value))`` gives. Ordinary JSON
values are untouched. The others:

- a lone surrogate in text becomes U+FFFD, two halves of a pair become their character;
- NaN, Infinity and -Infinity become the texts ``"NaN"``, ``"Infinity"``, ``"-Infinity"``;
- an integer of more than 4,300 digits (which Python refuses to parse) becomes its decimal digits
  as text;
- bytes become URL-safe base64 text, dates and times ISO 8601 text, Decimal and UUID their text;
- models, dataclasses and mappings become objects, tuples and sets arrays, keys text;
- anything else becomes its ``repr`` without addresses; a value inside itself becomes
  ``"<circular>"``, and what is nested too deep to be written (over 180 levels) ``"<too deep>"``.

The form is stable: the canonical form of a canonical value is that value.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json as _read
from pydantic_core import to_json as _write
from pydantic_core import to_jsonable_python

__all__ = ["canonical", "clean_text", "from_json", "to_json_bytes"]

_MAX_DEPTH = 180
_MAX_REPR = 2_000
_MAX_DIGITS = 4_300
#: A smaller number has fewer bits than any number of 4,300 digits.
_SAFE_BITS = 14_000
_CHUNK_DIGITS = 4_000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
#: Every run of more than 4,300 digits shows four times in a row in a sample of each 1,024th byte.
_SAMPLE = 1_024
_SAMPLED_RUN = re.compile(rb"[0-9]{4}")
_LONG_RUN = re.compile(rb"[0-9]{4301}")


def to_json_bytes(value: Any) -> bytes:
    """Compact UTF-8 JSON of any value in canonical form. Never raises."""
    try:
        written = _write(value, bytes_mode="base64", inf_nan_mode="strings")
    except Exception:
        return _write_carefully(value)
    if len(written) > _MAX_DIGITS and _has_long_number(written):
        return _write_carefully(value)
    return written


def from_json(data: bytes | bytearray | str) -> Any:
    """Read JSON, ours or foreign. Raises ValueError when it is not JSON."""
    try:
        return _read(data)
    except ValueError:
        return canonical(json.loads(data, parse_int=_parse_int))


def canonical(value: Any) -> Any:
    """The canonical form of a value, sharing nothing mutable with it. Never raises."""
    written = to_json_bytes(value)
    try:
        return _read(written)
    except ValueError:
        return json.loads(written)


def clean_text(text: str) -> str:
    """Text that UTF-8 can hold; the same object when it already can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _write_carefully(value: Any) -> bytes:
    return _write(_careful(value, 0, ()), bytes_mode="base64", inf_nan_mode="strings")


def _has_long_number(written: bytes) -> bool:
    return bool(_SAMPLED_RUN.search(written[::_SAMPLE]) and _LONG_RUN.search(written))


def _parse_int(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def _whole(number: int) -> int | str:
    if number.bit_length() < _SAFE_BITS:
        return int(number)
    text = _digits(abs(number))
    if len(text) <= _MAX_DIGITS:
        return int(number)
    return f"-{text}" if number < 0 else text


def _digits(number: int) -> str:
    """Decimal digits of a number too long for str(), which would refuse it."""
    base = 10**_CHUNK_DIGITS
    chunks: list[str] = []
    while number >= base:
        number, low = divmod(number, base)
        chunks.append(str(low).zfill(_CHUNK_DIGITS))
    chunks.append(str(number))
    return "".join(reversed(chunks))


def _careful(value: Any, depth: int, above: tuple[int, ...]) -> Any:
    """Rebuild a value from parts that are known to be writable."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, int):
        return _whole(value)
    parts = _parts(value)
    if parts is None:
        return _leaf(value)
    if id(value) in above:
        return "<circular>"
    if depth >= _MAX_DEPTH:
        return "<too deep>"
    inside = (*above, id(value))
    if isinstance(parts, Mapping):
        return {_key(k): _careful(v, depth + 1, inside) for k, v in parts.items()}
    return [_careful(each, depth + 1, inside) for each in parts]


def _parts(value: Any) -> Mapping[Any, Any] | Iterable[Any] | None:
    """The members of a container; None for what counts as one value."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, BaseModel):
        return _model_parts(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    return None


def _model_parts(model: BaseModel) -> dict[str, Any]:
    """Each field as the model writes it, so that its exclusions hold in both ways of writing."""
    try:
        return model.model_dump(mode="python")
    except Exception:
        return dict(model)


def _key(key: Any) -> str:
    try:
        written = _write({key: 0}, bytes_mode="base64", inf_nan_mode="strings")
        return str(next(iter(_read(written))))
    except Exception:
        return clean_text(key) if isinstance(key, str) else _repr(key)


def _leaf(value: Any) -> Any:
    try:
        plain = to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings")
        written = _write(plain, inf_nan_mode="strings")
        if not _has_long_number(written):
            return _read(written)
    except Exception:
        return _repr(value)
    return _repr(value)


def _repr(value: Any) -> str:
    try:
        return clean_text(_ADDRESS.sub("", repr(value))[:_MAX_REPR])
    except Exception:
        return f"<{type(value).__module__}.{type(value).__qualname__}>"
