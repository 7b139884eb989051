"""Ids of jobs and chains: UUIDs of version 7 as canonical text, from a clock that is handed in.

An id is 48 bits of milliseconds, a counter of 26 bits, a bucket of 14 bits and 34 random bits, so ids sort by time
and, within one maker, strictly by creation. The bucket says to which of 16,384 parts of the work a job belongs: that of
its key, that of its chain, or a random one (docs/adr/0017).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from typing import Any
from uuid import UUID

from holdfast.core.errors import InvalidId

COUNTER_BITS = 26
RANDOM_BYTES = 6
"""The bucket and what is random."""
BUCKETS = 1 << 14

FEWEST_DIGITS = 6
"""Of a part of an id that is looked up."""

_SEED_BYTES = 4
_DIGITS = 32
_SHORT = 8
_PART = re.compile(r"[0-9a-f-]+")
_RANDOM_BITS = 34
# The four digits of an id that hold its bucket, and two random bits.
_BUCKET_AT, _BUCKET_END = 24, 28
# Half of the counter's range is left to count in, however high the random start lies.
_SEED_MASK = (1 << (COUNTER_BITS - 1)) - 1
_COUNTER_END = 1 << COUNTER_BITS
_LATEST_MS = (1 << 48) - 1
# Formatting numbers is most of the cost of an id; so blocks of 256 share all but these endings.
_LOW_BYTES = tuple(f"{low:02x}-" for low in range(256))


def uuid7_text(ms: int, counter: int, rand: bytes) -> str:
    """Return the id for a time (48 bits), a counter (26 bits) and 6 random bytes."""
    return f"{_block(ms, counter)}{_LOW_BYTES[counter & 0xFF]}{rand.hex()}"


def id_at(instant: int) -> str:
    """Return the least id of an instant, which is given in microseconds."""
    return uuid7_text(max(instant, 0) // 1000, 0, bytes(6))


def parse_id(text: str) -> UUID:
    """Return the UUID of a canonical text, or raise InvalidId; nobody has one of another version."""
    try:
        parsed = UUID(text)
    except (ValueError, AttributeError, TypeError):
        parsed = None
    if parsed is None or str(parsed) != text.lower():
        raise InvalidId(f"{repr(text)[:60]} is not an id")
    return parsed


def short_id(id: str) -> str:
    """Shorten an id to its end: ids made together begin alike."""
    return f"…{id[-_SHORT:]}"


def digits_of_part(text: str) -> str | None:
    """Return the digits of what can be the beginning or the end of an id, such as `…7c00a1b2`; None if it cannot."""
    bare = text.lower().removeprefix("…").removeprefix("...").removesuffix("…").removesuffix("...")
    digits = bare.replace("-", "")
    is_part = _PART.fullmatch(bare) and FEWEST_DIGITS <= len(digits) < _DIGITS
    return digits if is_part else None


def ids_beginning(digits: str) -> tuple[str, str]:
    """Return the first and the last id that begin with these digits."""
    return str(UUID(digits.ljust(_DIGITS, "0"))), str(UUID(digits.ljust(_DIGITS, "f")))


def parse_new_id(text: str) -> UUID:
    """Return the UUID that a caller made for a new chain, or raise InvalidId: lists go by the time in it."""
    parsed = parse_id(text)
    if parsed.version != 7:
        raise InvalidId(
            f"{text} is not a UUIDv7; lists and pages are ordered by its time",
            help='create one with app.new_id(); use an existing UUID as the key: key=str(uuid), scope="any"',
        )
    return parsed


def instant_of(text: str) -> int:
    """Return the Unix milliseconds at which the id was made."""
    return parse_id(text).int >> 80


def bucket_of_key(key: str) -> int:
    """Return the bucket of everything that is started with this key: the first 14 bits of its SHA-256, forever."""
    return int.from_bytes(sha256(key.encode()).digest()[:2], "big") >> 2


def in_bucket(id: str, bucket: int) -> str:
    """Return a new id moved into a bucket; its time, its place in the order and its random bits stay."""
    random_bits = int(id[_BUCKET_AT:_BUCKET_END], 16) & 3
    return f"{id[:_BUCKET_AT]}{bucket << 2 | random_bits:04x}{id[_BUCKET_END:]}"


def beside(id: str, other: str) -> str:
    """Return a new id moved into the bucket of another: both are found in the same place."""
    return in_bucket(id, int(other[_BUCKET_AT:_BUCKET_END], 16) >> 2)


def delivery_id(id: str, job_type: str) -> str:
    """Return the id of an event's delivery by a job type; of such an id, return the event's.

    So every delivery of an event tells which event it is, and none can be written twice.
    """
    return f"{id[:_BUCKET_AT]}{int(id[_BUCKET_AT:], 16) ^ _mask_of(job_type):012x}"


def _mask_of(job_type: str) -> int:
    """As many bits of a type's name as an id has random ones; time, place and bucket stay as they are."""
    return int.from_bytes(sha256(job_type.encode()).digest()[:5], "big") >> (40 - _RANDOM_BITS)


class IdMaker:
    """Makes ids that strictly increase, also when the clock stops or steps back.

    Without a lock the ids made by several threads are still unique, but no longer in order.
    """

    __slots__ = ("_clock_ms", "_counter", "_lock", "_ms", "_random_bytes")

    def __init__(
        self,
        clock_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Take the clock, the source of randomness and the lock that threads share."""
        self._clock_ms = clock_ms
        self._random_bytes = random_bytes
        self._lock = nullcontext() if lock is None else lock
        self._ms = -1
        self._counter = 0

    def next(self) -> str:
        """Return one id, greater than all before it."""
        rand = self._random_bytes(_SEED_BYTES + RANDOM_BYTES)
        with self._lock:
            ms, counter = self._reserve(1, _seed_of(rand))
        return uuid7_text(ms, counter, rand[_SEED_BYTES:])

    def many(self, count: int) -> list[str]:
        """Return `count` ids in increasing order, from one draw of randomness."""
        if count < 1:
            return []
        rand = self._random_bytes(_SEED_BYTES + RANDOM_BYTES * count)
        tails = rand[_SEED_BYTES:].hex("-", RANDOM_BYTES).split("-")
        with self._lock:
            ms, counter = self._reserve(count, _seed_of(rand))
        ids: list[str] = []
        while len(ids) < count:
            block, low = _block(ms, counter), counter & 0xFF
            rest = tails[len(ids) : len(ids) + 256 - low]
            endings = _LOW_BYTES[low : low + len(rest)]
            ids += [f"{block}{ending}{tail}" for ending, tail in zip(endings, rest, strict=True)]
            counter += len(rest)
        return ids

    def _reserve(self, count: int, seed: int) -> tuple[int, int]:
        now = min(max(self._clock_ms(), 0), _LATEST_MS)
        if now > self._ms:
            self._ms, self._counter = now, seed
        elif self._counter + count > _COUNTER_END:
            # The counter is spent before the clock moved on, so the next millisecond is borrowed.
            self._ms, self._counter = self._ms + 1, seed
        first = self._counter
        self._counter += count
        return self._ms, first


def _seed_of(rand: bytes) -> int:
    return int.from_bytes(rand[:_SEED_BYTES], "big") & _SEED_MASK


def _block(ms: int, counter: int) -> str:
    time = f"{ms:012x}"
    return f"{time[:8]}-{time[8:]}-7{counter >> 14:03x}-{0x80 | counter >> 8 & 0x3F:02x}"
