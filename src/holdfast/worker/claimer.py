"""Asks the database for work: how much, of which types, from where, and when to ask again.

How much work a process can take: its free slots, and as much as it finished a moment ago.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast.core.lease import local_deadline_ms
from holdfast.core.records import Claim, ClaimedJob, LeaseClass, Probe
from holdfast.core.registry import JobType
from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt
from holdfast.worker.claim_cursors import Line, Lines, Marks
from holdfast.worker.context import Workplace
from holdfast.worker.held_leases import HeldClaim
from holdfast.worker.options import LARGEST_CLAIM, Pace, WorkerOptions
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.slots import Backlog

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


PURPOSE = "claim"
MOST = 10_000
"""No claim asks for more: the statement reads so many of a line and no more."""
LOOK_BACK_US = 1_000
"""For clocks that do not run quite alike."""


@dataclass(frozen=True, slots=True)
class Look:
    """One round: where to look, and under which leases."""

    lines: Lines
    probes: tuple[Probe, ...]
    classes: tuple[LeaseClass, ...]

    @property
    def limit(self) -> int:
        """How many jobs are asked for."""
        return self.lines.limit

    def was_cut(self, jobs: list[ClaimedJob]) -> bool:
        """Whether there may be more: the limit was reached, or a job was met of which only one is taken at a time."""
        return len(jobs) >= self.limit or any(each.crashes for each in jobs)


class Claimer:
    """One loop per process. Its size follows what the slots can take and what they finished just now."""

    def __init__(
        self,
        place: Workplace,
        link: Link,
        backlog: Backlog,
        pace: Pace,
        new_id: Callable[[], str],
        expect: Callable[[float], None],
        missed: Callable[[], None],
        is_held_up: Callable[[], bool],
    ) -> None:
        """Deadlines of new claims are announced to `expect`; after a lost answer `missed` is called.

        Nothing is claimed while `is_held_up`; `nudge` it when that is over.
        """
        self._place = place
        self._link = link
        self._backlog = backlog
        self._pace = pace
        self._new_id = new_id
        self._expect = expect
        self._missed = missed
        self._is_held_up = is_held_up
        self._clock = place.clock
        self._marks = Marks()
        self._batched = [name for name, each in place.types.items() if each.batch]
        self._capacity = Capacity(place.options, place.types)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._busy_until: dict[str, float] = {}
        self._left = place.options.max_items
        self.quarantine: Quarantine
        self._hinted = False
        self._asked_at = 0.0

    def hint(self, type: str | None = None, from_the_start: bool = False) -> None:
        """Look soon: jobs of a type, or of any, may be due; released ones lie before the mark."""
        if type is not None and type not in self._place.types:
            return
        if from_the_start:
            self._marks.want_full(type)
        elif type is not None:
            self._marks.hint(type)
        self._hinted = True
        self._wake.set()

    def nudge(self) -> None:
        """Look again without a promise that there is something."""
        self._wake.set()

    def ended(self, attempt: Attempt) -> None:
        """Note that an attempt needs its slot no more."""
        self._capacity.ended(attempt, attempt.ended_at or self._clock.monotonic())
        self.quarantine.look_again()
        self._wake.set()

    def returned(self, attempt: Attempt) -> None:
        """Note that an attempt needs no slot any more and had none."""
        self._capacity.returned(attempt)
        self.quarantine.look_again()
        self._wake.set()

    def rest(self, type: str, seconds: float) -> None:
        """Claim no job of this type for a while: its handler said Busy."""
        self._busy_until[type] = self._clock.monotonic() + seconds

    def stop(self) -> None:
        """Take nothing new."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> str:
        """Claim until told to stop, or until the options say that it is enough; return why it ended."""
        while not self._stopping.is_set():
            self._wake.clear()
            quiet = self._is_quiet()
            if self._left == 0 and quiet:
                return "budget"
            look = self._look()
            if look is None:
                if quiet and self._left != 0 and self._place.options.stop_when_idle:
                    return "idle"
                await self._clock.wait(self._wake, self._until_not_busy())
                continue
            if await self._round(look, quiet):
                return "idle"
        return "stopped"

    async def _round(self, look: Look, quiet: bool) -> bool:
        """Look once and wait as long as it makes sense; True when there is nothing left to wait for."""
        hinted, self._hinted = self._hinted, False
        try:
            jobs = await self._claim(look)
        except Exception as error:
            self._place.trouble.note(PURPOSE, error)
            await self._clock.wait(self._stopping, self._pace.error_s(self._clock.random()))
            return False
        self._place.trouble.over(PURPOSE)
        self._pace.found(len(jobs))
        if look.was_cut(jobs) or not look.lines.is_whole:
            if self._place.options.next_job_delay_ms:
                delay = self._place.options.next_job_delay_ms / 1000
                await self._clock.wait(self._stopping, delay)
            return False
        if not jobs and not self._place.holdings and self.quarantine.idle():
            self._marks.want_full()
            return False
        if not jobs and quiet and self._place.options.stop_when_idle:
            if look.lines.is_full:
                return True
            self._marks.want_full()
            return False
        await self._wait_for_more(look, hinted and not jobs)
        return False

    def _is_quiet(self) -> bool:
        """Whether nothing is held, as far as the options make that a reason to end."""
        options = self._place.options
        if not options.stop_when_idle and options.max_items is None:
            return False
        return len(self._place.holdings) == 0

    def _look(self) -> Look | None:
        """Where to look: every type that may run now, each with its own room and mark."""
        now = self._clock.monotonic()
        room = self._capacity.room(now, len(self._backlog))
        if room <= 0 or self._left == 0 or self.quarantine.is_occupied or self._is_held_up():
            return None
        free_slots = self._capacity.free_slots

        def room_of(name: str) -> int:
            return self._room_of(name, room, now, free_slots)

        lines = self._marks.look(
            self._place.types,
            room_of,
            self._limit(math.ceil(room), map(room_of, self._batched)),
            now,
        )
        if not lines.probes:
            return None
        tokens: dict[LeaseClass, str] = {}
        probes = tuple(self._probe(line, tokens) for line in lines.probes)
        classes = tuple(_with_token(key, token) for key, token in tokens.items())
        return Look(lines, probes, classes)

    def _limit(self, room: int, rooms: Iterable[int]) -> int:
        """How many jobs to ask for: of a batch handler's type a slot's worth is many."""
        return min(max(room, *rooms, 0), MOST if self._left is None else self._left)

    def _room_of(self, name: str, room: float, now: float, free_slots: float) -> int:
        """How many jobs of a type to ask for at most."""
        if self._place.terms.rests(name) or self._busy_until.get(name, now) > now:
            return 0
        own = self._capacity.room_of(name, self._place.terms.limit(name), free_slots)
        return min(math.ceil(room * (self._place.types[name].batch or 1)), own)

    def _probe(self, line: Line, tokens: dict[LeaseClass, str]) -> Probe:
        terms = self._place.terms
        key = terms.lease_class(line.type)
        token = tokens.get(key)
        if token is None:
            token = tokens[key] = self._new_id()
        most = None if terms.limit(line.type) is None else line.room
        return Probe(
            line.type,
            line.priority,
            token,
            line.room,
            line.after,
            line.after_id,
            most,
            line.share if line.share < line.room else None,
        )

    async def _claim(self, look: Look) -> list[ClaimedJob]:
        holdings = self._place.holdings
        tokens = [each.token for each in look.classes]
        claim = Claim(
            worker=self._place.id,
            limit=look.limit,
            probes=look.probes,
            classes=look.classes,
            allow_crashed=self._capacity.free_slots > 0
            and holdings.crashed == 0
            and not self.quarantine.is_resting,
        )
        holdings.ask(tokens)
        self._asked_at = asked_at = self._clock.monotonic()
        try:
            jobs = await self._link.run(self._place.store.jobs.claim(claim))
        except BaseException:
            holdings.unanswered(tokens)
            self._missed()
            raise
        now = self._clock.monotonic()
        self._marks.looked(look.lines, jobs, look.was_cut(jobs), now, now - asked_at)
        self._take_over(jobs, look.classes, asked_at, now)
        return jobs

    def _take_over(
        self, jobs: list[ClaimedJob], classes: tuple[LeaseClass, ...], asked_at: float, now: float
    ) -> None:
        asked_ms = int(asked_at * 1000)
        held = {
            each.token: HeldClaim(
                each.token, each.lease_ms, local_deadline_ms(asked_ms, each.lease_ms) / 1000
            )
            for each in classes
        }
        types, terms = self._place.types, self._place.terms
        attempts = [Attempt(job, types[job.type], terms.of(job.type), now) for job in jobs]
        for attempt in attempts:
            held[attempt.claimed.token].attempts[attempt.claimed.id] = attempt
        self._capacity.taken(job.type for job in jobs)
        self._place.holdings.answered(
            held.keys(), (each for each in held.values() if each.attempts)
        )
        self._place.counters.claimed += len(jobs)
        if self._left is not None:
            self._left -= len(jobs)
        if jobs:
            self._expect(min(each.deadline for each in held.values() if each.attempts))
        suspects = [each for each in attempts if self.quarantine.is_suspect(each)]
        self._backlog.put([each for each in attempts if each not in suspects])
        for each in suspects:
            self.quarantine.put(each)

    async def _wait_for_more(self, look: Look, hint_found_nothing: bool) -> None:
        """Nothing more is due behind the marks: sleep until a hint, the next due time, or the poll."""
        if self._marks.wants_full(look.lines.rooms):
            return
        now = self._clock.monotonic()
        if hint_found_nothing and self._look_before_the_marks(look, now):
            return
        wait = self._pace.poll_s(self._clock.random())
        if not look.lines.is_full:
            wait = min(wait, min(map(self._marks.full_due, look.lines.rooms)) - now)
        elif not self._wake.is_set():
            wait = min(wait, await self._next_due(list(look.lines.rooms)))
        wait = min(wait, self._until_not_busy() or wait)
        await self._clock.wait(self._wake, max(0.0, wait))

    def _look_before_the_marks(self, look: Look, now: float) -> bool:
        """A hinted row may lie before the mark, if its transaction began before our last find."""
        full = look.lines.full
        late = [
            name
            for name in look.lines.rooms
            if name not in full and self._marks.allows_full(name, now)
        ]
        for name in late:
            self._marks.want_full(name)
        return bool(late)

    def _until_not_busy(self) -> float | None:
        """How long until the first type has rested enough; None when no type rests."""
        now = self._clock.monotonic()
        self._busy_until = {name: at for name, at in self._busy_until.items() if at > now}
        return min(self._busy_until.values()) - now if self._busy_until else None

    async def _next_due(self, types: list[str]) -> float:
        """In how many seconds to look again; at once, if something became due after the last look was asked for."""
        back_us = int((self._clock.monotonic() - self._asked_at) * 1_000_000) + LOOK_BACK_US
        try:
            delay = await self._link.run(self._place.store.jobs.next_due(types, back_us))
        except Exception as error:
            self._place.trouble.note(PURPOSE, error)
            return math.inf
        return math.inf if delay is None else delay / 1_000_000


def _with_token(key: LeaseClass, token: str) -> LeaseClass:
    return LeaseClass(
        token, key.lease_ms, key.max_attempts, key.backoff_base_ms, key.backoff_cap_ms
    )
