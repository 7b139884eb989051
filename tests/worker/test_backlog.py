"""The backlog hands out what was claimed: the urgent first, a type at its limit last."""

import asyncio
from typing import Any, cast

import pytest

from holdfast.core.registry import JobType, job_type_of
from holdfast.core.retry import Retry
from holdfast.worker.attempt import Attempt, Backlog, EffectivePolicy
from holdfast.worker.capacity import note_call_sizes
from holdfast.worker.job import Job
from holdfast.worker.options import TypePolicies
from tests.support.until import PATIENCE_S
from tests.worker.test_plain_claims import found


async def handler(job: Job[Any]) -> None: ...


async def batch_handler(jobs: list[Job[Any]]) -> None: ...


PLAIN = job_type_of(handler, "plain", Job, {})
LIMITED = job_type_of(handler, "limited", Job, {})
BATCH = job_type_of(batch_handler, "batch", Job, {"batch": 3})
BATCH_BY_KEY = job_type_of(batch_handler, "batch by key", Job, {"batch": 3, "batch_by": "tenant"})
BATCH_AT_A_TIME = job_type_of(batch_handler, "batch at a time", Job, {"batch": 3})


def attempt(number: int, type: JobType = PLAIN, priority: int = 5, crashes: int = 0) -> Attempt:
    claimed = found(number, priority, type.name)
    claimed.crashes = crashes
    return Attempt(claimed, type, EffectivePolicy(60_000, 180_000, Retry(), None), 0.0)


class Limits(dict[str, int]):
    """Stands in for the policies of a worker's types."""

    limit = dict.get


@pytest.fixture
def limits() -> Limits:
    """How many calls of a type may run at once."""
    return Limits({"limited": 2, "batch at a time": 1})


@pytest.fixture
def backlog(limits: Limits) -> Backlog:
    """An empty one."""
    return Backlog(cast(TypePolicies, limits))


def numbers(attempts: list[Attempt] | None) -> list[int]:
    return [each.claimed.available_at for each in attempts or []]


async def take(backlog: Backlog, count: int) -> list[int]:
    """Take what is there; nothing of this may wait."""
    async with asyncio.timeout(PATIENCE_S):
        return [numbers(await backlog.take())[0] for _ in range(count)]


async def test_attempts_come_out_as_they_were_claimed(backlog: Backlog) -> None:
    backlog.put([attempt(1), attempt(2)])
    backlog.put([attempt(3)])
    assert await take(backlog, 3) == [1, 2, 3]


async def test_the_more_urgent_overtake_what_still_waits(backlog: Backlog) -> None:
    backlog.put([attempt(1), attempt(2), attempt(3, priority=9)])
    backlog.put([attempt(4, priority=0), attempt(5)])
    assert await take(backlog, 5) == [4, 1, 2, 5, 3]


async def test_a_job_with_crashes_goes_into_the_free_slot_it_was_claimed_for(
    backlog: Backlog,
) -> None:
    backlog.put([attempt(1, priority=0), attempt(2, crashes=1)])
    assert await take(backlog, 2) == [2, 1]


async def test_a_type_at_its_limit_is_passed_over_until_a_call_is_done(backlog: Backlog) -> None:
    backlog.put([*(attempt(number, LIMITED) for number in (1, 2, 3, 4)), attempt(5)])
    assert await take(backlog, 3) == [1, 2, 5]
    waiting = asyncio.create_task(backlog.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert len(backlog) == 2
    backlog.end_call("limited")
    assert numbers(await waiting) == [3]


async def test_a_limit_that_was_raised_frees_what_it_held_back(
    backlog: Backlog, limits: dict[str, int]
) -> None:
    backlog.put([attempt(number, LIMITED) for number in (1, 2, 3, 4)])
    assert await take(backlog, 2) == [1, 2]
    waiting = asyncio.create_task(backlog.take())
    await asyncio.sleep(0)
    limits["limited"] = 4
    backlog.reconsider()
    assert numbers(await waiting) == [3]
    assert await take(backlog, 1) == [4]


async def test_a_batch_of_a_key_leaves_other_keys_in_the_backlog(backlog: Backlog) -> None:
    given = [attempt(number, BATCH_BY_KEY) for number in (1, 2, 3, 4)]
    for each, key in zip(given, "abab", strict=True):
        each.claimed.gate = f"batch by key#{key}"
    note_call_sizes(given)
    assert [each.call_size for each in given] == [2] * 4
    backlog.put(given)
    assert [numbers(await backlog.take()) for _ in range(2)] == [[1, 3], [2, 4]]


async def test_a_batch_takes_its_kind_from_the_whole_backlog(backlog: Backlog) -> None:
    backlog.put([attempt(1, BATCH), attempt(2), *(attempt(each, BATCH) for each in (3, 4, 5))])
    assert numbers(await backlog.take()) == [1, 3, 4]
    assert numbers(await backlog.take()) == [2]
    assert numbers(await backlog.take()) == [5]


async def test_what_waited_for_a_batch_at_its_limit_makes_the_next_batch(backlog: Backlog) -> None:
    backlog.put([attempt(number, BATCH_AT_A_TIME) for number in (1, 2, 3, 4, 5)])
    assert numbers(backlog.take_now()) == [1, 2, 3]
    assert backlog.take_now() is None
    backlog.put([attempt(number, BATCH_AT_A_TIME) for number in (6, 7)])
    backlog.end_call(BATCH_AT_A_TIME.name)
    assert numbers(backlog.take_now()) == [4, 5, 6]
    backlog.end_call(BATCH_AT_A_TIME.name)
    assert numbers(backlog.take_now()) == [7]


async def test_closing_returns_what_was_never_started_and_sends_the_slots_home(
    backlog: Backlog,
) -> None:
    backlog.put([attempt(number, LIMITED) for number in (1, 2, 3)])
    await take(backlog, 2)
    waiting = asyncio.create_task(backlog.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert numbers(backlog.close()) == [3]
    assert await waiting is None
    backlog.put([attempt(4)])
    assert numbers(backlog.close()) == [4]


async def test_a_slot_that_is_cancelled_while_it_is_woken_leaves_its_turn_to_another(
    backlog: Backlog,
) -> None:
    first, second = (asyncio.create_task(backlog.take()) for _ in range(2))
    await asyncio.sleep(0)
    backlog.put([attempt(1)])
    first.cancel()
    assert numbers(await second) == [1]
    assert first.cancelled()


async def test_every_waiting_slot_gets_its_share_though_only_few_are_woken_at_first(
    backlog: Backlog,
) -> None:
    slots = [asyncio.create_task(backlog.take()) for _ in range(20)]
    await asyncio.sleep(0)
    backlog.put([attempt(number) for number in range(20)])
    async with asyncio.timeout(PATIENCE_S):
        taken = await asyncio.gather(*slots)
    assert sorted(numbers(each)[0] for each in taken) == list(range(20))


async def test_what_was_passed_over_keeps_its_turn_when_limits_are_read_again(
    backlog: Backlog, limits: dict[str, int]
) -> None:
    backlog.put([attempt(each, LIMITED, priority=1) for each in (1, 2, 3)])
    backlog.put([attempt(4), attempt(5)])
    assert await take(backlog, 3) == [1, 2, 4]
    limits["limited"] = 3
    backlog.reconsider()
    assert await take(backlog, 2) == [3, 5]
