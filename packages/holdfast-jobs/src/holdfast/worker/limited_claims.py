"""Claims jobs of limited types: when the partitions of each are polled, from which signal on, and how many.

Every type has its own time for the next poll: at once after a hint or while more is due, otherwise when the next signal
is. A poll begins behind the signals that were answered before; a full poll begins at the first, and finds those of
transactions that committed late.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from holdfast.core.flow import MAX_PER_ROUND, Flow
from holdfast.core.partitions import (
    BatchRule,
    LimitedAnswer,
    LimitedClaim,
    PartitionRule,
    QueuedJob,
    SignalMark,
    UnqueuedJob,
)
from holdfast.core.records import DEFAULT_PRIORITY, PRIORITIES, ClaimCommit, ClaimedJob, LeaseClass
from holdfast.core.sealing import Sealer, open_input
from holdfast.extensions import count_costs
from holdfast.storage.database import Link
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.claims import ClaimRoom, PlannedClaim
from holdfast.worker.options import PollBackoff
from holdfast.worker.worker_context import WorkerContext

FULL_POLL_MAX_S = 5.0
COST_FACTOR = 20
"""Full polls take at most one part in so many of the time."""
BUSY_MIN_S, BUSY_MAX_S = 0.004, 0.25
"""When to poll again where another claimer has the partitions."""
HELD_BACK_S = 0.5
"""When to poll again where a limit of several types is full: what ends in another application sends no hint here."""
MIN_WINDOW, MAX_WINDOW = 100, 20_000
SPARE_PARTITIONS = 6
MAX_PARTITIONS = 500
"""A poll of so many takes tens of milliseconds, and others cannot poll them meanwhile."""
MIN_PER_PARTITION = 0.5
"""A poll reads two signals for each job it wants: it reaches no further where most queues turn out to be empty."""
POLLED_FOR_BATCHES = 100
"""So many queues that wait for more jobs may be polled besides those that a claim can take."""
ENQUEUE_S = 0.25
ENQUEUED_AT_ONCE = 500
UNLIMITED_CHECK_S, SERVED_CHECK_S, HINTED_CHECK_S = 60.0, 5.0, 1.0
"""How often to ask for partitions of types that the code does not limit, while there are any; more often where some
were found, and where a hint found nothing."""


class TypePolls(msgspec.Struct):
    """When to poll the partitions of a type, and from which signal on. Without a flow, the code limits it no more."""

    type: str
    flow: Flow | None
    backoff: PollBackoff
    reads: int = 1
    next_at: float = -math.inf
    full_at: float = -math.inf
    cost: float = 0.0
    enqueued_at: float = -math.inf
    window: int = MIN_WINDOW
    per_partition: float = 1.0
    busy_s: float = BUSY_MIN_S
    is_full_poll: bool = True
    is_idle: bool = False
    next_us: int | None = None
    is_hinted: bool = False
    has_unqueued: bool = False
    marks: dict[int, SignalMark] = msgspec.field(default_factory=dict)

    def hint(self) -> None:
        """Poll soon, also if a poll is under way: what the hint is about may have come too late for it."""
        self.next_at = -math.inf
        self.is_hinted = True

    def partitions_for(self, limit: int) -> int:
        """How many partitions to poll for so many jobs."""
        return min(math.ceil(limit / self.per_partition) + SPARE_PARTITIONS, MAX_PARTITIONS)

    @property
    def full_due(self) -> float:
        """When the next full poll may be."""
        return self.full_at + min(FULL_POLL_MAX_S, COST_FACTOR * self.cost)

    def request(
        self,
        limit: int,
        worker: str,
        lease: LeaseClass,
        allow_crashed: bool,
        commit: ClaimCommit,
        now: float,
        is_last: bool = False,
    ) -> LimitedClaim:
        """Make the claim of the next poll; the last one of a worker that ends when nothing is left is full."""
        self.is_hinted = False
        self.is_full_poll = is_last or now >= self.full_due
        if self.is_full_poll:
            marks = tuple(SignalMark(priority) for priority in PRIORITIES)
        else:
            marks = tuple(self.marks[priority] for priority in sorted(self.marks))
        flow = self.flow
        per_round = flow.per_round if flow else MAX_PER_ROUND
        batch = flow.batch if flow else None
        calls = max(1, limit // batch.size) if batch else 1
        if batch is not None and is_last:
            # Nothing more is expected by a worker that ends when nothing is left.
            batch = BatchRule(batch.size)
        return LimitedClaim(
            worker=worker,
            type=self.type,
            limit=limit,
            lease=lease,
            per_key=flow.per_key if flow else PartitionRule(self.type),
            shared=flow.shared if flow else (),
            ordered=flow is not None and flow.ordered is not None,
            holds=flow is not None and flow.ordered == "hold",
            weights=flow.weight_by_partition() if flow else {},
            marks=marks,
            window=max(self.window, 2 * limit),
            partitions=self.partitions_for(limit)
            if batch is None
            else math.ceil(limit / per_round) + POLLED_FOR_BATCHES,
            allow_crashed=allow_crashed,
            commit=commit,
            per_round=per_round,
            batch=batch,
            calls=calls,
            max_cost=flow.max_cost if flow else None,
            reads=self.reads,
        )

    def note(
        self,
        claim: LimitedClaim,
        answer: LimitedAnswer,
        sent_at: float,
        now: float,
        hints_alive: bool,
        random: float,
    ) -> None:
        """Note what a poll brought, and when the next one is due."""
        self._move_marks(answer)
        if self.is_full_poll:
            self.full_at, self.cost = now, now - sent_at
        was_cut = answer.signals >= claim.window
        if was_cut and answer.partitions < claim.partitions:
            self.window = min(MAX_WINDOW, 4 * self.window)
        elif not was_cut:
            self.window = max(MIN_WINDOW, self.window // 2)
        self._count_per_partition(claim, answer)
        has_more = self.has_unqueued or bool(answer.jobs and answer.left > 0)
        was_cut = was_cut or answer.partitions > claim.partitions
        has_more = has_more or (was_cut and answer.left < answer.signals)
        self.backoff.hints_alive = hints_alive
        self.backoff.note_found(len(answer.jobs))
        poll_s = self.backoff.poll_s(random)
        is_busy = answer.busy or (answer.left > 0 and not answer.jobs)
        self.is_idle = not (answer.jobs or has_more or is_busy) and self.is_full_poll
        self.next_us = answer.next_us
        self.next_at = now + self._pause(answer, has_more, is_busy, poll_s, random)
        if not self.is_full_poll:
            self.next_at = min(self.next_at, max(now, self.full_due))
        if self.is_hinted:
            self.next_at = now

    def _pause(
        self, answer: LimitedAnswer, has_more: bool, is_busy: bool, poll_s: float, random: float
    ) -> float:
        if has_more:
            self.busy_s = BUSY_MIN_S
            return 0.0
        wait = poll_s if answer.next_us is None else min(poll_s, answer.next_us / 1_000_000)
        if is_busy:
            self.busy_s = min(BUSY_MAX_S, 2 * self.busy_s)
            return min(wait, self.busy_s * (0.5 + random))
        self.busy_s = BUSY_MIN_S
        if answer.held_back:
            return min(wait, HELD_BACK_S * (0.5 + random))
        return wait

    def _move_marks(self, answer: LimitedAnswer) -> None:
        if self.is_full_poll:
            self.marks = {DEFAULT_PRIORITY: SignalMark(DEFAULT_PRIORITY)}
        for mark in answer.marks:
            if mark.at or mark.priority in self.marks:
                self.marks[mark.priority] = mark

    def _count_per_partition(self, claim: LimitedClaim, answer: LimitedAnswer) -> None:
        """Note how many jobs a partition lets through, so that the next poll is of as many as fill its claim."""
        if not answer.partitions:
            return
        polled = min(claim.partitions, answer.partitions)
        if len(answer.jobs) >= claim.limit:
            polled = len({job.gate for job in answer.jobs})
        per_partition = (self.per_partition + len(answer.jobs) / polled) / 2
        self.per_partition = min(max(per_partition, MIN_PER_PARTITION), claim.per_round)

    def enqueue(self, store: Store, sealer: Sealer | None, now: float) -> Op[int] | None:
        """Return what queues jobs that were started without knowing of the limit, if it is time for that."""
        is_due = now >= max(self.full_due, self.enqueued_at + ENQUEUE_S)
        if self.flow is None or not (self.has_unqueued or is_due):
            return None
        self.enqueued_at = now
        return self._enqueue(store, self.flow, sealer)

    def _enqueue(self, store: Store, flow: Flow, sealer: Sealer | None) -> Op[int]:
        jobs = yield from store.limits.unqueued(self.type, ENQUEUED_AT_ONCE, self.reads)
        self.has_unqueued = False
        if not jobs:
            return 0
        moves = []
        for each in jobs:
            gate, cost = _place_of(flow, each, sealer)
            moves.append(QueuedJob(each.id, gate, each.available_at, cost))
        moved = yield from store.limits.enqueue(moves, flow.ordered is not None)
        self.has_unqueued = moved > 0 and len(jobs) == ENQUEUED_AT_ONCE
        return moved


class LimitedClaims:
    """The limited types of a worker: a claim polls one of them. On the loop.

    Types without limits are polled too while jobs of theirs are left in partitions.
    """

    def __init__(
        self, context: WorkerContext, link: Link, room: ClaimRoom, backoff: PollBackoff
    ) -> None:
        self._context = context
        self._clock = context.clock
        self._link = link
        self._room = room
        self._backoff = backoff
        self._polls = {
            name: TypePolls(name, each.flow, PollBackoff(context.options), each.version)
            for name, each in context.types.items()
            if each.flow is not None
        }
        self._unlimited = [name for name, each in context.types.items() if each.flow is None]
        self._is_own_turn = True
        self._lacks_room = False
        self._has_partitions = False
        self._is_hinted = False
        self._checked_at = -math.inf

    def hint(self, type: str | None, full_scan: bool) -> None:
        """Poll soon: the partitions of a type, or of all."""
        if type is None:
            for each in self._polls.values():
                each.hint()
        elif type in self._polls:
            self._polls[type].hint()
        self._is_hinted = True

    def expect_later(self) -> None:
        """Its place in a partition has a signal, with its time."""

    def note_partitions(self, has_partitions: bool) -> bool:
        """Note whether the database has any partition; return whether types without limits are to be checked."""
        is_new = has_partitions and not self._has_partitions and bool(self._unlimited)
        self._has_partitions = has_partitions
        self._is_hinted |= is_new
        return is_new

    def plan(self, is_last: bool) -> Iterator[PlannedClaim[LimitedClaim]]:
        """Plan a claim of each type that is due, as far as there is room; the one that waited longest is first.

        While there are jobs of types without limits as well, every other slot is theirs.
        """
        if not self._polls:
            return
        # Not with each type: of an even number, the same ones would have the turn in every round.
        self._is_own_turn = not self._is_own_turn
        now = self._clock.monotonic()
        for polls in [each for each in self._by_time() if is_last or each.next_at <= now]:
            now = self._clock.monotonic()
            slots = self._room.slots(now)
            if slots <= 0:
                return
            if self._room.is_contended:
                slots = slots / 2 if slots > 1 else slots * self._is_own_turn
            limit = self._room_of(polls, slots, now)
            if limit > 0:
                yield self._request(polls, limit, now, is_last)

    def _by_time(self) -> list[TypePolls]:
        return sorted(self._polls.values(), key=lambda each: each.next_at)

    def _room_of(self, polls: TypePolls, slots: float, now: float) -> int:
        """How many jobs of a type to ask for; where starts are counted, none that would wait for a slot."""
        free_slots = self._room.free_slots
        if polls.flow is not None and polls.flow.has_rate:
            slots = min(slots, free_slots)
        return self._room.cap(self._room.of(polls.type, slots, now, free_slots))

    def _request(
        self, polls: TypePolls, limit: int, now: float, is_last: bool
    ) -> PlannedClaim[LimitedClaim]:
        context = self._context
        lease = msgspec.structs.replace(context.policies.lease_class(polls.type), token=new_id())
        enqueue = polls.enqueue(context.store, context.types[polls.type].sealer, now)
        crashed, commit = self._room.takes_crashed, context.options.claims
        claim = polls.request(limit, context.id, lease, crashed, commit, now, is_last)
        return PlannedClaim(claim, (lease,), enqueue)

    def claim(self, request: LimitedClaim) -> Op[LimitedAnswer]:
        """Return the operation of a claim."""
        return self._context.store.jobs.claim_limited(request)

    def note(
        self, request: LimitedClaim, answer: LimitedAnswer, sent_at: float, now: float
    ) -> list[ClaimedJob]:
        """Note when the type is polled next; return the jobs."""
        polls, random = self._polls[request.type], self._clock.random()
        polls.note(request, answer, sent_at, now, self._backoff.hints_alive, random)
        return answer.jobs

    def waits_for_room(self) -> bool:
        """Whether a poll is due that there was no room for, or would not be made at its time."""
        now = self._clock.monotonic()
        return self._lacks_room or any(each.next_at <= now for each in self._polls.values())

    def is_exhausted(self) -> bool:
        """Whether the last poll of each type found nothing that may start now."""
        return all(each.is_idle for each in self._polls.values())

    async def waits_for_rate(self) -> bool:
        """Whether jobs are due that a rate lets start as soon as the options have a worker wait for it."""
        most_ms, now = self._context.options.rate_wait_ms, self._clock.monotonic()
        names = [
            each.type
            for each in self._polls.values()
            if each.flow is not None
            and 0 < each.flow.period_ms <= most_ms
            and each.next_us is not None
            and each.next_us <= most_ms * 1000
            and self._room_of(each, 1, now) > 0
        ]
        due = dict.fromkeys(names, 1)
        if names:
            with self._context.health.report(self._link.purpose):
                due = await self._link.run(self._context.store.workers.due(names, 1))
        return any(due.values())

    async def next_at(self, has_found: bool) -> float:
        """When the next poll is due of a type that there is room for."""
        await self._check_unlimited(has_found)
        now = self._clock.monotonic()
        slots = self._room.slots(now) if self._polls else 0
        self._lacks_room = False
        for each in self._by_time():
            if slots > 0 and self._room_of(each, slots, now) > 0:
                return each.next_at
            self._lacks_room = True
        return math.inf

    async def has_due(self, types: list[str]) -> bool:
        """Whether one of these types is limited: what waits in a partition has no due time."""
        return any(name not in self._unlimited for name in types)

    async def _check_unlimited(self, has_found: bool) -> None:
        """Find jobs in partitions of types that the code does not limit any more."""
        was_hinted, self._is_hinted = self._is_hinted and not has_found, False
        if not self._unlimited or not self._has_partitions:
            return
        now, interval = self._clock.monotonic(), HINTED_CHECK_S
        if not was_hinted:
            served = any(each.flow is None for each in self._polls.values())
            interval = SERVED_CHECK_S if served else UNLIMITED_CHECK_S
        if now < self._checked_at + interval:
            return
        self._checked_at = now
        queued = self._context.store.limits.queued_types(self._unlimited)
        with self._context.health.report(self._link.purpose):
            self._poll_unlimited(await self._link.run(queued))

    def _poll_unlimited(self, types: set[str]) -> None:
        """Poll the partitions of these types too, until they are empty or left to workers that limit them."""
        for name in [each.type for each in self._polls.values() if each.flow is None]:
            if name not in types:
                del self._polls[name]
        for name in types:
            reads = self._context.types[name].version
            polls = TypePolls(name, None, PollBackoff(self._context.options), reads)
            self._polls.setdefault(name, polls).hint()


def _place_of(flow: Flow, job: UnqueuedJob, sealer: Sealer | None) -> tuple[str, int | None]:
    """Where a job waits, and its cost; one whose input has no usable key waits where no limit of keys holds."""
    gate = f"{flow.type}#"
    try:
        text = open_input(sealer, job.input, job.id, flow.type)
        gate = flow.partition_of(text)
        return gate, None if flow.cost is None else count_costs().cost_of(flow, text)
    except Exception:
        return gate, flow.max_cost
