"""What all ways of claiming have in common: their interface, a planned claim, and how much may be claimed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from holdfast.core.records import ClaimedJob, LeaseClass
from holdfast.storage.operation import Op
from holdfast.worker.admission import Admission
from holdfast.worker.attempt import Attempt, Backlog
from holdfast.worker.capacity import Capacity
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.worker_context import WorkerContext

CLAIM_MAX = 10_000
"""No claim asks for more: the statement reads so many rows of a probe and no more."""

R = TypeVar("R")
A = TypeVar("A")


class PlannedClaim(msgspec.Struct, Generic[R], frozen=True):
    """One claim: what it asks for, under which leases, and what must be committed before it."""

    request: R
    leases: tuple[LeaseClass, ...]
    first: Op[object] | None = None


class ClaimSource(Protocol[R, A]):
    """One way of claiming due jobs: it plans claims and learns from their answers when to make the next."""

    def hint(self, type: str | None, full_scan: bool) -> None:
        """Expect due jobs of a type, or of any; with `full_scan` also where they were looked for before."""

    def expect_later(self) -> None:
        """Expect a job that is due later: it may be before the one that was to be next."""

    def plan(self, is_last: bool) -> Iterable[PlannedClaim[R]]:
        """Yield the claims to make now; the room is read anew before each.

        With `is_last` the worker ends if they find nothing.
        """

    def claim(self, request: R) -> Op[A]:
        """Return the operation of a claim."""

    def note(self, request: R, answer: A, sent_at: float, now: float) -> list[ClaimedJob]:
        """Learn from the answer of a claim; return the jobs it took."""

    def waits_for_room(self) -> bool:
        """Whether a slot that becomes free is worth another claim; if not, only hints and times are."""

    def is_exhausted(self) -> bool:
        """Whether the last claims looked everywhere and found nothing; if they did not look, the next one does."""

    async def waits_for_rate(self) -> bool:
        """Whether jobs are due that a rate lets start as soon as the options have a worker wait for it."""

    async def next_at(self, has_found: bool) -> float:
        """When the next claim is due, infinity without a time; `has_found` says whether any source just found jobs."""

    async def has_due(self, types: list[str]) -> bool:
        """Whether jobs of one of these types may be due."""


class ClaimRoom:
    """How much may be claimed now, in total and of each type. On the loop."""

    def __init__(
        self, context: WorkerContext, backlog: Backlog, quarantine: Quarantine, admission: Admission
    ) -> None:
        self._context = context
        self._backlog = backlog
        self._quarantine = quarantine
        self._admission = admission
        self.capacity = Capacity(context.options, context.types)
        self._busy_until: dict[str, float] = {}
        # How many jobs the worker may still take.
        self.left = context.options.max_items
        # Whether due jobs without limits wait for the same slots.
        self.is_contended = False

    @property
    def free_slots(self) -> float:
        """How many slots are free of claimed work."""
        return self.capacity.free_slots

    @property
    def holds_no_crashed(self) -> bool:
        """Whether no job is held whose worker died, and none has to wait for others."""
        return self._context.held_leases.crashed == 0 and not self._quarantine.is_paused

    @property
    def takes_crashed(self) -> bool:
        """Whether a job may be taken whose worker died."""
        return self.capacity.free_slots > 0 and self.holds_no_crashed

    def slots(self, now: float) -> float:
        """How many slots' worth of work to ask for."""
        if self.left == 0 or self._quarantine.suspect or self._admission.is_behind():
            return 0
        return self.capacity.room(now, len(self._backlog))

    def of(self, name: str, slots: float, now: float, free_slots: float) -> int:
        """How many jobs of a type to ask for at most."""
        policies, connections = self._context.policies, self._context.connections
        if policies.is_paused(name) or self._busy_until.get(name, now) > now:
            return 0
        own = self.capacity.room_of(name, policies.limit(name), free_slots)
        own = min(own, int(min(connections.room_of(name), CLAIM_MAX)))
        return min(math.ceil(slots * (self._context.types[name].batch or 1)), own)

    def cap(self, number: int) -> int:
        """Return a number of jobs, or as many as one claim may take."""
        return min(number, CLAIM_MAX if self.left is None else self.left)

    def take(self, attempts: list[Attempt]) -> None:
        """Count the jobs of a claim."""
        self.capacity.add(attempts)
        if self.left is not None:
            self.left -= len(attempts)

    def pause_type(self, type: str, seconds: float) -> None:
        """Have no room for this type for a while."""
        self._busy_until[type] = self._context.clock.monotonic() + seconds

    def next_at(self, now: float) -> float:
        """When the first type has room again that is paused or lacks connections; infinity where none is."""
        self._busy_until = {name: at for name, at in self._busy_until.items() if at > now}
        connections = self._context.connections.next_looks(now)
        return min((*self._busy_until.values(), *connections), default=math.inf)
