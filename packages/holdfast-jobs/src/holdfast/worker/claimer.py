"""Claims due jobs: how many, of which types, from where, and when to ask again."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from holdfast.core.errors import NoConnection
from holdfast.core.lease import local_deadline_ms
from holdfast.core.records import Claim, ClaimedJob, Finish, LeaseClass, Probe
from holdfast.core.registry import JobType
from holdfast.storage.database import Link
from holdfast.storage.id_generator import new_id
from holdfast.worker.attempt import Attempt, Backlog
from holdfast.worker.claim_cursors import ClaimCursors, PlannedProbe, ProbePlan
from holdfast.worker.held_leases import HeldLease
from holdfast.worker.limited_claims import LimitedClaims
from holdfast.worker.options import LARGEST_CLAIM, PollBackoff, WorkerOptions
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.worker_context import WorkerContext

CLAIM_MAX = 10_000
"""No claim asks for more: the statement reads so many rows of a probe and no more."""
MISSING = "its row was deleted by SQL"
EVER_US = 10**15
LOOK_BACK_US = 1_000
"""For clocks that do not quite agree."""
FINISHED_WINDOW_MS = 50
"""Quick jobs are claimed ahead for about so long. Slower ones are claimed only into free slots: a claim costs little
beside such a call, and what waited behind it would wait long."""

CRASHED_EVERY_S = 5.0
"""So often at least, nothing is claimed ahead until a slot is free: only then may a job be taken whose worker died."""


class Claimer:
    """One loop per worker. The size of a claim follows what the slots can take and what they finished just now."""

    def __init__(
        self,
        context: WorkerContext,
        link: Link,
        backlog: Backlog,
        quarantine: Quarantine,
        backoff: PollBackoff,
        expect_deadline: Callable[[float], None],
        on_lost_answer: Callable[[], None],
        is_held_back: Callable[[], bool],
        is_more_coming: Callable[[], bool],
    ) -> None:
        """`expect_deadline` is called with the deadline of each new lease.

        Nothing is claimed while `is_held_back`, and a worker that is to end when it is idle does not while
        `is_more_coming`; call `nudge` when that is over.
        """
        self._context = context
        self._link = link
        self._backlog = backlog
        self._quarantine = quarantine
        self._backoff = backoff
        self._expect_deadline = expect_deadline
        self._on_lost_answer = on_lost_answer
        self._is_held_back = is_held_back
        self._is_more_coming = is_more_coming
        self._clock = context.clock
        self._connections = context.connections
        self._cursors = ClaimCursors()
        self._limited = LimitedClaims(context.types, context.options)
        self._is_limited_turn = True
        self._batched = [name for name, each in context.types.items() if each.batch]
        self._capacity = Capacity(context.options, context.types)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._busy_until: dict[str, float] = {}
        self._left = context.options.max_items
        self._hinted = False
        self._sent_at = 0.0
        self._crashed_due = -math.inf

    def hint(self, type: str | None = None, full_scan: bool = False) -> None:
        """Claim soon: jobs of a type, or of any, may be due; released ones lie before the cursor."""
        if type is not None and type not in self._context.types:
            return
        if self._limited:
            self._limited.hint(type)
        is_plain = type is None or type in self._limited.plain
        if full_scan and is_plain:
            self._cursors.request_full_scan(type)
            self._crashed_due = -math.inf
        elif type is not None and is_plain:
            self._cursors.hint(type)
        self._hinted = True
        self._wake.set()

    def note_gates(self, has_gates: bool) -> None:
        """Note whether jobs may wait at gates; where none do, types without limits never ask about them."""
        if self._limited.note_gates(has_gates):
            self._hinted = True
            self._wake.set()

    def nudge(self) -> None:
        """Try again, though nothing new may be due."""
        self._wake.set()

    def free_slot(self, attempt: Attempt) -> None:
        """Note that an attempt no longer needs its slot."""
        self._capacity.remove_ended(attempt, attempt.ended_at or self._clock.monotonic())
        self._quarantine.recheck()
        self._wake.set()

    def return_unstarted(self, attempt: Attempt) -> None:
        """Note that an attempt is given back that never had a slot."""
        self._capacity.remove_unstarted(attempt)
        self._quarantine.recheck()
        self._wake.set()

    def pause_type(self, type: str, seconds: float) -> None:
        """Claim no job of this type for a while: its handler raised Busy."""
        self._busy_until[type] = self._clock.monotonic() + seconds

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> str:
        """Claim until stopped, or until the options say that it is enough; return why it ended."""
        while not self._stopping.is_set():
            self._wake.clear()
            is_idle = self._is_idle()
            if self._left == 0 and is_idle:
                return "budget"
            await self._look_for_connections()
            if self._limited:
                await self._look_at_gates(is_idle)
            plan = self._plan()
            if plan is None:
                if is_idle and self._left != 0 and self._has_nothing_left():
                    return "idle"
                await self._clock.wait(self._wake, self._until_next_look(self._until_not_busy()))
                continue
            if await self._claim_and_wait(plan, is_idle):
                return "idle"
        return "stopped"

    async def _claim_and_wait(self, plan: ProbePlan, is_idle: bool) -> bool:
        """Claim once and wait as long as it makes sense; True when there is nothing left to wait for."""
        hinted, self._hinted = self._hinted, False
        try:
            jobs = await self._claim(plan)
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)
            if isinstance(error, NoConnection):
                self._connections.rest()
            await self._clock.wait(self._stopping, self._backoff.error_s(self._clock.random()))
            return False
        self._context.health.report_ok(self._link.purpose)
        self._backoff.note_found(len(jobs))
        if plan.was_cut(jobs) or not plan.is_whole:
            if self._context.options.next_job_delay_ms:
                delay = self._context.options.next_job_delay_ms / 1000
                await self._clock.wait(self._stopping, delay)
            return False
        if not jobs and not self._context.held_leases and self._quarantine.note_idle():
            self._cursors.request_full_scan()
            return False
        if not jobs and is_idle and self._has_nothing_left():
            if plan.is_full_scan:
                return True
            self._cursors.request_full_scan()
            return False
        await self._wait_for_more(plan, hinted and not jobs)
        return False

    def _is_idle(self) -> bool:
        """Whether nothing is held, as far as the options make that a reason to end."""
        options = self._context.options
        if not options.stop_when_idle and options.max_items is None:
            return False
        return len(self._context.held_leases) == 0

    def _plan(self) -> ProbePlan | None:
        """Plan a claim of every type that may run now, each with its own room and cursor; None without room."""
        now = self._clock.monotonic()
        free_slots = self._capacity.free_slots
        room = self._capacity.room(now, len(self._backlog))
        is_crashed_turn = now >= self._crashed_due and self._holds_no_crashed()
        if is_crashed_turn:
            room = min(room, free_slots)
        if room <= 0 or self._left == 0 or self._quarantine.is_occupied or self._is_held_back():
            return None
        if is_crashed_turn:
            self._cursors.request_full_scan()

        def room_of(name: str) -> int:
            return self._room_of(name, room, now, free_slots)

        limit = self._limit(math.ceil(room), map(room_of, self._batched))
        plan = self._cursors.plan(self._limited.plain, room_of, limit, now)
        return plan if plan.probes else None

    async def _look_for_connections(self) -> None:
        try:
            await self._connections.look(self._has_due)
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)

    async def _has_due(self, types: list[str]) -> bool:
        if any(name not in self._limited.plain for name in types):
            # What waits at a gate has no due time.
            return True
        delay = await self._link.run(self._context.store.jobs.next_due(types, EVER_US))
        return delay is not None and delay <= 0

    async def _look_at_gates(self, is_idle: bool) -> None:
        """Claim what the gates of limited types let through, as far as there is room.

        While there are jobs of other types as well, every other slot is theirs.
        """
        all_of_them = is_idle and self._context.options.stop_when_idle
        for name in list(self._limited.due(self._clock.monotonic(), all_of_them)):
            now = self._clock.monotonic()
            room = self._capacity.room(now, len(self._backlog))
            if room <= 0 or self._left == 0 or self._quarantine.is_occupied or self._is_held_back():
                return
            if self._cursors.was_cut:
                self._is_limited_turn = not self._is_limited_turn
                room = room / 2 if room > 1 else room * self._is_limited_turn
            limit = self._limited_room(name, room, now)
            if limit <= 0 or self._stopping.is_set():
                continue
            try:
                if self._limited.is_to_line_up(name, now):
                    line_up = self._limited.line_up(self._context.store, name)
                    await self._link.run_atomic(line_up)
                await self._claim_limited(name, limit, is_last=all_of_them)
            except Exception as error:
                self._context.health.report_error(self._link.purpose, error)
                await self._clock.wait(self._stopping, self._backoff.error_s(self._clock.random()))
                return
            self._context.health.report_ok(self._link.purpose)

    def _limited_room(self, name: str, room: float, now: float) -> int:
        """How many jobs of a limited type to ask for; where starts are counted, none that would wait for a slot."""
        free_slots = self._capacity.free_slots
        if self._limited.has_rate(name):
            room = min(room, free_slots)
        limit = self._room_of(name, room, now, free_slots)
        return min(limit, CLAIM_MAX if self._left is None else self._left)

    async def _claim_limited(self, name: str, limit: int, is_last: bool) -> None:
        held_leases, clock = self._context.held_leases, self._clock
        lease = msgspec.structs.replace(self._context.policies.lease_class(name), token=new_id())
        sent_at = clock.monotonic()
        claim = self._limited.claim(
            name,
            limit,
            self._context.id,
            lease,
            self._may_take_crashed(),
            self._context.options.claims,
            sent_at,
            is_last,
        )
        held_leases.begin_claim([lease.token])
        try:
            answer = await self._link.run(self._context.store.limits.claim(claim))
        except BaseException as error:
            self._give_up_claim([lease.token], error)
            raise
        now = clock.monotonic()
        self._limited.note(claim, answer, sent_at, now, self._backoff.hints_alive, clock.random())
        await self._keep(answer.jobs, (lease,), sent_at, now)

    def _may_take_crashed(self) -> bool:
        return self._capacity.free_slots > 0 and self._holds_no_crashed()

    def _holds_no_crashed(self) -> bool:
        return self._context.held_leases.crashed == 0 and not self._quarantine.is_paused

    def _has_nothing_left(self) -> bool:
        """Whether the worker is to end when it is idle, no gate lets anything through, and no redrive goes on."""
        is_last = self._context.options.stop_when_idle and not self._connections.is_short
        is_last = is_last and not self._is_more_coming()
        return is_last and self._limited.are_idle

    def _until_next_look(self, wait: float | None) -> float | None:
        """How long to wait at most, given that gates of limited types are to be looked at."""
        if not self._limited:
            return wait
        now = self._clock.monotonic()
        room = self._capacity.room(now, len(self._backlog))
        next_at = self._limited.next_at(lambda name: self._limited_room(name, room, now) > 0)
        if next_at == math.inf or self._quarantine.is_occupied or self._is_held_back():
            return wait
        return max(0.0, next_at - now if wait is None else min(wait, next_at - now))

    def _limit(self, room: int, rooms: Iterable[int]) -> int:
        """How many jobs to ask for: for a batch handler's type one slot takes many."""
        return min(max(room, *rooms, 0), CLAIM_MAX if self._left is None else self._left)

    def _room_of(self, name: str, room: float, now: float, free_slots: float) -> int:
        """How many jobs of a type to ask for at most."""
        if self._context.policies.is_paused(name) or self._busy_until.get(name, now) > now:
            return 0
        own = self._capacity.room_of(name, self._context.policies.limit(name), free_slots)
        own = min(own, int(min(self._connections.room_of(name), CLAIM_MAX)))
        return min(math.ceil(room * (self._context.types[name].batch or 1)), own)

    def _probe(self, planned: PlannedProbe, tokens: dict[LeaseClass, str]) -> Probe:
        policies = self._context.policies
        key = policies.lease_class(planned.type)
        token = tokens.get(key)
        if token is None:
            token = tokens[key] = new_id()
        most = None if policies.limit(planned.type) is None else planned.room
        return Probe(
            planned.type,
            planned.priority,
            token,
            planned.room,
            planned.after,
            planned.after_id,
            most,
            planned.share if planned.share < planned.room else None,
        )

    async def _claim(self, plan: ProbePlan) -> list[ClaimedJob]:
        held_leases = self._context.held_leases
        tokens_by_class: dict[LeaseClass, str] = {}
        probes = tuple(self._probe(each, tokens_by_class) for each in plan.probes)
        classes = tuple(
            msgspec.structs.replace(each, token=token) for each, token in tokens_by_class.items()
        )
        tokens = list(tokens_by_class.values())
        claim = Claim(
            worker=self._context.id,
            limit=plan.limit,
            probes=probes,
            classes=classes,
            allow_crashed=self._may_take_crashed(),
            commit=self._context.options.claims,
        )
        held_leases.begin_claim(tokens)
        self._sent_at = sent_at = self._clock.monotonic()
        try:
            jobs = await self._link.run(self._context.store.jobs.claim(claim))
        except BaseException as error:
            self._give_up_claim(tokens, error)
            raise
        now = self._clock.monotonic()
        self._cursors.advance(plan, jobs, plan.was_cut(jobs), now, now - sent_at)
        if claim.allow_crashed and plan.is_full_scan and not any(each.crashes for each in jobs):
            self._crashed_due = now + CRASHED_EVERY_S
        await self._keep(jobs, classes, sent_at, now)
        return jobs

    def _give_up_claim(self, tokens: list[str], error: BaseException) -> None:
        """Note a claim without an answer: it may have taken jobs, unless there was no connection to send it on."""
        if isinstance(error, NoConnection):
            self._context.held_leases.end_claim(tokens, ())
            return
        self._context.held_leases.add_unanswered(tokens)
        self._on_lost_answer()

    async def _keep(
        self, jobs: list[ClaimedJob], classes: tuple[LeaseClass, ...], sent_at: float, now: float
    ) -> None:
        present = [each for each in jobs if each.chain_id]
        if len(present) < len(jobs):
            missing = [each for each in jobs if not each.chain_id]
            # Before the others can end: a lease is freed with the last job that bears its token.
            await self._end_missing(missing, {each.token for each in present})
        self._hold(present, classes, sent_at, now)

    async def _end_missing(self, jobs: list[ClaimedJob], held: set[str]) -> None:
        """Take jobs whose rows were deleted behind us out of the queue: nobody could run them."""
        context = self._context
        finishes = [
            Finish(each.id, each.token, "cancel", context.id, each.id, error=MISSING)
            for each in jobs
        ]
        freed = list({each.token for each in jobs} - held)
        with context.health.report(self._link.purpose):
            await self._link.run(context.store.jobs.finish(finishes, freed, awaited=True))
        for each in jobs:
            context.emitter.emit("job_missing", job_id=each.id, type=each.type)

    def _hold(
        self, jobs: list[ClaimedJob], classes: tuple[LeaseClass, ...], sent_at: float, now: float
    ) -> None:
        sent_ms = int(sent_at * 1000)
        held = {
            each.token: HeldLease(
                each.token, each.lease_ms, local_deadline_ms(sent_ms, each.lease_ms) / 1000
            )
            for each in classes
        }
        types, policies = self._context.types, self._context.policies
        attempts = [
            Attempt(job, types[job.type], policies.get(job.type), now, held[job.token])
            for job in jobs
        ]
        for attempt in attempts:
            held[attempt.claimed.token].attempts[attempt.claimed.id] = attempt
        flow = attempts[0].type.flow if attempts else None
        if flow is not None and flow.batch is not None:
            note_call_sizes(attempts)
        self._capacity.add(attempts)
        self._context.held_leases.end_claim(
            held.keys(), (each for each in held.values() if each.attempts)
        )
        self._context.counters.claimed += len(jobs)
        if self._left is not None:
            self._left -= len(jobs)
        if jobs:
            self._expect_deadline(min(each.deadline for each in held.values() if each.attempts))
        suspects = [each for each in attempts if self._quarantine.is_suspect(each)]
        self._backlog.put([each for each in attempts if each not in suspects])
        for each in suspects:
            self._quarantine.put(each)

    async def _wait_for_more(self, plan: ProbePlan, hint_found_nothing: bool) -> None:
        """Nothing more is due behind the cursors: sleep until a hint, the next due time, or the poll."""
        if self._cursors.needs_full_scan(plan.rooms):
            return
        now = self._clock.monotonic()
        if hint_found_nothing and self._scan_before_cursors(plan, now):
            return
        wait = self._backoff.poll_s(self._clock.random())
        if not plan.is_full_scan:
            wait = min(wait, min(map(self._cursors.full_scan_due, plan.rooms)) - now)
        elif not self._wake.is_set():
            wait = min(wait, await self._next_due(list(plan.rooms)))
        wait = min(wait, self._until_not_busy() or wait)
        if hint_found_nothing or plan.is_full_scan:
            await self._check_for_lines(hint_found_nothing)
        await self._clock.wait(self._wake, max(0.0, self._until_next_look(wait) or 0.0))

    async def _check_for_lines(self, was_hinted: bool) -> None:
        """Find jobs at gates of types that the code does not limit any more."""
        if not self._limited.is_to_check(self._clock.monotonic(), was_hinted):
            return
        lined = self._context.store.limits.lined(list(self._limited.plain))
        with self._context.health.report(self._link.purpose):
            self._limited.serve_unlimited(await self._link.run(lined))

    def _scan_before_cursors(self, plan: ProbePlan, now: float) -> bool:
        """A hinted row may lie before the cursor, if its transaction began before our last find."""
        scanned = plan.fully_scanned
        late = [
            name
            for name in plan.rooms
            if name not in scanned and self._cursors.allows_full_scan(name, now)
        ]
        for name in late:
            self._cursors.request_full_scan(name)
        return bool(late)

    def _until_not_busy(self) -> float | None:
        """How long until the first type may be claimed again; None when none is paused by Busy or lacks connections."""
        now = self._clock.monotonic()
        self._busy_until = {name: at for name, at in self._busy_until.items() if at > now}
        ends = [*self._busy_until.values(), *self._connections.next_looks(now)]
        return min(ends) - now if ends else None

    async def _next_due(self, types: list[str]) -> float:
        """In how many seconds to claim again; at once, if something became due after the last claim was sent."""
        back_us = int((self._clock.monotonic() - self._sent_at) * 1_000_000) + LOOK_BACK_US
        try:
            delay = await self._link.run(self._context.store.jobs.next_due(types, back_us))
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)
            return math.inf
        return math.inf if delay is None else delay / 1_000_000


@dataclass(slots=True)
class _Finished:
    """What ended within one millisecond: thousands end in a second, too many to keep one by one."""

    at_ms: int
    weight: float


class Capacity:
    """How much a worker can take: its free slots, and as much as it finished a moment ago.

    A batch handler's job weighs as much as its share of a call: of a whole batch, or of what there was of its key.
    """

    def __init__(self, options: WorkerOptions, types: Mapping[str, JobType]) -> None:
        self._slots = options.slots
        self._most = options.batch or LARGEST_CLAIM
        self._sizes = {name: each.batch or 1 for name, each in types.items()}
        self._taken = dict.fromkeys(types, 0)
        self._in_calls: dict[tuple[str, int], int] = {}
        self._slow: set[str] = set()
        self._finished: deque[_Finished] = deque()
        self._finished_weight = 0.0

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Count claimed jobs by their types."""
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
        self._count(attempt, -1)
        name = attempt.type.name
        if attempt.started_at is None or (at - attempt.started_at) * 1000 > FINISHED_WINDOW_MS:
            self._slow.add(name)
            return
        if self._slow:
            self._slow.discard(name)
        weight = 1 / (attempt.call_size or self._sizes[name])
        self._finished_weight += weight
        at_ms = int(at * 1000)
        if self._finished and self._finished[-1].at_ms == at_ms:
            self._finished[-1].weight += weight
        else:
            self._finished.append(_Finished(at_ms, weight))

    @property
    def free_slots(self) -> float:
        """How many slots are free of claimed work; below zero when more was claimed than there are slots."""
        taken = sum(count / self._sizes[name] for name, count in self._taken.items() if count)
        return self._slots - taken - self._calls_of(None)

    def _calls_of(self, name: str | None) -> int:
        """How many calls the jobs make that came with others of their key, of one type or of all."""
        return sum(
            math.ceil(count / size)
            for (owner, size), count in self._in_calls.items()
            if name in (None, owner)
        )

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
        return min(most, (limit - self._calls_of(name)) * size - self._taken[name])


def note_call_sizes(attempts: Iterable[Attempt]) -> None:
    """Note how many jobs of its key came with each: a call of few takes a slot like one of many."""
    by_gate: dict[str | None, list[Attempt]] = {}
    for attempt in attempts:
        by_gate.setdefault(attempt.claimed.gate, []).append(attempt)
    for together in by_gate.values():
        size = together[0].type.batch or 1
        for start in range(0, len(together), size):
            call = together[start : start + size]
            for attempt in call:
                attempt.call_size = len(call)
