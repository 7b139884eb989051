"""Claims jobs of types without limits: which types and priorities a claim probes, and where each probe begins.

What is probed follows what was found, so that a claim costs what it takes and not what there could be: a worker of two
hundred types probes a handful of them while it drains a backlog.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import DEFAULT_PRIORITY, PRIORITIES, Claim, ClaimedJob, LeaseClass, Probe
from holdfast.storage.database import Link
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, Row
from holdfast.worker.claims import ClaimRoom, PlannedClaim
from holdfast.worker.options import PollBackoff
from holdfast.worker.worker_context import WorkerContext

START: tuple[Instant, str] = (0, "00000000-0000-0000-0000-000000000000")

FULL_SCAN_MIN_S = 0.25
FULL_SCAN_MAX_S = 5.0
COST_FACTOR = 20
SLOW_SCAN_S, SLACK = 0.01, 10
"""Where a scan takes so long because of jobs that are newer than the worker reads, the next is so much less urgent."""

URGENT = range(DEFAULT_PRIORITY)
PEEKED_TYPES = 2
"""So many types, in turn, are checked for more urgent jobs than were known: each costs five probes."""

SHARING_PROBES = 8
"""A claim is shared by up to so many probes: each returns rows that lie together, and none has to wait long."""

PROBES_A_PRIORITY = 16
"""So many types of a priority are probed, productive and uncertain ones each, while claims come back cut: some will be
empty."""

EVER_US = 10**15
LOOK_BACK_US = 1_000
"""For clocks that do not quite agree."""

CRASHED_EVERY_S = 5.0
"""So often at least, nothing is claimed ahead until a slot is free: only then may a job be taken whose worker died."""
CRASHED_SOON_S = 1.0
"""So often at most after a hint for all types, which a watched file gives after most commits, our own included."""


class PlannedProbe(msgspec.Struct, frozen=True):
    """One probe of a claim: all priorities of a type from the start, or one behind its cursor."""

    type: str
    priority: int | None
    after: Instant
    after_id: str
    share: int
    room: int


class ProbePlan(msgspec.Struct, frozen=True):
    """What one claim probes, in order. It is whole when nothing that is known was left out."""

    probes: list[PlannedProbe]
    limit: int
    is_whole: bool
    rooms: dict[str, int]

    @property
    def fully_scanned(self) -> set[str]:
        """The types that are scanned from the start."""
        return {each.type for each in self.probes if each.priority is None}

    @property
    def is_full_scan(self) -> bool:
        """Whether every type is scanned from the start."""
        return self.is_whole and all(each.priority is None for each in self.probes)

    def was_cut(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Whether there may be more: the limit was reached, or a job came of which only one is taken at a time."""
        return len(jobs) >= self.limit or any(each.crashes for each in jobs)


class PlainClaims:
    """The types of a worker that have no limits: one claim probes all of them. On the loop."""

    def __init__(
        self,
        context: WorkerContext,
        link: Link,
        room: ClaimRoom,
        backoff: PollBackoff,
        wake: asyncio.Event,
    ) -> None:
        """`wake` is set when something happened that is worth another claim."""
        self._context = context
        self._clock = context.clock
        self._link = link
        self._room = room
        self._backoff = backoff
        self._wake = wake
        self._types = {name: each for name, each in context.types.items() if each.flow is None}
        self._reads = {name: each.version for name, each in context.types.items()}
        self._batched = [name for name, each in context.types.items() if each.batch]
        self.cursors = ClaimCursors()
        self._plan: ProbePlan | None = None
        self._has_more = False
        self._waits_for_room = True
        self._is_hinted = False
        self._was_hinted = False
        self._sent_at = self._scan_s = 0.0
        self._paused_until = self._next_at = -math.inf
        self._is_next_known = False
        self._crashed_at = self._crashed_due = -math.inf

    def hint(self, type: str | None, full_scan: bool) -> None:
        """Expect jobs of a type, or of any; released ones lie before the cursor."""
        if type is not None and type not in self._types:
            return
        if full_scan:
            self.cursors.request_full_scan(type)
            soon = self._crashed_at + CRASHED_SOON_S
            self._crashed_due = -math.inf if type is not None else min(self._crashed_due, soon)
        elif type is not None:
            self.cursors.hint(type)
        self._is_hinted = True

    def plan(self, is_last: bool) -> Iterator[PlannedClaim[Claim]]:
        """Plan a claim of every type that may run now, each with its own room and cursor."""
        now = self._clock.monotonic()
        if now < self._paused_until or not (is_last or self._may_find(now)):
            return
        # Until the answer says that there is nothing left.
        self._waits_for_room = True
        self._plan = self._plan_probes(now)
        if self._plan is not None:
            self._was_hinted, self._is_hinted = self._is_hinted, False
            yield self._request(self._plan)

    def _may_find(self, now: float) -> bool:
        """Whether a claim may find something: many wakes are about limited types, or about how long to wait."""
        is_expected = self._is_hinted or self._waits_for_room
        return is_expected or now >= self._next_at or not self._backoff.hints_alive

    def _plan_probes(self, now: float) -> ProbePlan | None:
        free_slots, slots = self._room.free_slots, self._room.slots(now)
        is_crashed_turn = now >= self._crashed_due and self._room.holds_no_crashed
        if is_crashed_turn:
            slots = min(slots, free_slots)
        if slots <= 0:
            return None
        if is_crashed_turn:
            self.cursors.request_full_scan()

        def room_of(name: str) -> int:
            return self._room.of(name, slots, now, free_slots)

        # For a batch handler's type one slot takes many.
        limit = self._room.cap(max(math.ceil(slots), *map(room_of, self._batched), 0))
        plan = self.cursors.plan(self._types, room_of, limit, now)
        return plan if plan.probes else None

    def _request(self, plan: ProbePlan) -> PlannedClaim[Claim]:
        tokens: dict[LeaseClass, str] = {}
        probes = tuple(self._probe(each, tokens) for each in plan.probes)
        leases = tuple(msgspec.structs.replace(each, token=token) for each, token in tokens.items())
        claim = Claim(
            worker=self._context.id,
            limit=plan.limit,
            probes=probes,
            classes=leases,
            allow_crashed=self._room.takes_crashed,
            commit=self._context.options.claims,
        )
        return PlannedClaim(claim, leases)

    def _probe(self, planned: PlannedProbe, tokens: dict[LeaseClass, str]) -> Probe:
        policies = self._context.policies
        key = policies.lease_class(planned.type)
        token = tokens.get(key)
        if token is None:
            token = tokens[key] = new_id()
        return Probe(
            planned.type,
            planned.priority,
            token,
            planned.room,
            planned.after,
            planned.after_id,
            None if policies.limit(planned.type) is None else planned.room,
            planned.share if planned.share < planned.room else None,
            self._reads[planned.type],
        )

    def claim(self, request: Claim) -> Op[list[ClaimedJob]]:
        """Return the operation of a claim."""
        return self._context.store.jobs.claim(request)

    def note(
        self, request: Claim, answer: list[ClaimedJob], sent_at: float, now: float
    ) -> list[ClaimedJob]:
        """Move the cursors; return the jobs."""
        plan = self._plan
        assert plan is not None
        is_cut = plan.was_cut(answer)
        self._next_at, self._is_next_known = math.inf, False
        self._sent_at, self._scan_s = sent_at, now - sent_at
        self.cursors.advance(plan, answer, is_cut, now, now - sent_at)
        self._room.is_contended = is_cut
        is_full = plan.is_full_scan
        if request.allow_crashed and is_full and not any(each.crashes for each in answer):
            self._crashed_at, self._crashed_due = now, now + CRASHED_EVERY_S
        self._backoff.note_found(len(answer))
        self._has_more = is_cut or not plan.is_whole
        self._waits_for_room = self._has_more or not self._took_all(plan, request, answer)
        if self._has_more:
            self._paused_until = now + self._context.options.next_job_delay_ms / 1000
        elif self._was_hinted and not answer:
            self._scan_before_cursors(plan, now)
        return answer

    def _took_all(self, plan: ProbePlan, request: Claim, answer: list[ClaimedJob]) -> bool:
        """Whether nothing is left that is due: there was room for all of it, and a hint will tell of what comes."""
        if not self._backoff.hints_alive or not request.allow_crashed:
            return False
        if len(plan.rooms) < len(self._types) or len(answer) < min(plan.rooms.values()):
            return len(plan.rooms) == len(self._types)
        counts = Counter(job.type for job in answer)
        return all(number < plan.rooms[name] for name, number in counts.items())

    def _scan_before_cursors(self, plan: ProbePlan, now: float) -> None:
        """A hinted row may lie before the cursor, if its transaction began before our last find."""
        scanned = plan.fully_scanned
        for name in plan.rooms:
            if name not in scanned and self.cursors.allows_full_scan(name, now):
                self.cursors.request_full_scan(name)

    def waits_for_room(self) -> bool:
        """Whether the last claim may have left something, or has not been answered."""
        return self._waits_for_room

    def is_exhausted(self) -> bool:
        """Whether the last claim scanned all types from the start and found nothing; if not, the next one does."""
        if self._plan is None or (self._plan.is_full_scan and not self._has_more):
            return True
        if not self._has_more:
            self.cursors.request_full_scan()
            self._is_next_known = False
        return False

    async def waits_for_rate(self) -> bool:
        """No rate holds its jobs back."""
        return False

    def expect_later(self) -> None:
        """Ask again when the next job is due."""
        self._is_next_known = False

    async def next_at(self, has_found: bool) -> float:
        """When something may be due behind the cursors, or a full scan or the poll is."""
        if self._plan is None:
            return math.inf
        if not self._is_next_known:
            self._is_next_known = True
            self._next_at = min(self._next_at, await self._find_next_at(self._plan, has_found))
        return self._next_at

    async def _find_next_at(self, plan: ProbePlan, has_found: bool) -> float:
        if self._has_more:
            return self._paused_until
        if self.cursors.needs_full_scan(plan.rooms):
            return -math.inf
        if self._scan_s >= SLOW_SCAN_S and plan.fully_scanned:
            await self._pass_over_newer(plan)
        wait = self._backoff.poll_s(self._clock.random())
        if has_found:
            # Where jobs come one by one, the claim of the next one does what is due by then.
            wait = min(wait, FULL_SCAN_MIN_S)
            return self._clock.monotonic() + wait
        due_at, now = math.inf, self._clock.monotonic()
        if not plan.is_full_scan:
            due_at = min(map(self.cursors.full_scan_due, plan.rooms))
        if due_at > now + FULL_SCAN_MAX_S:
            self._is_next_known = not self._wake.is_set()
            if self._is_next_known:
                wait = min(wait, await self._next_due(list(plan.rooms)))
        return min(self._clock.monotonic() + wait, due_at)

    async def _pass_over_newer(self, plan: ProbePlan) -> None:
        """Begin behind the jobs that are newer than this worker reads: a scan from the start may have met many."""
        self._scan_s = 0.0
        newer = self._context.store.unreadable.newer(sorted(plan.fully_scanned), self._reads)
        with self._context.health.report(self._link.purpose):
            self.cursors.pass_over(await self._link.run(newer))

    async def _next_due(self, types: list[str]) -> float:
        """In how many seconds to claim again; at once, if something became due after the last claim was sent."""
        back_us = int((self._clock.monotonic() - self._sent_at) * 1_000_000) + LOOK_BACK_US
        try:
            next_due = self._context.store.jobs.next_due(types, back_us, reads=self._reads)
            delay = await self._link.run(next_due)
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)
            return math.inf
        return math.inf if delay is None else delay / 1_000_000

    async def has_due(self, types: list[str]) -> bool:
        """Whether a job of one of these types is due."""
        next_due = self._context.store.jobs.next_due(types, EVER_US, reads=self._reads)
        delay = await self._link.run(next_due)
        return delay is not None and delay <= 0


class TypeCursors(msgspec.Struct):
    """The cursors of one type. Priorities other than the default are known once a full scan has found them.

    A scan that was cut has seen only the most urgent jobs, of all types together.
    """

    positions: dict[int, tuple[Instant, str]] = msgspec.field(default_factory=dict)
    priorities: set[int] = msgspec.field(default_factory=lambda: {DEFAULT_PRIORITY})
    was_cut: bool = False
    scanned_at: float = float("-inf")
    scan_cost: float = 0.0
    needs_full_scan: bool = True
    slack: int = 1


class ClaimCursors:
    """Decides what the next claim probes and where each probe begins.

    Rows of transactions that committed late, and released rows, lie before the cursor; full scans find them. A full
    scan is due on request, otherwise every 20 times its own cost, at least 250 ms and at most 5 s apart.
    """

    def __init__(self) -> None:
        self._types: dict[str, TypeCursors] = {}
        # By priority, the types that returned jobs when last probed, and those that may have some; the one that waited
        # longest is first.
        self._productive: list[dict[str, None]] = [{} for _ in PRIORITIES]
        self._uncertain: list[dict[str, None]] = [{} for _ in PRIORITIES]
        self._peeked: dict[str, None] = {}
        self._hinted: dict[str, None] = {}
        # Whether the last claim left something that is due.
        self.was_cut = False
        self._full_scan_due = float("-inf")

    def plan(
        self, types: Iterable[str], room_of: Callable[[str], int], limit: int, now: float
    ) -> ProbePlan:
        """Return what to probe: everything known, or only as much as a claim needs while claims come back cut."""
        if self.was_cut and now < self._full_scan_due:
            plan = self._plan_some(room_of, limit)
            if plan.probes:
                return plan
        return self._plan_all(types, room_of, limit, now)

    def _plan_all(
        self, types: Iterable[str], room_of: Callable[[str], int], limit: int, now: float
    ) -> ProbePlan:
        rooms = {name: room for name in types if (room := room_of(name)) > 0}
        for name in rooms:
            self._get(name)
        first = [
            name
            for names in (self._uncertain[DEFAULT_PRIORITY], self._productive[DEFAULT_PRIORITY])
            for name in names
            if name in rooms
        ]
        probes: list[PlannedProbe] = []
        for name in dict.fromkeys([*first, *rooms]):
            known, room = self._types[name], rooms[name]
            if known.needs_full_scan or now >= self.full_scan_due(name):
                share = self._share(DEFAULT_PRIORITY, name, limit)
                probes.append(PlannedProbe(name, None, *START, min(share, room), room))
            else:
                probes += [
                    self._probe(name, priority, limit, room) for priority in known.priorities
                ]
        return ProbePlan(probes, limit, True, rooms)

    def _plan_some(self, room_of: Callable[[str], int], limit: int) -> ProbePlan:
        """Probe what was productive, the most urgent first, until there is enough; and peek at some other types."""
        rooms: dict[str, int] = {}

        def with_room(names: Iterable[str]) -> Iterator[str]:
            for name in names:
                if name not in rooms:
                    rooms[name] = room_of(name)
                if rooms[name] > 0:
                    yield name

        peeked = list(with_room(self._peeks()))
        probes: list[PlannedProbe] = []
        for priority in PRIORITIES:
            uncertain = list(islice(with_room(self._uncertain[priority]), PROBES_A_PRIORITY))
            productive = list(islice(with_room(self._productive[priority]), PROBES_A_PRIORITY))
            names = dict.fromkeys(
                [*(peeked if priority in URGENT else ()), *uncertain, *productive]
            )
            probes += [self._probe(name, priority, limit, rooms[name]) for name in names]
            # Less urgent jobs of some types must not come before more urgent ones of others.
            if PROBES_A_PRIORITY in (len(uncertain), len(productive)):
                break
        return ProbePlan(probes, limit, False, {each.type: rooms[each.type] for each in probes})

    def _probe(self, name: str, priority: int, limit: int, room: int) -> PlannedProbe:
        after, after_id = self._types[name].positions.get(priority, START)
        share = min(room, self._share(priority, name, limit))
        return PlannedProbe(name, priority, after, after_id, share, room)

    def _share(self, priority: int, name: str, limit: int) -> int:
        """How much a probe may return before the others of its priority; all it has where nothing is expected."""
        uncertain, productive = self._uncertain[priority], self._productive[priority]
        if name not in uncertain and name not in productive:
            return limit
        return math.ceil(limit / min(SHARING_PROBES, len(uncertain) + len(productive)))

    def _peeks(self) -> list[str]:
        """Types to check for new urgent jobs: nothing else reveals them while claims come back cut."""
        peeked = list(islice(self._hinted, PEEKED_TYPES))
        for name in peeked:
            del self._hinted[name]
        peeked += islice(
            (name for name in self._peeked if name not in peeked), PEEKED_TYPES - len(peeked)
        )
        for name in peeked:
            self._peeked.pop(name, None)
            self._peeked[name] = None
        return peeked

    def _get(self, type: str) -> TypeCursors:
        known = self._types.get(type)
        if known is None:
            known = self._types[type] = TypeCursors()
            self._uncertain[DEFAULT_PRIORITY][type] = None
            self._peeked[type] = None
        return known

    def full_scan_due(self, type: str) -> float:
        """When the type's next full scan is due."""
        known = self._get(type)
        return known.scanned_at + known.slack * min(
            FULL_SCAN_MAX_S, max(FULL_SCAN_MIN_S, COST_FACTOR * known.scan_cost)
        )

    def pass_over(self, newer: Iterable[Row]) -> None:
        """Move cursors behind the last jobs that are left to newer workers: type, priority and place."""
        for name, priority, at, id in newer:
            known = self._get(name)
            known.slack = SLACK
            known.positions[priority] = max((at, id), known.positions.get(priority, START))

    def allows_full_scan(self, type: str, now: float) -> bool:
        """Whether a full scan now would keep full scans to a small share of the time."""
        known = self._get(type)
        return now >= known.scanned_at + known.slack * COST_FACTOR * known.scan_cost

    def hint(self, type: str) -> None:
        """Expect new jobs of a type."""
        self._get(type)
        self._hinted[type] = None
        if type not in self._productive[DEFAULT_PRIORITY]:
            self._uncertain[DEFAULT_PRIORITY][type] = None

    def request_full_scan(self, type: str | None = None) -> None:
        """Have a type, or all of them, scanned from the start at the next claim."""
        self._full_scan_due = float("-inf")
        for each in [type] if type is not None else list(self._types):
            self._get(each).needs_full_scan = True

    def needs_full_scan(self, types: Iterable[str]) -> bool:
        """Whether one of these types should be scanned from the start at once."""
        return any(self._get(each).needs_full_scan for each in types)

    def advance(
        self, plan: ProbePlan, jobs: Sequence[ClaimedJob], is_cut: bool, at: float, cost: float
    ) -> None:
        """Move the cursors to the last job each probe found; `jobs` come in claim order.

        A claim that was cut by its limit has left jobs unseen that are as urgent as its last one, or less; of a type
        that filled its own room, more urgent ones too. Down to the default they are expected from now on; less urgent
        ones of some types must not come before those of others, so they wait until a claim comes back short.
        """
        counts = Counter(job.type for job in jobs)
        filled = {
            name for name, room in plan.rooms.items() if room < plan.limit and counts[name] >= room
        }
        lowest = jobs[-1].priority if jobs and is_cut else DEFAULT_PRIORITY
        for name in plan.fully_scanned:
            self._reset_type(name, name in filled, is_cut, lowest)
            known = self._types[name]
            known.scanned_at, known.scan_cost, known.needs_full_scan = at, cost, False
            known.slack = 1
        self._note_unproductive(plan, jobs, is_cut, filled)
        latest: dict[tuple[str, int], ClaimedJob] = {}
        for job in reversed(jobs):
            latest.setdefault((job.type, job.priority), job)
        for job in reversed(latest.values()):
            known = self._types[job.type]
            known.priorities.add(job.priority)
            known.positions[job.priority] = (job.available_at, job.id)
            self._uncertain[job.priority].pop(job.type, None)
            productive = self._productive[job.priority]
            productive.pop(job.type, None)
            productive[job.type] = None
        self.was_cut = is_cut
        if plan.is_whole:
            self._note_whole_plan(plan, is_cut)

    def _reset_type(self, name: str, filled: bool, is_cut: bool, lowest: int) -> None:
        known = self._types[name]
        known.positions.clear()
        known.was_cut = is_cut
        last = max(lowest, DEFAULT_PRIORITY) if is_cut else PRIORITIES[-1]
        if filled:
            known.priorities = set(range(last + 1))
        elif is_cut:
            known.priorities = set(range(min(lowest, DEFAULT_PRIORITY), last + 1))
        else:
            known.priorities = {DEFAULT_PRIORITY}
        for priority in PRIORITIES:
            self._productive[priority].pop(name, None)
            self._uncertain[priority].pop(name, None)
            if priority in known.priorities and (filled or is_cut):
                self._uncertain[priority][name] = None

    def _note_unproductive(
        self, plan: ProbePlan, jobs: Sequence[ClaimedJob], is_cut: bool, filled: set[str]
    ) -> None:
        """Expect nothing of probes that were reached and found nothing, and something of those not reached."""
        found = {(job.type, job.priority) for job in jobs}
        probed = sorted(
            ((each.priority, each.type) for each in plan.probes if each.priority is not None),
            key=lambda probe: probe[0],
        )
        reached = len(probed)
        if is_cut:
            indexes = [index for index, probe in enumerate(probed) if probe[::-1] in found]
            reached = indexes[-1] if indexes else 0
        for index, (priority, name) in enumerate(probed):
            if name in filled or (name, priority) in found:
                continue
            if index < reached:
                self._productive[priority].pop(name, None)
                self._uncertain[priority].pop(name, None)
            elif plan.is_whole and name not in self._productive[priority]:
                self._uncertain[priority][name] = None

    def _note_whole_plan(self, plan: ProbePlan, is_cut: bool) -> None:
        if not is_cut:
            for name in plan.rooms:
                known = self._types[name]
                known.needs_full_scan = known.needs_full_scan or known.was_cut
        self._full_scan_due = min(map(self.full_scan_due, plan.rooms), default=float("-inf"))
