from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from noetic_ray.models.retry import asked_wait, backoff, retried_status, spread

NOW = 1_800_000_000.0


def date(seconds: float) -> str:
    moment = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=seconds)
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"Retry-After": " 2 "}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": date(2)}, 2.0),
        ({"retry-after": date(-30)}, None),
        ({"retry-after": "Wed, 99 Foo 2030 00:00:00 GMT"}, None),
        ({"retry-after-ms": "750", "retry-after": "60"}, 0.75),
        ({"retry-after-ms": "0", "retry-after": "60"}, None),
        ({"retry-after-ms": "soon", "retry-after": "60"}, 60.0),
        ({"x-ratelimit-reset-requests": "1m30s"}, 90.0),
        ({"x-ratelimit-reset-requests": "20ms"}, 0.02),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "1.5s", "x-ratelimit-reset-requests": "1s"}, 1.5),
        ({"x-ratelimit-reset-tokens": "7"}, 7.0),
        ({"x-ratelimit-reset-tokens": "7 bananas"}, None),
        ({"x-ratelimit-reset-tokens": "1800000060"}, None),
        ({"x-ratelimit-reset-tokens": "9s", "x-ratelimit-remaining-tokens": "500"}, None),
        ({"x-ratelimit-reset-tokens": "9s", "x-ratelimit-remaining-tokens": "0"}, 9.0),
        ({"x-ratelimit-reset-tokens": "9s", "retry-after": "2"}, 2.0),
    ],
)
def test_what_a_provider_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_wait(httpx.Headers(headers), now=NOW) == pytest.approx(seconds)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_statuses_worth_another_attempt(status: int) -> None:
    assert retried_status(status)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422, 499])
def test_statuses_that_will_not_change(status: int) -> None:
    assert not retried_status(status)


@pytest.mark.parametrize(("attempt", "low", "high"), [(1, 0.5, 1), (3, 2, 4), (9, 15, 30)])
def test_backoff_doubles_with_jitter_between_its_bounds(
    attempt: int, low: float, high: float
) -> None:
    waits = [backoff(attempt) for _ in range(200)]
    assert low <= min(waits) < max(waits) <= high
    assert len(set(waits)) > 100


def test_backoff_of_absurd_attempts_stays_bounded() -> None:
    assert backoff(100_000) <= 30.0


def test_an_asked_wait_is_kept_within_a_tenth() -> None:
    waits = [spread(10.0) for _ in range(100)]
    assert min(waits) >= 10.0
    assert max(waits) <= 11.0
