"""How much work a process can take: its free slots, and as much as it finished a moment ago."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.core.jobtype import JobType
from holdfast.worker.attempt import Attempt
from holdfast.worker.options import WorkerOptions

FINISHED_WINDOW_MS = 100


@dataclass(slots=True)
class _Finished:
    """What ended within one millisecond: thousands end in a second, and each would be one to forget."""

    at_ms: int
    weight: float


class Capacity:
    """Counts what was claimed and has not ended. A batch handler's job weighs as much as its share of a call."""

    def __init__(self, options: WorkerOptions, types: Mapping[str, JobType]) -> None:
        self._slots = options.slots
        self._batch = options.batch
        self._sizes = {name: each.batch or 1 for name, each in types.items()}
        self._taken = dict.fromkeys(types, 0)
        self._finished: deque[_Finished] = deque()
        self._finished_weight = 0.0

    def taken(self, names: Iterable[str]) -> None:
        """Note claimed jobs by their types."""
        for name in names:
            self._taken[name] += 1

    def ended(self, attempt: Attempt, at: float) -> None:
        """Note an attempt that no longer needs a slot."""
        name = attempt.type.name
        weight = 1 / self._sizes[name]
        self._taken[name] -= 1
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
        room = min(self._batch, self.free_slots + self._finished_weight)
        if waiting and room < self._batch / 2:
            return 0
        return max(0.0, room)

    def room_of(self, name: str, limit: int | None) -> int:
        """How many jobs of a type may be asked for under its limit of concurrent calls."""
        size = self._sizes[name]
        if limit is None:
            return max(self._batch, size)
        return limit * size - self._taken[name]
