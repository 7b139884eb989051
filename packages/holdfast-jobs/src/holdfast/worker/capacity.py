"""How much a worker can take: its free slots, and as much as it finished a moment ago."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.core.registry import JobType
from holdfast.worker.attempt import Attempt
from holdfast.worker.options import LARGEST_CLAIM, WorkerOptions

QUICK_S = 0.05
"""Jobs that take longer are claimed only into free slots: a claim costs little beside such a call, and what waited
behind it would wait long."""
CLAIM_AHEAD_S = 0.075
"""Quick ones are claimed ahead for about so long."""


class _Finished(msgspec.Struct):
    """What ended within one millisecond: thousands end in a second, too many to keep one by one."""

    until: float
    weight: float


class Capacity:
    """How much a worker can take: its free slots, and as much as it finished a moment ago.

    A batch handler's job weighs as much as its share of a call: of a whole batch, or of what there was of its key.
    """

    def __init__(self, options: WorkerOptions, types: Mapping[str, JobType]) -> None:
        self._slots = options.slots
        self._max_jobs = options.batch or LARGEST_CLAIM
        self._sizes = {name: each.batch or 1 for name, each in types.items()}
        self._grouped = {name for name, each in types.items() if each.flow and each.flow.batch}
        self._taken = dict.fromkeys(types, 0)
        self._in_calls: dict[tuple[str, int], int] = {}
        self._slow: set[str] = set()
        self._finished: deque[_Finished] = deque()
        self._finished_weight = 0.0

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Count the jobs of one claim by their types."""
        if attempts and attempts[0].type.name in self._grouped:
            note_call_sizes(attempts)
        for attempt in attempts:
            self._count(attempt, 1)

    def _count(self, attempt: Attempt, number: int) -> None:
        name, size = attempt.type.name, attempt.call_size
        if size is None:
            self._taken[name] += number
        else:
            left = self._in_calls.pop((name, size), 0) + number
            if left:
                self._in_calls[name, size] = left

    def remove_unstarted(self, attempt: Attempt) -> None:
        """Discount an attempt that never had a slot."""
        self._count(attempt, -1)

    def remove_ended(self, attempt: Attempt, at: float) -> None:
        """Discount an attempt that no longer needs its slot."""
        name, size = attempt.type.name, attempt.call_size
        if size is None:
            self._taken[name] -= 1
            size = self._sizes[name]
        else:
            self._count(attempt, -1)
        began = attempt.started_at
        if began is None or at - began > QUICK_S:
            self._slow.add(name)
            return
        if self._slow:
            self._slow.discard(name)
        self._finished_weight += 1 / size
        finished = self._finished
        if finished and at < finished[-1].until:
            finished[-1].weight += 1 / size
        else:
            finished.append(_Finished(at + 0.001, 1 / size))

    @property
    def free_slots(self) -> float:
        """How many slots are free of claimed work; below zero when more was claimed than there are slots."""
        taken = sum(count / self._sizes[name] for name, count in self._taken.items() if count)
        return self._slots - taken - (self._calls_of(None) if self._in_calls else 0)

    def _calls_of(self, name: str | None) -> int:
        """How many calls the jobs make that came with others of their key, of one type or of all."""
        return sum(
            math.ceil(count / size)
            for (owner, size), count in self._in_calls.items()
            if name in (None, owner)
        )

    def room(self, now: float, waiting: int) -> float:
        """How many slots' worth of work to ask for while `waiting` attempts wait for one; 0 when it is not worth it."""
        while self._finished and self._finished[0].until < now - CLAIM_AHEAD_S:
            self._finished_weight -= self._finished.popleft().weight
        room = min(self._max_jobs, self.free_slots + self._finished_weight)
        if waiting and room < min(self._max_jobs, self._finished_weight) / 2:
            return 0
        return max(0.0, room)

    def room_of(self, name: str, limit: int | None, free_slots: float) -> int:
        """How many jobs of a type to ask for, under its limit of concurrent calls, while so many slots are free."""
        size = self._sizes[name]
        jobs = max(self._max_jobs, size)
        if name in self._slow:
            jobs = min(jobs, math.ceil(max(0.0, free_slots) * size))
        if limit is None:
            return jobs
        return min(jobs, (limit - self._calls_of(name)) * size - self._taken[name])


def note_call_sizes(attempts: Iterable[Attempt]) -> None:
    """Note how many jobs of its key came with each: a call of few takes a slot like one of many."""
    by_partition: dict[str | None, list[Attempt]] = {}
    for attempt in attempts:
        by_partition.setdefault(attempt.claimed.gate, []).append(attempt)
    for together in by_partition.values():
        size = together[0].type.batch or 1
        for start in range(0, len(together), size):
            call = together[start : start + size]
            for attempt in call:
                attempt.call_size = len(call)
