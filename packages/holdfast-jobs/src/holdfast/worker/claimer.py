"""Claims due jobs: when to ask which source, what to do with the answer, and when to ask again."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from holdfast.core.errors import NoConnection
from holdfast.core.lease import local_deadline_ms
from holdfast.core.records import ClaimedJob, Finish, LeaseClass
from holdfast.storage.database import Link
from holdfast.worker.admission import Admission
from holdfast.worker.attempt import Attempt, Backlog
from holdfast.worker.claims import ClaimRoom, ClaimSource, PlannedClaim
from holdfast.worker.held_leases import HeldLease
from holdfast.worker.limited_claims import LimitedClaims
from holdfast.worker.options import PollBackoff
from holdfast.worker.plain_claims import PlainClaims
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.worker_context import WorkerContext

MISSING = "its row was deleted by SQL"


class Claimer:
    """One loop per worker, over the sources of claims. A claim's size follows what slots can take and just finished."""

    def __init__(
        self,
        context: WorkerContext,
        link: Link,
        backlog: Backlog,
        quarantine: Quarantine,
        backoff: PollBackoff,
        admission: Admission,
    ) -> None:
        self._context = context
        self._link = link
        self._backlog = backlog
        self._quarantine = quarantine
        self._backoff = backoff
        self._clock = context.clock
        self._connections = context.connections
        self._wake = context.wakes.claims
        self._stopping = asyncio.Event()
        self._room = ClaimRoom(context, backlog, quarantine, admission)
        self._limited = LimitedClaims(context, link, self._room, backoff)
        self._plain = PlainClaims(context, link, self._room, backoff, self._wake)
        self._sources: tuple[ClaimSource[Any, Any], ...] = (self._limited, self._plain)
        self._is_claiming = self._was_freed = False

    def hint(self, type: str | None = None, full_scan: bool = False) -> None:
        """Claim soon: jobs of a type, or of any, may be due; released ones lie where was looked before."""
        if type is not None and type not in self._context.types:
            return
        for each in self._sources:
            each.hint(type, full_scan)
        self._wake.set()

    def expect_later(self) -> None:
        """Note that a job of ours waits for a time: the next due one may be another than believed."""
        for each in self._sources:
            each.expect_later()
        self._wake.set()

    def note_partitions(self, has_partitions: bool) -> None:
        """Note whether jobs may wait in partitions; where none do, types without limits never ask about them."""
        if self._limited.note_partitions(has_partitions):
            self._wake.set()

    def free_slot(self, attempt: Attempt) -> None:
        """Note that an attempt no longer needs its slot."""
        self._room.capacity.remove_ended(attempt, attempt.ended_at or self._clock.monotonic())
        self._quarantine.recheck()
        # What a claim under way leaves behind is known with its answer: most often nothing.
        self._was_freed = True
        if not self._is_claiming and not self._wake.is_set():
            self._claim_into_freed_slots()

    def _claim_into_freed_slots(self) -> None:
        if self._was_freed and any(each.waits_for_room() for each in self._sources):
            self._wake.set()
        self._was_freed = False

    def return_unstarted(self, attempt: Attempt) -> None:
        """Note that an attempt is given back that never had a slot."""
        self._room.capacity.remove_unstarted(attempt)
        self._quarantine.recheck()
        self._wake.set()

    def pause_type(self, type: str, seconds: float) -> None:
        """Claim no job of this type for a while: its handler raised Busy."""
        self._room.pause_type(type, seconds)

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> str:
        """Claim until stopped, or until the options say that it is enough; return why it ended."""
        while not self._stopping.is_set():
            self._wake.clear()
            self._look_everywhere_if_asked()
            is_idle = self._is_idle()
            if self._room.left == 0 and is_idle:
                return "budget"
            await self._look_for_connections()
            self._is_claiming, self._was_freed = True, False
            found = await self._claim_all(is_idle and self._context.options.stop_when_idle)
            self._is_claiming = False
            self._claim_into_freed_slots()
            if found is None:
                continue
            if not found and await self._has_nothing_left(is_idle):
                return "idle"
            await self._wait_for_more(found > 0)
        return "stopped"

    def _look_everywhere_if_asked(self) -> None:
        if self._wake.take_for_all():
            for each in self._sources:
                each.hint(None, True)

    def _is_idle(self) -> bool:
        """Whether nothing is held, as far as the options make that a reason to end."""
        options = self._context.options
        if not options.stop_when_idle and options.max_items is None:
            return False
        return len(self._context.held_leases) == 0

    async def _look_for_connections(self) -> None:
        try:
            await self._connections.look(self._has_due)
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)

    async def _has_due(self, types: list[str]) -> bool:
        for each in self._sources:
            if await each.has_due(types):
                return True
        return False

    async def _claim_all(self, is_last: bool) -> int | None:
        """Claim once from each source; return how many jobs there were, None if one of the claims failed."""
        found: int | None = 0
        for source in self._sources:
            try:
                for planned in source.plan(is_last):
                    if self._stopping.is_set():
                        return None
                    number = await self._claim(source, planned)
                    self._context.health.report_ok(self._link.purpose)
                    found = None if found is None else found + number
            except Exception as error:
                found = None
                await self._wait_after(error)
        return found

    async def _wait_after(self, error: Exception) -> None:
        """Report a failed claim and wait before the next: other sources may need rights that this one lacks."""
        self._context.health.report_error(self._link.purpose, error)
        if isinstance(error, NoConnection):
            self._connections.rest()
        await self._clock.wait(self._stopping, self._backoff.error_s(self._clock.random()))

    async def _claim(self, source: ClaimSource[Any, Any], planned: PlannedClaim[Any]) -> int:
        if planned.first is not None:
            await self._link.run_atomic(planned.first)
        tokens = [each.token for each in planned.leases]
        self._context.held_leases.begin_claim(tokens)
        sent_at = self._clock.monotonic()
        try:
            answer = await self._link.run(source.claim(planned.request))
        except BaseException as error:
            self._give_up_claim(tokens, error)
            raise
        now = self._clock.monotonic()
        jobs = source.note(planned.request, answer, sent_at, now)
        await self._keep(jobs, planned.leases, sent_at, now)
        return len(jobs)

    def _give_up_claim(self, tokens: list[str], error: BaseException) -> None:
        """Note a claim without an answer: it may have taken jobs, unless there was no connection to send it on."""
        if isinstance(error, NoConnection):
            self._context.held_leases.end_claim(tokens, ())
            return
        self._context.held_leases.add_unanswered(tokens)

    async def _keep(
        self, jobs: list[ClaimedJob], leases: tuple[LeaseClass, ...], sent_at: float, now: float
    ) -> None:
        present = [each for each in jobs if each.chain_id]
        if len(present) < len(jobs):
            missing = [each for each in jobs if not each.chain_id]
            # Before the others can end: a lease is freed with the last job that bears its token.
            await self._end_missing(missing, {each.token for each in present})
        self._hold(present, leases, sent_at, now)

    async def _end_missing(self, jobs: list[ClaimedJob], held: set[str]) -> None:
        """Take jobs whose rows were deleted behind us out of the queue: nobody could run them."""
        context = self._context
        finishes = [
            Finish(each.id, each.token, "cancel", context.id, each.id, error=MISSING)
            for each in jobs
        ]
        freed = list({each.token for each in jobs} - held)
        with context.health.report(self._link.purpose):
            await self._link.run(context.store.jobs.finish(finishes, awaited=True))
            await self._link.run(context.store.leases.free(freed))
        for each in jobs:
            context.emitter.emit("job_missing", job_id=each.id, type=each.type)

    def _hold(
        self, jobs: list[ClaimedJob], leases: tuple[LeaseClass, ...], sent_at: float, now: float
    ) -> None:
        sent_ms = int(sent_at * 1000)
        held = {
            each.token: HeldLease(
                each.token, each.lease_ms, local_deadline_ms(sent_ms, each.lease_ms) / 1000
            )
            for each in leases
        }
        types, policies = self._context.types, self._context.policies
        attempts = [
            Attempt(job, types[job.type], policies.get(job.type), now, held[job.token])
            for job in jobs
        ]
        for attempt in attempts:
            held[attempt.claimed.token].attempts[attempt.claimed.id] = attempt
        self._room.take(attempts)
        self._context.held_leases.end_claim(
            held.keys(), (each for each in held.values() if each.attempts)
        )
        self._context.counters.claimed += len(jobs)
        if jobs:
            deadline = min(each.deadline for each in held.values() if each.attempts)
            self._context.wakes.deadlines.expect(deadline)
        suspects = [each for each in attempts if self._quarantine.is_suspect(each)]
        self._backlog.put([each for each in attempts if each not in suspects])
        for each in suspects:
            self._quarantine.put(each)

    async def _has_nothing_left(self, is_idle: bool) -> bool:
        """Whether the worker is to end because nothing is due; where only suspects are left, it is their turn."""
        self._look_everywhere_if_asked()
        ends = is_idle and self._context.options.stop_when_idle and self._room.left != 0
        ends = ends and not self._connections.is_short and not self._wake.is_more_coming
        is_paused = self._quarantine.is_paused and not self._context.held_leases
        if not (ends or is_paused) or not all(each.is_exhausted() for each in self._sources):
            return False
        if self._quarantine.note_idle():
            self.hint(None, full_scan=True)
            return False
        return ends and not await self._waits_for_rate()

    async def _waits_for_rate(self) -> bool:
        for each in self._sources:
            if await each.waits_for_rate():
                return True
        return False

    async def _wait_for_more(self, has_found: bool) -> None:
        """Wait until something happens or a source, or a type that is paused, is due again."""
        if has_found and not any(each.waits_for_room() for each in self._sources):
            # Nothing is left to be claimed, so the slots go first.
            await asyncio.sleep(0)
        next_at = min([await each.next_at(has_found) for each in self._sources])
        now = self._clock.monotonic()
        wait = min(next_at, self._room.next_at(now)) - now
        if wait > 0:
            await self._clock.wait(self._wake, None if wait == math.inf else wait)
