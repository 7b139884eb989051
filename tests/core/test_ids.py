"""Ids: valid UUIDs of version 7, strictly increasing whatever the clock does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.buckets import bucket_of

from holdfast.core.errors import InvalidId
from holdfast.core.ids import (
    BUCKETS,
    COUNTER_BITS,
    IdMaker,
    beside,
    bucket_of_key,
    delivery_id,
    in_bucket,
    instant_of,
    parse_id,
    parse_new_id,
    uuid7_text,
)

NOW = 1_763_171_000_000


def _maker(clock_ms: Callable[[], int], seed: int = 7) -> IdMaker:
    return IdMaker(clock_ms, random.Random(seed).randbytes)


@given(
    ms=st.integers(0, 2**48 - 1),
    counter=st.integers(0, 2**COUNTER_BITS - 1),
    rand=st.binary(min_size=6, max_size=6),
)
def test_the_text_is_a_canonical_uuid_that_keeps_all_its_parts(
    ms: int, counter: int, rand: bytes
) -> None:
    text = uuid7_text(ms, counter, rand)
    parsed = UUID(text)
    assert str(parsed) == text
    assert (parsed.version, parsed.variant) == (7, RFC_4122)
    assert instant_of(text) == ms
    assert parsed.bytes[10:] == rand
    assert (parsed.int >> 64 & 0xFFF) << 14 | parsed.int >> 48 & 0x3FFF == counter


@given(
    clock=st.lists(st.integers(NOW - 50, NOW + 50), min_size=1, max_size=30),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=10),
    seed=st.integers(0, 2**32),
)
def test_ids_strictly_increase_however_the_clock_steps(
    clock: list[int], sizes: list[int], seed: int
) -> None:
    readings = iter(clock)
    maker = _maker(lambda: next(readings, clock[-1]), seed)
    ids = [made for size in sizes for made in maker.many(size)]
    ids.append(maker.next())
    assert len(ids) == sum(sizes) + 1
    assert ids == sorted(set(ids))
    assert all(str(parse_id(made)) == made for made in ids)


def test_many_makes_the_same_ids_as_the_single_function() -> None:
    rand = random.Random(3).randbytes(4 + 6 * 600)
    maker = IdMaker(lambda: NOW, lambda count: rand[:count])
    start = int.from_bytes(rand[:4], "big") & (2 ** (COUNTER_BITS - 1) - 1)
    expected = [uuid7_text(NOW, start + i, rand[4 + 6 * i :][:6]) for i in range(600)]
    assert maker.many(600) == expected


def test_randomness_is_drawn_once_for_a_batch() -> None:
    draws: list[int] = []

    def random_bytes(count: int) -> bytes:
        draws.append(count)
        return bytes(count)

    IdMaker(lambda: NOW, random_bytes).many(1000)
    assert draws == [4 + 6000]


def test_a_spent_counter_borrows_the_next_millisecond() -> None:
    maker = IdMaker(lambda: NOW, lambda count: b"\xff" * count)
    before = maker.next()
    maker._counter = 2**COUNTER_BITS - 1
    last, following = maker.next(), maker.next()
    assert before < last < following
    assert [instant_of(made) - NOW for made in (last, following)] == [0, 1]


def test_two_makers_at_the_same_millisecond_make_different_ids() -> None:
    one, other = _maker(lambda: NOW, 1), _maker(lambda: NOW, 2)
    assert not set(one.many(5000)) & set(other.many(5000))


def test_the_lock_is_held_only_while_numbers_are_reserved() -> None:
    entered: list[str] = []

    @contextmanager
    def lock() -> Iterator[None]:
        entered.append("in")
        yield
        entered.append("out")

    IdMaker(lambda: NOW, random.Random(1).randbytes, lock()).many(10)
    assert entered == ["in", "out"]


def test_a_clock_outside_the_range_of_ids_is_clamped() -> None:
    assert instant_of(_maker(lambda: -5).next()) == 0
    assert instant_of(_maker(lambda: 2**60).next()) == 2**48 - 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "0193a6f07c0070008000000000000000",
        "{0193a6f0-7c00-7000-8000-000000000000}",
        "urn:uuid:0193a6f0-7c00-7000-8000-000000000000",
        "0193a6f0-7c00-7000-8000-00000000000g",
        "0193a6f0-7c00-7000-8000-000000000000\n",
    ],
)
def test_what_is_not_an_id_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(InvalidId) as caught:
        parse_id(text)
    assert caught.value.help


def test_a_uuid_of_another_version_can_be_asked_for_but_not_made_for_a_chain() -> None:
    foreign = "9b2f3c64-18a1-4f10-9c59-8ad7b64e3c11"
    assert str(parse_id(foreign)) == foreign
    with pytest.raises(InvalidId, match="not a UUIDv7"):
        parse_new_id(foreign)


def test_capital_letters_are_read() -> None:
    text = "0193A6F0-7C00-7ABC-8DEF-0000000000AA"
    assert str(parse_id(text)) == text.lower()


@given(
    counter=st.integers(0, 2**COUNTER_BITS - 1),
    rand=st.binary(min_size=6, max_size=6),
    bucket=st.integers(0, BUCKETS - 1),
)
def test_an_id_moved_into_a_bucket_keeps_everything_else(
    counter: int, rand: bytes, bucket: int
) -> None:
    made = uuid7_text(NOW, counter, rand)
    moved = in_bucket(made, bucket)
    assert str(parse_new_id(moved)) == moved
    assert bucket_of(moved) == bucket
    before, after = UUID(made).int, UUID(moved).int
    assert (after >> 48, after & (2**34 - 1)) == (before >> 48, before & (2**34 - 1))
    assert beside(made, moved) == moved


def test_ids_of_any_buckets_sort_by_their_creation() -> None:
    chances = random.Random(5)
    maker = _maker(lambda: NOW)
    ids = [in_bucket(each, chances.randrange(BUCKETS)) for each in maker.many(5000)]
    assert ids == sorted(set(ids))


def test_ids_of_one_bucket_made_in_many_processes_at_one_instant_are_unique() -> None:
    ids = [in_bucket(_maker(lambda: NOW, seed).next(), 7) for seed in range(20_000)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("source", ["random", "key"])
def test_buckets_are_spread_evenly(source: str) -> None:
    made = _maker(lambda: NOW).many(64_000)
    if source == "key":
        buckets = [bucket_of_key(f"order-{number}") for number in range(len(made))]
    else:
        buckets = [bucket_of(each) for each in made]
    parts = [0] * 16
    for each in buckets:
        parts[each * 16 // BUCKETS] += 1
    # Six standard deviations of what chance does to 4,000.
    assert all(abs(count - 4_000) < 6 * 62 for count in parts), parts
    assert len(set(buckets)) > 0.96 * BUCKETS


def test_the_bucket_of_a_key_never_changes() -> None:
    known = {"order-1": 747, "größe": 13524, "": 14572}
    assert {key: bucket_of_key(key) for key in known} == known


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**26 - 1), st.binary(min_size=6, max_size=6))
def test_a_delivery_tells_its_event_and_is_found_in_the_same_place(
    ms: int, counter: int, rand: bytes
) -> None:
    event = uuid7_text(ms, counter, rand)
    mail, count = (delivery_id(event, f"order.placed/{name}") for name in ("mail", "count"))
    assert len({event, mail, count}) == 3
    assert (
        delivery_id(mail, "order.placed/mail") == delivery_id(count, "order.placed/count") == event
    )
    assert (instant_of(mail), bucket_of(mail)) == (ms, bucket_of(event))
    assert parse_new_id(mail).version == 7
