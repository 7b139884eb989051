"""Asks the database for work: how much, of which types, from where, and when to ask again."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping

from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable
from holdfast.core.jobtype import JobType
from holdfast.core.lease import local_deadline_ms
from holdfast.core.model import Claim, ClaimedJob, LeaseClass, Probe, TypeSetting
from holdfast.storage.database import Link
from holdfast.storage.port import Store
from holdfast.worker.attempt import Attempt
from holdfast.worker.backlog import Backlog
from holdfast.worker.clock import Clock
from holdfast.worker.holdings import HeldClaim, Holdings
from holdfast.worker.marks import Marks
from holdfast.worker.options import WorkerOptions
from holdfast.worker.pace import Pace

FINISHED_WINDOW_S = 0.1


class Claimer:
    """One loop per process. Its size follows what the slots can take and what they finished just now."""

    def __init__(
        self,
        link: Link,
        store: Store,
        worker: str,
        options: WorkerOptions,
        types: Mapping[str, JobType],
        holdings: Holdings,
        backlog: Backlog,
        clock: Clock,
        new_id: Callable[[], str],
        pace: Pace,
        trouble: Callable[[str, BaseException | None], None],
    ) -> None:
        self._link = link
        self._store = store
        self._worker = worker
        self._options = options
        self._types = types
        self._holdings = holdings
        self._backlog = backlog
        self._clock = clock
        self._new_id = new_id
        self._pace = pace
        self._trouble = trouble
        self._marks = Marks()
        self._wake = asyncio.Event()
        self._taken: dict[str, int] = dict.fromkeys(types, 0)
        self._finished: deque[tuple[float, float]] = deque()
        self._finished_weight = 0.0
        self._busy_until: dict[str, float] = {}
        self._settings: dict[str, TypeSetting] = {}
        self._paused = False
        self._stopping = False
        self._hinted = False
        self._classes: tuple[LeaseClass, ...] = ()
        self.claimed = 0

    def hint(self, type: str | None = None, from_the_start: bool = False) -> None:
        """Look soon: jobs of a type, or of any, may be due; released ones lie before the mark."""
        if type is not None and type not in self._types:
            return
        if from_the_start:
            self._marks.want_full(type)
        self._hinted = True
        self._wake.set()

    def ended(self, attempt: Attempt) -> None:
        """Note that a slot is free again."""
        weight = 1 / (attempt.type.batch or 1)
        self._taken[attempt.type.name] -= 1
        self._finished.append((self._clock.monotonic(), weight))
        self._finished_weight += weight
        self._wake.set()

    def rest(self, type: str, seconds: float) -> None:
        """Claim no job of this type for a while: its handler said Busy."""
        self._busy_until[type] = self._clock.monotonic() + seconds

    def configure(self, settings: Mapping[str, TypeSetting], paused: bool) -> None:
        """Follow what was set at run time; a type that is resumed is looked at from the start."""
        for name in self._types:
            was, is_now = self._settings.get(name), settings.get(name)
            if was is not None and was.paused and (is_now is None or not is_now.paused):
                self._marks.want_full(name)
                self._wake.set()
        self._settings = dict(settings)
        if self._paused and not paused:
            self._marks.want_full()
            self._wake.set()
        self._paused = paused

    def stop(self) -> None:
        """Take nothing new."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Claim until told to stop."""
        while not self._stopping:
            self._wake.clear()
            room = self._room()
            probes, full = self._probes(room)
            if not probes:
                await self._clock.wait(self._wake, self._pace.poll_s(self._clock.random()))
                continue
            hinted, self._hinted = self._hinted, False
            limit = max(math.ceil(room), max(each.room for each in probes))
            try:
                jobs = await self._claim(limit, probes, full)
            except (DatabaseUnreachable, DatabaseBusy) as error:
                self._trouble("claim", error)
                await self._clock.sleep(self._pace.error_s(self._clock.random()))
                continue
            self._trouble("claim", None)
            self._pace.found(len(jobs))
            if len(jobs) < limit and not self._stopping:
                await self._wait_for_more(probes, full, hinted and not jobs)
            elif self._options.next_job_delay_ms:
                await self._clock.sleep(self._options.next_job_delay_ms / 1000)

    def _room(self) -> float:
        """How many slots' worth of work to ask for: free ones, plus what was finished in the last 100 ms."""
        now = self._clock.monotonic()
        while self._finished and self._finished[0][0] < now - FINISHED_WINDOW_S:
            self._finished_weight -= self._finished.popleft()[1]
        room = min(self._options.batch, self._free_slots() + self._finished_weight)
        if len(self._backlog) and room < self._options.batch / 2:
            return 0
        return max(0, room)

    def _free_slots(self) -> float:
        taken = sum(
            count / (self._types[name].batch or 1) for name, count in self._taken.items() if count
        )
        return self._options.slots - taken

    def _probes(self, room: float) -> tuple[list[Probe], dict[str, bool]]:
        """Where to look: every type that may run now, each with its own room and mark."""
        if room <= 0 or self._paused:
            return [], {}
        now = self._clock.monotonic()
        tokens: dict[LeaseClass, str] = {}
        probes: list[Probe] = []
        full: dict[str, bool] = {}
        for name, type in self._types.items():
            own = min(math.ceil(room * (type.batch or 1)), self._type_room(name, type, now))
            if own <= 0:
                continue
            key = self._lease_class(name, type)
            token = tokens.setdefault(key, self._new_id())
            full[name], marks = self._marks.look(name, now)
            probes += [
                Probe(name, priority, token, own, after, after_id)
                for priority, after, after_id in marks
            ]
        self._classes = tuple(
            LeaseClass(
                token, key.lease_ms, key.max_attempts, key.backoff_base_ms, key.backoff_cap_ms
            )
            for key, token in tokens.items()
        )
        return probes, full

    def _type_room(self, name: str, type: JobType, now: float) -> int:
        setting = self._settings.get(name)
        if setting is not None and setting.paused:
            return 0
        if self._busy_until.get(name, now) > now:
            return 0
        limit = type.concurrency
        if setting is not None and setting.concurrency is not None:
            limit = setting.concurrency
        if limit is None:
            return max(self._options.batch, type.batch or 1)
        return limit * (type.batch or 1) - self._taken[name]

    def _lease_class(self, name: str, type: JobType) -> LeaseClass:
        setting = self._settings.get(name)
        lease_ms = (type.lease or self._options.lease).duration_ms
        limit = type.retry.max_attempts
        if setting is not None:
            lease_ms = setting.lease_ms or lease_ms
            limit = setting.max_attempts if setting.max_attempts is not None else limit
        return LeaseClass("", lease_ms, limit or 0, type.retry.base_ms, type.retry.cap_ms)

    async def _claim(
        self, limit: int, probes: list[Probe], full: dict[str, bool]
    ) -> list[ClaimedJob]:
        classes = self._classes
        tokens = [each.token for each in classes]
        claim = Claim(
            worker=self._worker,
            limit=limit,
            probes=tuple(probes),
            classes=classes,
            allow_crashed=self._backlog.idle_slots > 0 and self._holdings.crashed == 0,
        )
        self._holdings.ask(tokens)
        asked_at = self._clock.monotonic()
        try:
            jobs = await self._link.run(self._store.jobs.claim(claim))
        except BaseException:
            self._holdings.unanswered(tokens)
            raise
        now = self._clock.monotonic()
        self._marks.looked(full, jobs, len(jobs) < limit, now, now - asked_at)
        self._take_over(jobs, classes, asked_at, now)
        return jobs

    def _take_over(
        self, jobs: list[ClaimedJob], classes: tuple[LeaseClass, ...], asked_at: float, now: float
    ) -> None:
        held = {
            each.token: HeldClaim(
                each.token,
                each.lease_ms,
                local_deadline_ms(int(asked_at * 1000), each.lease_ms) / 1000,
            )
            for each in classes
        }
        attempts = []
        for job in jobs:
            attempt = Attempt(job, self._types[job.type], now)
            held[job.token].attempts[job.id] = attempt
            attempts.append(attempt)
            self._taken[job.type] += 1
        self._holdings.answered(held.keys(), (each for each in held.values() if each.attempts))
        self.claimed += len(jobs)
        self._backlog.put(attempts)

    async def _wait_for_more(
        self, probes: list[Probe], full: dict[str, bool], hint_found_nothing: bool
    ) -> None:
        """Nothing more is due behind the marks: sleep until a hint, the next due time, or the poll."""
        now = self._clock.monotonic()
        if hint_found_nothing:
            # The hinted row may lie before the mark: its transaction began before our last find.
            late = [name for name, was_full in full.items() if not was_full]
            for name in late:
                if self._marks.allows_full(name, now):
                    self._marks.want_full(name)
            if any(self._marks.allows_full(name, now) for name in late):
                return
        wait = self._pace.poll_s(self._clock.random())
        if not all(full.values()):
            wait = min(wait, max(0.0, min(self._marks.full_due(name) for name in full) - now))
        elif not self._wake.is_set():
            due = await self._next_due(list(full))
            if due is not None:
                wait = min(wait, due)
        if self._busy_until:
            soon = min(self._busy_until.values()) - now
            self._busy_until = {k: v for k, v in self._busy_until.items() if v > now}
            wait = min(wait, max(0.0, soon))
        await self._clock.wait(self._wake, wait)

    async def _next_due(self, types: list[str]) -> float | None:
        try:
            delay = await self._link.run(self._store.jobs.next_due(types))
        except (DatabaseUnreachable, DatabaseBusy) as error:
            self._trouble("claim", error)
            return None
        return None if delay is None else delay / 1_000_000
