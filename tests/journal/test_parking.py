from __future__ import annotations

import asyncio

from noetic_ray.journal.parking import Parking

from .conftest import until


async def _parked(parking: Parking, count: int) -> None:
    await until(lambda: len(parking) == count)


async def test_a_wake_reaches_everybody_with_that_key_and_nobody_else() -> None:
    parking = Parking()
    same = [asyncio.create_task(parking.wait("a", 60)) for _ in range(3)]
    other = asyncio.create_task(parking.wait("b", 60))
    await _parked(parking, 4)
    parking.wake("a")
    assert await asyncio.gather(*same) == [True] * 3
    assert not other.done()
    assert "b" in parking
    assert "a" not in parking
    parking.close()
    assert await other is False
    assert len(parking) == 0


async def test_time_runs_out() -> None:
    parking = Parking()
    assert await parking.wait("a", 0.001) is False
    assert len(parking) == 0
    parking.wake("a")


async def test_a_token_releases_one_waiter() -> None:
    parking = Parking()
    one = asyncio.create_task(parking.wait("a", 60, token="1"))
    two = asyncio.create_task(parking.wait("a", 60, token="2"))
    await _parked(parking, 2)
    parking.release("1")
    parking.release("unknown")
    assert await one is False
    assert not two.done()
    parking.wake("a")
    assert await two is True
    parking.release("2")


async def test_a_cancelled_waiter_leaves_nothing() -> None:
    parking = Parking()
    task = asyncio.create_task(parking.wait("a", 60, token="1"))
    await _parked(parking, 1)
    task.cancel()
    await asyncio.wait([task])
    assert len(parking) == 0
    assert "a" not in parking
    assert parking._tokens == {}


async def test_a_waiter_may_wait_again_when_woken() -> None:
    parking = Parking()

    async def twice() -> int:
        return await parking.wait("a", 60) + await parking.wait("a", 60)

    task = asyncio.create_task(twice())
    await _parked(parking, 1)
    parking.wake("a")
    parking.wake("a")
    await asyncio.sleep(0)
    await _parked(parking, 1)
    parking.wake("a")
    assert await task == 2
