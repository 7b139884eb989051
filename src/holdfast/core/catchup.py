"""Which slots of a cycle are due: catching up on missed ones, and a jitter that replicas share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

from holdfast.core.errors import InvalidSchedule
from holdfast.core.model import Instant
from holdfast.core.schedule import Schedule

LARGEST_CATCH_UP = 1_000
GRACE_MS = 300_000
"""A slot this late still counts as on time: ticks may come from outside, minutes apart."""

_ALL = re.compile(r"all\((\d{1,6})\)")


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How many missed slots are made up for: 0 none, 1 the last, n the last n."""

    slots: int

    @classmethod
    def parse(cls, text: str) -> CatchUp:
        """Read `none`, `last` or `all(n)`."""
        word = text.strip().lower()
        if word in ("none", "last"):
            return cls(0 if word == "none" else 1)
        match = _ALL.fullmatch(word)
        if match is None or not 1 <= int(match[1]) <= LARGEST_CATCH_UP:
            raise InvalidSchedule(
                f"{text[:60]!r} does not say what happens to missed slots",
                help=f"use none, last or all(n) with n up to {LARGEST_CATCH_UP}",
            )
        return cls(int(match[1]))

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        return {0: "none", 1: "last"}.get(self.slots, f"all({self.slots})")


def due_slots(
    schedule: Schedule, last_slot: Instant, now: Instant, missed: CatchUp, grace_ms: int = GRACE_MS
) -> list[Instant]:
    """Return the slots to run now, oldest first.

    `last_slot` is the newest slot already decided, or when the cycle was first seen.
    """
    slots = schedule.latest_between(last_slot, now, max(missed.slots, 1))
    if missed.slots == 0:
        return [slot for slot in slots if now - slot <= grace_ms * 1000]
    return slots


def jitter_us(cycle: str, slot: Instant, limit_ms: int) -> int:
    """Return the delay of one slot in [0, limit), the same on every replica."""
    if limit_ms < 1:
        return 0
    digest = blake2b(f"{cycle}\0{slot}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (limit_ms * 1000)
