"""A database, some job types and the workers that run them, as the tests of the worker use them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Unpack

import msgspec

from holdfast.commands.attempts import reap_leases
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.records import (
    DEFAULT_PRIORITY,
    AttemptRecord,
    Claim,
    JobRecord,
    LeaseClass,
    NewJob,
    Probe,
)
from holdfast.core.registry import JobOptions, JobType, job_type_of
from holdfast.core.retry import Retry
from holdfast.notify.base import ANY, Hint, Notifier
from holdfast.notify.local import LocalNotifier
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.worker.job import Job, Middleware
from holdfast.worker.options import WorkerOptions
from holdfast.worker.plain_claims import START
from holdfast.worker.worker import Worker, WorkerReport
from tests.support.links import DisturbedDatabase
from tests.support.manual_clock import ManualClock
from tests.support.until import PATIENCE_S, breath, until
from tests.worker.event_log import EventLog
from tests.worker.faults import Faults
from tests.worker.ledger import Ledger

AN_HOUR = 3_600_000_000
LATER = Retry(base="1h", cap="1h")
"""So late that another attempt comes only when a test triggers it."""


class RunningWorker:
    """A worker at work."""

    def __init__(self, worker: Worker, clock: ManualClock | None, database: Database) -> None:
        self.worker = worker
        self.id = worker.id
        self._clock = clock
        self._database = database
        self._task = asyncio.create_task(worker.run())

    def advance(self, seconds: float) -> None:
        """Let time pass for this worker."""
        assert self._clock is not None, "this worker lives by the real clock"
        self._clock.advance(seconds)

    async def advance_to_a_beat(self, seconds: float) -> None:
        """Let time pass in which its heartbeat is due, and wait until that is over."""
        before = self.worker.counters.heartbeats
        self.advance(seconds)
        await until(lambda: self.worker.counters.heartbeats > before)

    async def asleep(self, seconds: float) -> None:
        """Wait until one of its loops has begun to wait for exactly so long."""
        assert self._clock is not None, "this worker lives by the real clock"
        await self._clock.until_somebody_sleeps(seconds)

    async def idle(self, seconds: float) -> None:
        """Let a little time pass, no faster than the database answers, until it only waits for so long."""
        assert self._clock is not None, "this worker lives by the real clock"
        async with asyncio.timeout(PATIENCE_S):
            while not self._clock.is_awaited(seconds):
                self._clock.advance(0.05)
                await self._database.run_async(self._database.store.schema.clock())

    async def ended(self) -> WorkerReport:
        """Wait for its end."""
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.shield(self._task)

    async def stop(self, times: int = 1) -> WorkerReport:
        """Have it end, politely or not."""
        for _ in range(times):
            self.worker.stop()
        return await self.ended()

    async def give_up(self) -> None:
        """Have it end whatever it is waiting for."""
        self.worker.stop()
        self.worker.stop()
        async with asyncio.timeout(PATIENCE_S):
            while not self._task.done() and self._clock is not None:
                self._clock.advance(1)
                await breath()
            await asyncio.wait([self._task])


class Workshop:
    """Where workers work in a test."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self.database = database
        self.store = database.store
        self.ledger = ledger
        self.events = EventLog()
        self.types: dict[str, JobType] = {}
        self.notifier = LocalNotifier()
        self._running: list[RunningWorker] = []

    def handle(
        self,
        name: str,
        handler: Callable[..., Any],
        event: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobType:
        """Register a handler; a failed attempt is not repeated within a test unless told otherwise."""
        options.setdefault("retry", LATER)
        self.types[name] = job_type_of(handler, name, Job, options, event)
        return self.types[name]

    async def run(self, op: Op[Any]) -> Any:
        """Run an operation in a transaction of its own."""
        return await self.database.run_async(op)

    async def start(self, type: str, input: Any = None, count: int = 1, **fields: Any) -> list[str]:
        """Start jobs and return their ids."""
        text = msgspec.json.encode(input).decode()
        ids = [new_id() for _ in range(count)]
        jobs = [NewJob(id=each, chain_id=each, type=type, input=text, **fields) for each in ids]
        await self.run(start_chains(self.store, [StartRequest(job) for job in jobs]))
        return ids

    async def start_one(self, type: str, input: Any = None, **fields: Any) -> str:
        """Start a job and return its id."""
        (job_id,) = await self.start(type, input, **fields)
        return job_id

    async def job(self, job_id: str) -> JobRecord:
        """Read a job."""
        (record,) = await self.run(self.store.jobs.get([job_id]))
        assert isinstance(record, JobRecord)
        return record

    async def states(self, ids: list[str]) -> list[str]:
        """Read the states of jobs."""
        return [each.state for each in await self.run(self.store.jobs.get(ids))]

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        """Read a job's attempts that did not complete it."""
        found: list[AttemptRecord] = await self.run(self.store.attempts.of(job_id))
        return found

    def worker(
        self,
        clock: ManualClock | None = None,
        notifier: Notifier | None = None,
        middlewares: tuple[Middleware, ...] = (),
        types: Mapping[str, JobType] | None = None,
        database: Database | None = None,
        faults: Faults | None = None,
        **options: Any,
    ) -> Worker:
        """Make a worker for the registered types."""
        database = database or self.database
        return Worker(
            database if faults is None else DisturbedDatabase(database, faults),
            self.types if types is None else types,
            WorkerOptions(**{"idle_min_ms": 20, "idle_max_ms": 20, "idle_jitter_ms": 0} | options),
            notifier=notifier,
            observer=self.events,
            middlewares=middlewares,
            clock=clock,
        )

    def begin(self, clock: ManualClock | None = None, **options: Any) -> RunningWorker:
        """Have a worker at work until the test ends or stops it."""
        running = RunningWorker(self.worker(clock, **options), clock, self.database)
        self._running.append(running)
        return running

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[RunningWorker]:
        """Have a worker at work for the length of a block; it must leave nothing behind."""
        running = self.begin(**options)
        yield running
        report = await running.stop()
        assert report.abandoned == 0

    async def until_idle(self, **options: Any) -> WorkerReport:
        """Run a worker until nothing is due and nothing runs."""
        running = self.begin(stop_when_idle=True, **options)
        return await running.ended()

    async def seen_in_time(
        self, running: RunningWorker, name: str, step_s: float = 1, **fields: Any
    ) -> None:
        """Let a worker's time pass, no faster than the database answers, until an event was told."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.events.of(name, **fields):
                running.advance(step_s)
                await self.run(self.store.schema.clock())

    def have_leases_checked(self, running: RunningWorker) -> None:
        """Have a worker that listens to our notifier ask at once what it still holds."""
        self.notifier.send([Hint("lost", worker=running.id)])

    async def beat(self, running: RunningWorker) -> None:
        """Have such a worker's heartbeat beat once more, and wait until that is over."""
        counters = running.worker.counters
        await until(lambda: counters.heartbeats > 0)
        before = counters.heartbeats
        self.have_leases_checked(running)
        await until(lambda: counters.heartbeats > before)

    def have_due(self) -> None:
        """Tell workers that listen to our notifier that something may be due."""
        self.notifier.send([Hint("due", ANY)])

    async def claim_for_nobody(self, type: str, lease_ms: int = 60_000) -> list[str]:
        """Claim what is due in the name of a worker that does not exist; return the jobs."""
        token = new_id()
        probe = Probe(type, DEFAULT_PRIORITY, token, 100, *START)
        lease = LeaseClass(token, lease_ms, 25, 100, 100)
        claimed = await self.run(self.store.jobs.claim(Claim("nobody", 100, (probe,), (lease,))))
        return [each.id for each in claimed]

    async def reap_as_if_later(self, postponed: bool = False) -> list[str]:
        """Reap as if all leases had ended, before anybody can renew them; return the jobs taken back.

        They are due at once, unless they are to be postponed by an hour.
        """
        now = await self.run(self.store.schema.clock())
        report = await self.run(reap_leases(self.store, now=now + AN_HOUR))
        reaped = [each.id for each in report.page.reaped]
        if postponed:
            self.ledger.postpone(reaped)
        return reaped

    def handle_quick(self) -> None:
        """Register a type that takes no time."""

        async def quick(job: Job[Any]) -> None: ...

        self.handle("quick", quick)

    async def prefetched(self, type: str, count: int) -> list[str]:
        """Start jobs that a worker with a standing clock and our notifier claims all at once, slots or not.

        It has just finished as many jobs of `handle_quick`, and believes that it goes on like that.
        """
        before = len(self.events.of("job_completed"))
        await self.start("quick", count=count)
        self.have_due()
        await self.events.seen("job_completed", count=before + count)
        ids = await self.start(type, count=count)
        self.have_due()
        await until(lambda: len(self.ledger.leases()) >= count)
        await self.events.seen("job_started", job_id=ids[0])
        return ids

    async def close(self) -> None:
        """End every worker that the test left at work; a test that failed shows what they told."""
        for each in getattr(self.events, "events", ()):
            print(each)
        for running in self._running:
            await running.give_up()
        self.notifier.close()
