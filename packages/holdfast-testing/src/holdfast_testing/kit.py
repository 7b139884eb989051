"""What a test does with an application: run jobs and cycles, move the time, see what was started, let workers die."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar, Unpack

import msgspec

from holdfast.app import Holdfast
from holdfast.client.cycles import RunInfo
from holdfast.client.enqueue import SignalOptions
from holdfast.client.views import JobInfo
from holdfast.commands.attempts import reap_leases
from holdfast.core.codec import encode_any
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.records import PRIORITIES, Claim, LeaseClass, Probe
from holdfast.core.registry import Target
from holdfast.storage.id_generator import new_id
from holdfast.worker.limited_claims import TypePolls
from holdfast.worker.options import PollBackoff, WorkerOptions
from holdfast.worker.worker import Worker, WorkerReport
from holdfast_testing.crashes import CrashRuns, Death
from holdfast_testing.cycle_runs import run_requested
from holdfast_testing.fresh_state import clear_in_transaction, prepare_fresh_state
from holdfast_testing.joined import JoinedDatabase
from holdfast_testing.readers import read_log
from holdfast_testing.test_clock import MovedClock, TimedDatabase

T = TypeVar("T")

_NIL = "00000000-0000-0000-0000-000000000000"
_PAGE = 1_000
_RUN_MAX = 10_000
_DEAD_WORKERS_LEASE_MS = 60_000
_LAST_WRITES_S = 1.0


def read_stored_input(app: Holdfast, target: Target, stored: str | Any, *, version: int = 1) -> Any:
    """Return the input that the application's code makes of one stored earlier: JSON text, or the value of it.

    Raises: InputUnreadable, UnknownJobType.
    """
    text = stored if isinstance(stored, str) else encode_any(stored)
    return app.registry.get(target).read_input(text, version)


class Kit:
    """An application bound to a test's database. Its clock runs normally and can be moved forward."""

    def __init__(
        self,
        app: Holdfast,
        url: str,
        schema: str | None = None,
        *,
        database: JoinedDatabase | None = None,
        prepare: Callable[[Holdfast], object] = Holdfast.migrate,
        clock: MovedClock | None = None,
    ) -> None:
        """Bind the application to a database and prepare that; jobs which are there already stay."""
        self.app = app
        self._clock = clock or MovedClock()
        self._caller = None if database is None else database.caller
        self._restore = app.bind(url, self._clock.instant, schema=schema, database=database)
        try:
            prepare(app)
        except BaseException:
            self.close()
            raise

    @classmethod
    def fresh(cls, app: Holdfast, url: str, schema: str | None = None) -> Kit:
        """Bind the application to a database for tests, and empty Holdfast's tables there.

        Raises: WrongDatabase for a database that has jobs of others.
        """
        return cls(app, url, schema, prepare=prepare_fresh_state)

    @classmethod
    def joined(cls, app: Holdfast, connection: Any) -> Kit:
        """Run everything in the open transaction of a test's own sync connection; nothing is committed.

        Raises: UnsupportedConnection, NoTransaction.
        """
        database = JoinedDatabase(connection, app.database, app.schema)
        return cls(app, app.url, app.schema, database=database, prepare=clear_in_transaction)

    def close(self) -> None:
        """Bind the application to its own database again."""
        self._restore()

    def advance(self, duration: Duration) -> None:
        """Move the clock forward: retries, deferred starts and leases see it immediately."""
        self._clock.advance(duration)

    def run_until_idle(self, limit: int = _RUN_MAX, timeout: Duration = "30s") -> WorkerReport:
        """Run every due job, and the jobs they start, until nothing is due; consumers read what was published.

        Raises: TimeoutError, naming what runs and the latest error; RuntimeError inside a running loop.
        """
        return self._complete(self._work, "run_until_idle_async", limit, timeout)

    async def run_until_idle_async(
        self, limit: int = _RUN_MAX, timeout: Duration = "30s"
    ) -> WorkerReport:
        """Async version of `run_until_idle`."""
        return await self._complete_async(self._work, limit, timeout)

    def run_one(self, timeout: Duration = "30s") -> WorkerReport:
        """Run at most one due job. Raises: as `run_until_idle`."""
        return self._complete(self._work, "run_one_async", 1, timeout)

    async def run_one_async(self, timeout: Duration = "30s") -> WorkerReport:
        """Async version of `run_one`."""
        return await self._complete_async(self._work, 1, timeout)

    async def _work(
        self, limit: int, timeout: Duration, death: Death | None = None
    ) -> WorkerReport:
        database = TimedDatabase(self.app.database, self._clock.instant)
        # The worker's own reaper has a timer; a test must not depend on which comes first.
        await database.run_async(reap_leases(database.store))
        options = WorkerOptions(name="test", stop_when_idle=True, max_items=limit)
        counters: Counter[str] = Counter()
        while True:
            worker = self.app.make_worker(options, database=database, threads=self._caller)
            if death is not None:
                worker.on_boundary(partial(_dies, worker, death))
            report = await _run_within(worker, timeout)
            counters.update(report.counters)
            # Nor on who routes what a handler has signalled: a worker may do so as it stops.
            signals = database.store.signals
            routed = await database.run_async(signals.route(_PAGE))
            found = await database.run_async(signals.list(1)) if report.counters["claimed"] else []
            is_idle = report.reason == "idle" and death is None
            read = (
                await read_log(self.app, self._clock.instant, milliseconds(timeout))
                if is_idle
                else 0
            )
            if not (routed or found or read) or report.reason != "idle":
                return msgspec.structs.replace(report, counters=dict(counters))

    def crash_everywhere(
        self,
        target: Target,
        input: Any = None,
        *,
        signals: Mapping[str, Any] | None = None,
        rows: Callable[[], Any] | None = None,
        reset: Callable[[], Any] | None = None,
        timeout: Duration = "30s",
    ) -> int:
        """Run a durable function undisturbed, then once for each of its boundaries, where its worker is killed.

        A boundary is the moment before and after each record, and before the attempt ends. Each run begins with empty
        tables of Holdfast's and with `reset()`. Whatever waits is sent the data that `signals` has for the signal's
        name, else the clock is moved on. Return how often the worker was killed.
        Raises: AssertionError when state, output or `rows()` are not as in the undisturbed run; TimeoutError.
        """
        runs = CrashRuns(self, self._clock, target, input, signals or {}, rows, reset).compare()
        answer = None
        while True:
            try:
                death = runs.send(answer)
            except StopIteration as end:
                return int(end.value)
            answer = self._complete(self._work, "crash_everywhere_async", _RUN_MAX, timeout, death)

    async def crash_everywhere_async(
        self,
        target: Target,
        input: Any = None,
        *,
        signals: Mapping[str, Any] | None = None,
        rows: Callable[[], Any] | None = None,
        reset: Callable[[], Any] | None = None,
        timeout: Duration = "30s",
    ) -> int:
        """Async version of `crash_everywhere`; `rows` and `reset` may be async, too."""
        runs = CrashRuns(self, self._clock, target, input, signals or {}, rows, reset).compare()
        answer = None
        while True:
            try:
                wanted = runs.send(answer)
            except StopIteration as end:
                return int(end.value)
            if isinstance(wanted, Death):
                answer = await self._complete_async(self._work, _RUN_MAX, timeout, wanted)
            else:
                answer = await wanted

    def run_cycle(self, name: str) -> RunInfo:
        """Run a cycle once, now, whatever its schedule says; return the recorded run with its counters.

        Raises: CycleNotFound; what the handler raised; TimeoutError after the cycle's timeout; RuntimeError inside
        a running loop.
        """
        return self._complete(self._cycle, "run_cycle_async", name)

    async def run_cycle_async(self, name: str) -> RunInfo:
        """Async version of `run_cycle`."""
        return await self._complete_async(self._cycle, name)

    async def _cycle(self, name: str) -> RunInfo:
        database = TimedDatabase(self.app.database, self._clock.instant)
        return await run_requested(self.app, database, name, self._caller)

    def _complete(
        self, work: Callable[..., Coroutine[Any, Any, T]], async_name: str, *arguments: Any
    ) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError(
                f"an event loop is running in this thread: `await holdfast.{async_name}()` instead"
            )
        if self._caller is not None:
            return self._caller.complete(work(*arguments))
        return asyncio.run(self._run_and_close(work(*arguments)))

    async def _complete_async(
        self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any
    ) -> T:
        if self._caller is None:
            return await work(*arguments)
        return await self._caller.complete_async(partial(work, *arguments))

    async def _run_and_close(self, work: Coroutine[Any, Any, T]) -> T:
        """Close the connections of a loop that ends with this: nothing could do so later."""
        try:
            return await work
        finally:
            await self.app.aclose()

    def signal(
        self, name: str, *, key: object = None, data: Any = None, **options: Unpack[SignalOptions]
    ) -> bool:
        """Send a signal in a transaction of its own, at the test's time; takes what `app.signal` takes."""
        with self.app.transaction() as tx:
            return self.app.signal(tx, name, key=key, data=data, **options)

    def started(self, type: str | None = None) -> list[JobInfo]:
        """Return the existing jobs, oldest first; of one type, if given."""
        filter = f"type:{type}" if type else ""
        page = self.app.jobs.list(filter, limit=_PAGE)
        found = [*page]
        while page.next is not None:
            page = self.app.jobs.list(filter, limit=_PAGE, after=page.next)
            found += page
        return found[::-1]

    def assert_started(self, type: str, **fields: Any) -> JobInfo:
        """Assert that a job of this type was started whose input has these fields; return it."""
        jobs = self.started(type)
        for job in jobs:
            if _has(job.input, fields):
                return job
        seen = "\n".join(f"  {each.type} {each.input!r}" for each in jobs or self.started())
        raise AssertionError(
            f"no job {type} with {fields} was started; there are:\n{seen or '  none'}"
        )

    def crash(self, type: str) -> JobInfo:
        """Simulate a worker that dies while running a due job of this type, which stays leased for 60 s."""
        token = new_id()
        worker = f"dead-{token[-6:]}"
        lease = LeaseClass(token, _DEAD_WORKERS_LEASE_MS, 0, 100, 1_000)
        database = TimedDatabase(self.app.database, self._clock.instant)
        flow = next((each.flow for each in self.app.registry if each.name == type), None)
        if flow is not None:
            polls = TypePolls(type, flow, PollBackoff(WorkerOptions()))
            request = polls.request(1, worker, lease, True, "auto", 0.0)
            claimed = database.run(database.store.jobs.claim_limited(request)).jobs
        else:
            probes = tuple(Probe(type, priority, token, 1, 0, _NIL) for priority in PRIORITIES)
            claim = Claim(worker=worker, limit=1, probes=probes, classes=(lease,))
            claimed = database.run(database.store.jobs.claim(claim))
        if not claimed:
            raise AssertionError(f"no job {type} is due, so no worker can crash in it")
        database.run(database.store.leases.isolate(token))
        return self.app.jobs.get(claimed[0].id)


def _has(input: Any, fields: dict[str, Any]) -> bool:
    return fields.items() <= input.items() if isinstance(input, dict) else not fields


def _dies(worker: Worker, death: Death, boundary: str) -> bool:
    """Whether a worker dies at a boundary; it runs nothing more then."""
    if not death.is_due(boundary):
        return False
    worker.stop("killed")
    return True


async def _run_within(worker: Worker, timeout: Duration) -> WorkerReport:
    """Run a worker to its end. Raises: TimeoutError with what it was doing."""
    running = asyncio.create_task(worker.run())
    done, _ = await asyncio.wait({running}, timeout=milliseconds(timeout) / 1000)
    if done:
        return running.result()
    holding = worker.holding
    worker.stop("timeout")
    worker.stop("timeout")
    await asyncio.wait({running}, timeout=_LAST_WRITES_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    running_now = f"still running: {'; '.join(holding)}" if holding else "no job was running"
    raise TimeoutError(
        f"the jobs did not finish within {timeout}; {running_now}; "
        f"latest error: {worker.last_error or 'none'}"
    )
