"""Budgets: how many items and how much time a runner or a tick may still spend."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on items and on time since `started_ms`; None means no limit."""

    started_ms: int
    items: int | None = None
    milliseconds: int | None = None

    def after(self, count: int) -> Budget:
        """Return what is left after `count` more items."""
        if self.items is None:
            return self
        return replace(self, items=max(0, self.items - count))

    def room(self, wanted: int) -> int:
        """Return how many of the wanted items still fit."""
        return wanted if self.items is None else min(wanted, self.items)

    def remaining_ms(self, now_ms: int) -> int | None:
        """Return the time that is left, never below zero; None when it is not limited."""
        if self.milliseconds is None:
            return None
        return max(0, self.started_ms + self.milliseconds - now_ms)

    def exhausted(self, now_ms: int) -> bool:
        """Say whether items or time are used up."""
        return self.items == 0 or self.remaining_ms(now_ms) == 0

    def within(self, other: Budget, now_ms: int) -> Budget:
        """Return the tighter of both from now on, as a runner's budget within its tick's."""
        times = [
            left
            for left in (self.remaining_ms(now_ms), other.remaining_ms(now_ms))
            if left is not None
        ]
        counts = [count for count in (self.items, other.items) if count is not None]
        return Budget(now_ms, min(counts, default=None), min(times, default=None))
