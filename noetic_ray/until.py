"""When a loop stops. Each factory gives a predicate; combine them with `|` (any) and `&` (all).

Predicates are immutable and picklable, except that `converged` remembers the last output: a loop
works with `predicate.fresh()`, so what one run remembers is never seen by another.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from noetic_ray.canonical import to_json_bytes
from noetic_ray.errors import Cancelled, ConfigError
from noetic_ray.signatures import is_async

if TYPE_CHECKING:
    from noetic_ray.usage import StepMeta, TokenUsage

__all__ = [
    "Predicate",
    "RunSync",
    "Snapshot",
    "Verdict",
    "converged",
    "custom",
    "max_cost",
    "max_duration",
    "max_steps",
    "never",
    "no_tool_calls",
    "output_contains",
    "output_equals",
    "verified",
]

#: Runs a synchronous function somewhere it may block, such as a thread.
RunSync: TypeAlias = Callable[..., Awaitable[Any]]
Embed: TypeAlias = Callable[[str], Sequence[float] | Awaitable[Sequence[float]]]
Judgement: TypeAlias = tuple[bool, str | None] | bool
_MAX_REASON = 2_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A loop after an iteration.

    `step_count` counts the loop's successful iterations and `elapsed` its seconds; `tokens` and
    `cost` (dollars) are the whole context's. `history` holds the newest outputs, `last_text` is
    the text of the last assistant message.
    """

    step_count: int
    tokens: TokenUsage
    elapsed: float
    cost: float
    last_output: Any
    last_text: str
    history: Sequence[Any]
    depth: int
    last_step_meta: StepMeta | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to stop, and why; `feedback` is advice for the next iteration."""

    stop: bool
    reason: str | None = None
    feedback: str | None = None


class Predicate(ABC):
    """Decides after each iteration. Made by the factories of this module."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """How reasons call it."""
        return type(self).__name__.strip("_").lower()

    async def check(self, snapshot: Snapshot, run_sync: RunSync | None = None) -> Verdict:
        """Judge a snapshot.

        A predicate whose code raises stops the loop, with the error as the reason; only an abort
        passes through. `run_sync` runs the user's synchronous functions; without it they run here.
        """
        try:
            return await self._judge(snapshot, run_sync)
        except Cancelled:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"[:_MAX_REASON]
            return Verdict(True, f"the predicate {self.name} failed: {said}")

    @abstractmethod
    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict: ...

    def fresh(self) -> Predicate:
        """A predicate of the same kind that has seen nothing yet."""
        return self

    def skipped(self, snapshot: Snapshot) -> None:  # noqa: B027 - most need nothing then
        """Told in place of `check` when another predicate already decided."""

    def __or__(self, other: Predicate) -> Predicate:
        return _joined(_AnyOf, self, other)

    def __and__(self, other: Predicate) -> Predicate:
        return _joined(_AllOf, self, other)


def _joined(kind: type[_AnyOf] | type[_AllOf], one: Predicate, other: object) -> Predicate:
    if not isinstance(other, Predicate):
        return NotImplemented  # type: ignore[no-any-return]
    parts: tuple[Predicate, ...] = ()
    for each in (one, other):
        parts += each.parts if isinstance(each, kind) else (each,)
    return kind(parts)


@dataclass(frozen=True, slots=True)
class _AnyOf(Predicate):
    """Stops with the first that says stop. Of none: never."""

    parts: tuple[Predicate, ...] = ()

    @property
    def name(self) -> str:
        return f"({' | '.join(each.name for each in self.parts)})"

    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        return await _first(True, self.parts, snapshot, run_sync)

    def fresh(self) -> Predicate:
        return _AnyOf(tuple(each.fresh() for each in self.parts))

    def skipped(self, snapshot: Snapshot) -> None:
        for each in self.parts:
            each.skipped(snapshot)


@dataclass(frozen=True, slots=True)
class _AllOf(Predicate):
    """Stops when every part says stop. Of none: at once."""

    parts: tuple[Predicate, ...] = ()

    @property
    def name(self) -> str:
        return f"({' & '.join(each.name for each in self.parts)})"

    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        return await _first(False, self.parts, snapshot, run_sync)

    def fresh(self) -> Predicate:
        return _AllOf(tuple(each.fresh() for each in self.parts))

    def skipped(self, snapshot: Snapshot) -> None:
        for each in self.parts:
            each.skipped(snapshot)


async def _first(
    decisive: bool, parts: Sequence[Predicate], snapshot: Snapshot, run_sync: RunSync | None
) -> Verdict:
    """Ask in order until one verdict's `stop` is `decisive`; otherwise it is the opposite."""
    verdicts: list[Verdict] = []
    for place, each in enumerate(parts):
        verdict = await each.check(snapshot, run_sync)
        verdicts.append(verdict)
        if verdict.stop is decisive:
            for rest in parts[place + 1 :]:
                rest.skipped(snapshot)
            return verdict
    reasons = [each.reason for each in verdicts if each.reason]
    advice = [each.feedback for each in verdicts if each.feedback]
    return Verdict(not decisive, "; ".join(reasons) or None, "\n".join(advice) or None)


async def _call(fn: Callable[..., Any], argument: Any, run_sync: RunSync | None) -> Any:
    if run_sync is None or is_async(fn):
        given = fn(argument)
    else:
        given = await run_sync(fn, argument)
    return await given if inspect.isawaitable(given) else given


def _text(output: Any) -> str:
    return output if isinstance(output, str) else to_json_bytes(output).decode()


def _output_text(snapshot: Snapshot) -> str:
    """The output when it is text, else the last assistant text, else the output as JSON."""
    if isinstance(snapshot.last_output, str):
        return snapshot.last_output
    return snapshot.last_text or _text(snapshot.last_output)


@dataclass(frozen=True, slots=True)
class _Never(Predicate):
    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        return Verdict(False)


def never() -> Predicate:
    """Never stop: the loop ends by `max_iterations`, `ctx.complete` or an abort."""
    return _Never()


@dataclass(frozen=True, slots=True)
class _NoToolCalls(Predicate):
    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        meta = snapshot.last_step_meta
        last = meta.rounds[-1] if meta and meta.rounds else meta
        if snapshot.step_count < 1 or (last and last.tool_calls):
            return Verdict(False)
        return Verdict(True, "the last response called no tool")

    @property
    def name(self) -> str:
        return "no_tool_calls"


def no_tool_calls() -> Predicate:
    """Stop when the last response of the last model step called no tool."""
    return _NoToolCalls()


@dataclass(frozen=True, slots=True)
class _Limit(Predicate):
    what: str
    limit: float

    @property
    def name(self) -> str:
        return self.what

    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        reached = {
            "max_steps": snapshot.step_count,
            "max_cost": snapshot.cost,
            "max_duration": snapshot.elapsed,
        }[self.what]
        if reached < self.limit:
            return Verdict(False)
        return Verdict(True, f"{self.what}: {reached:g} of {self.limit:g}")


def _limit(what: str, value: object, unit: str) -> Predicate:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not number or not math.isfinite(value) or value < 0:
        raise ConfigError(
            f"INVALID_{what.upper()}", f"until.{what}({value!r})", f"Give {unit}, 0 or more."
        )
    return _Limit(what, value)


def max_steps(n: int) -> Predicate:
    """Stop after `n` successful iterations, at least 1."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(
            "INVALID_MAX_STEPS", f"until.max_steps({n!r})", "Give a whole number, at least 1."
        )
    return _Limit("max_steps", n)


def max_cost(usd: float) -> Predicate:
    """Stop when the context has cost `usd` dollars or more, its children included."""
    return _limit("max_cost", usd, "dollars")


def max_duration(seconds: float) -> Predicate:
    """Stop when the loop has run that long; an iteration is never cut short."""
    return _limit("max_duration", seconds, "seconds")


@dataclass(frozen=True, slots=True)
class _Verified(Predicate):
    fn: Callable[[Any], Judgement | Awaitable[Judgement]]

    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        judged = await _call(self.fn, snapshot.last_output, run_sync)
        if isinstance(judged, bool):
            passed, feedback = judged, None
        else:
            passed, feedback = judged
        return Verdict(bool(passed), "verified" if passed else None, feedback)


def verified(fn: Callable[[Any], Judgement | Awaitable[Judgement]]) -> Predicate:
    """Stop when `fn(output)` returns (True, feedback) or True; sync or async.

    Feedback of an output that did not pass reaches `prepare_next` in the verdict.
    """
    _check_function("verified", fn)
    return _Verified(fn)


@dataclass(frozen=True, slots=True)
class _Custom(Predicate):
    fn: Callable[[Snapshot], Verdict | bool | Awaitable[Verdict | bool]]

    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        given = await _call(self.fn, snapshot, run_sync)
        if isinstance(given, Verdict):
            return given
        if isinstance(given, bool):
            return Verdict(given, "custom" if given else None)
        raise TypeError(f"it returned {given!r}, not a Verdict or a bool")


def custom(fn: Callable[[Snapshot], Verdict | bool | Awaitable[Verdict | bool]]) -> Predicate:
    """Stop when `fn(snapshot)` says so; sync or async."""
    _check_function("custom", fn)
    return _Custom(fn)


def _check_function(what: str, fn: object) -> None:
    if not callable(fn):
        raise ConfigError(
            "INVALID_CALLBACK", f"until.{what}({fn!r})", "Give a function of one argument."
        )


@dataclass(frozen=True, slots=True)
class _OutputContains(Predicate):
    text: str

    @property
    def name(self) -> str:
        return "output_contains"

    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        found = self.text in _output_text(snapshot)
        return Verdict(found, f"the output contains {self.text!r}" if found else None)


@dataclass(frozen=True, slots=True)
class _OutputEquals(Predicate):
    text: str

    @property
    def name(self) -> str:
        return "output_equals"

    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        equal = self.text == _output_text(snapshot)
        return Verdict(equal, f"the output is {self.text!r}" if equal else None)


def output_contains(text: str) -> Predicate:
    """Stop when the output has `text` in it, case and all.

    An output that is no text is judged by the last assistant message, or else by its JSON.
    """
    if not isinstance(text, str) or not text:
        raise ConfigError(
            "INVALID_TEXT", f"until.output_contains({text!r})", "Give a text that is not empty."
        )
    return _OutputContains(text)


def output_equals(text: str) -> Predicate:
    """Stop when the output is exactly `text`; other outputs as in `output_contains`."""
    if not isinstance(text, str):
        raise ConfigError("INVALID_TEXT", f"until.output_equals({text!r})", "Give a text.")
    return _OutputEquals(text)


@dataclass(slots=True)
class _Converged(Predicate):
    threshold: float
    embed: Embed | None
    _last: list[str] = field(default_factory=list)

    async def _judge(self, snapshot: Snapshot, run_sync: RunSync | None) -> Verdict:
        before = self._last
        self._last = now = [_text(snapshot.last_output)]
        if not before:
            return Verdict(False)
        score = await self._similarity(before[0], now[0], run_sync)
        if score < self.threshold:
            return Verdict(False)
        return Verdict(True, f"converged: similarity {score:.4g} of {self.threshold:g}")

    async def _similarity(self, one: str, other: str, run_sync: RunSync | None) -> float:
        if one == other or self.embed is None:
            return _word_similarity(one, other)
        vectors = [await _call(self.embed, text, run_sync) for text in (one, other)]
        return cosine(*vectors)

    def fresh(self) -> Predicate:
        return _Converged(self.threshold, self.embed)

    def skipped(self, snapshot: Snapshot) -> None:
        self._last = [_text(snapshot.last_output)]


def _word_similarity(one: str, other: str) -> float:
    if one == other:
        return 1.0
    pairs = [Counter(_word_pairs(text)) for text in (one, other)]
    shared = (pairs[0] & pairs[1]).total()
    return min(2 * shared / (pairs[0].total() + pairs[1].total()), math.nextafter(1.0, 0.0))


def _word_pairs(text: str) -> list[tuple[str, str]]:
    words = ["", *text.split(), ""]
    return list(pairwise(words))


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """How far two vectors point the same way, -1 to 1; 0 for one without a direction."""
    if len(one) != len(other):
        raise ValueError(f"embed gave vectors of {len(one)} and {len(other)} numbers")
    lengths = math.hypot(*one) * math.hypot(*other)
    if lengths == 0:
        return 0.0
    # Vectors that point the same way come out a rounding error short of 1.
    return round(sum(a * b for a, b in zip(one, other, strict=True)) / lengths, 9)


def converged(threshold: float = 1.0, embed: Embed | None = None) -> Predicate:
    """Stop when two outputs in a row are at least `threshold` (0 to 1) alike.

    Equal texts are 1. Otherwise, without `embed`, outputs are compared by their adjacent word
    pairs, the start and the end counting as words: 2 x shared pairs / all pairs of both, below 1.
    With `embed(text) -> numbers`, sync or async, by the cosine of the two vectors. An output that
    is no text is compared as JSON.
    """
    number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 1:
        raise ConfigError(
            "INVALID_THRESHOLD", f"until.converged({threshold!r})", "Give a number from 0 to 1."
        )
    if embed is not None:
        _check_function("converged", embed)
    return _Converged(threshold, embed)
