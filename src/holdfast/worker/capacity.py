"""How much work a process can take: its free slots, and as much as it finished a moment ago."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.core.jobtype import JobType
from holdfast.worker.attempt import Attempt
from holdfast.worker.options import LARGEST_CLAIM, WorkerOptions

FINISHED_WINDOW_MS = 50
"""Quick jobs are claimed ahead for about so long. A handler that takes longer finds its slot free when it is claimed:
between two of its calls a claim costs little, and what waits behind it would wait long."""


@dataclass(slots=True)
class _Finished:
    """What ended within one millisecond: thousands end in a second, and each would be one to forget."""

    at_ms: int
    weight: float


class Capacity:
    """Counts what was claimed and has not ended. A batch handler's job weighs as much as its share of a call."""

    def __init__(self, options: WorkerOptions, types: Mapping[str, JobType]) -> None:
        self._slots = options.slots
        self._most = options.batch or LARGEST_CLAIM
        self._sizes = {name: each.batch or 1 for name, each in types.items()}
        self._taken = dict.fromkeys(types, 0)
        self._slow: set[str] = set()
        self._finished: deque[_Finished] = deque()
        self._finished_weight = 0.0

    def taken(self, names: Iterable[str]) -> None:
        """Note claimed jobs by their types."""
        for name in names:
            self._taken[name] += 1

    def returned(self, attempt: Attempt) -> None:
        """Note an attempt that needs no slot any more and had none."""
        self._taken[attempt.type.name] -= 1

    def ended(self, attempt: Attempt, at: float) -> None:
        """Note an attempt that no longer needs its slot."""
        self.returned(attempt)
        name = attempt.type.name
        if attempt.started_at is None or (at - attempt.started_at) * 1000 > FINISHED_WINDOW_MS:
            self._slow.add(name)
            return
        if self._slow:
            self._slow.discard(name)
        weight = 1 / self._sizes[name]
        self._finished_weight += weight
        at_ms = int(at * 1000)
        if self._finished and self._finished[-1].at_ms == at_ms:
            self._finished[-1].weight += weight
        else:
            self._finished.append(_Finished(at_ms, weight))

    @property
    def free_slots(self) -> float:
        """How many slots nothing claimed is meant for; below zero when more was claimed than there are."""
        taken = sum(count / self._sizes[name] for name, count in self._taken.items() if count)
        return self._slots - taken

    def room(self, now: float, waiting: int) -> float:
        """How many slots' worth of work to ask for while `waiting` attempts wait for one; 0 when it is not worth it."""
        oldest_ms = int(now * 1000) - FINISHED_WINDOW_MS
        while self._finished and self._finished[0].at_ms < oldest_ms:
            self._finished_weight -= self._finished.popleft().weight
        room = min(self._most, self.free_slots + self._finished_weight)
        if waiting and room < min(self._most, self._finished_weight) / 2:
            return 0
        return max(0.0, room)

    def room_of(self, name: str, limit: int | None, free_slots: float) -> int:
        """How many jobs of a type to ask for, under its limit of concurrent calls, while so many slots are free."""
        size = self._sizes[name]
        most = max(self._most, size)
        if name in self._slow:
            most = min(most, math.ceil(max(0.0, free_slots) * size))
        if limit is None:
            return most
        return min(most, limit * size - self._taken[name])
