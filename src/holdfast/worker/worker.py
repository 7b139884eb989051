"""A worker: runs the jobs of some types from one process, until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.client.targets import Targets, open_targets
from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable
from holdfast.core.events import Observer
from holdfast.core.jobtype import JobType
from holdfast.notify.port import Notifier
from holdfast.ops.identity import check_identity
from holdfast.storage.database import Database
from holdfast.worker.attempt import Attempt
from holdfast.worker.clock import Clock, SystemClock
from holdfast.worker.counters import Counters
from holdfast.worker.drain import Drain
from holdfast.worker.middleware import Middleware
from holdfast.worker.options import WorkerOptions
from holdfast.worker.parts import Parts
from holdfast.worker.report import WorkerReport
from holdfast.worker.stack import whereabouts
from holdfast.worker.thread import call_on
from holdfast.worker.workplace import Workplace

__all__ = ["Worker", "WorkerReport"]


class Worker:
    """Claims, runs and records jobs. It is run once; `stop` may be called from any thread and at any time."""

    def __init__(
        self,
        database: Database,
        types: Mapping[str, JobType],
        options: WorkerOptions | None = None,
        *,
        notifier: Notifier | None = None,
        observer: Observer | None = None,
        middlewares: Sequence[Middleware] = (),
        targets: Targets | None = None,
        clock: Clock | None = None,
        own_thread: bool = True,
    ) -> None:
        """Raises: HF017, HF018, HF019 for timings that do not fit, HandlerInvalid.

        `targets` knows the types a chain may go on with, without it any name will do; without `own_thread` the
        heartbeat shares the loop.
        """
        self._place = Workplace.of(
            database, types, options or WorkerOptions(), observer, clock or SystemClock()
        )
        self._parts = Parts(
            self._place,
            notifier,
            middlewares,
            targets or open_targets(types.values()),
            self._to_loop,
            self._stop_once,
            own_thread,
        )
        self._stopping = asyncio.Event()
        self._asked = asyncio.Event()
        self._stopping_now = asyncio.Event()
        self._reason = "asked"
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def id(self) -> str:
        """The worker's own name: unique for each start."""
        return self._place.id

    @property
    def counters(self) -> Counters:
        """What the worker has done since its start."""
        return self._place.counters

    @property
    def running(self) -> int:
        """How many attempts run now."""
        return len(self._parts.slots.running)

    @property
    def holding(self) -> list[str]:
        """What runs now or was abandoned, in words: the type and the job of each attempt, how long, and where it is."""
        slots, now = self._parts.slots, self._place.clock.monotonic()
        return sorted(in_words(each, now) for each in set(slots.running) | slots.abandoned)

    def expect_end(self) -> None:
        """Note that the worker is to end, should its loop be too busy to hear of it. From any thread."""
        self._parts.host.call(self._parts.watchdog.asked)

    def when_hopeless(self, act: Callable[[], None]) -> None:
        """Have something done, from another thread, when a handler still blocks the loop after the shutdown timeout."""
        self._parts.watchdog.when_hopeless = act

    def stop(self, reason: str = "asked") -> None:
        """Take nothing new and end when the running handlers have; the second call tells them to stop now."""
        self.expect_end()
        if self._loop is None:
            self._stop(reason)
        else:
            self._to_loop(self._stop, reason)

    def _stop(self, reason: str) -> None:
        if self._asked.is_set():
            self._stopping_now.set()
        self._asked.set()
        self._stop_once(reason)

    def _stop_once(self, reason: str) -> None:
        if not self._stopping.is_set():
            self._reason = reason
            self._stopping.set()

    async def run(self) -> WorkerReport:
        """Work until stopped, or until the options say that it is enough.

        Raises: WrongDatabase, CopiedDatabase; defects of our own.
        """
        place, parts, options = self._place, self._parts, self._place.options
        self._loop = asyncio.get_running_loop()
        if not await self._reach_database():
            await self._leave_database()
            return WorkerReport(self._reason, 0, 0, place.counters.as_dict())
        parts.hints.listen(parts.claimer.hint, parts.check_leases)
        parts.host.start()
        claiming = asyncio.create_task(parts.claimer.run(), name="holdfast claimer")
        others = [
            asyncio.create_task(each.run(), name=f"holdfast {type(each).__name__.lower()}")
            for each in (
                parts.completer,
                parts.stragglers,
                parts.quarantine,
                parts.watch,
                parts.overdue,
            )
        ]
        slots = parts.slots.start()
        place.telling.tell(
            "worker_started",
            slots=options.slots,
            types=sorted(place.types),
            lease_ms=options.lease.duration_ms,
            heartbeat_ms=place.timings.heartbeat_ms,
        )
        drain = Drain(place, parts)
        try:
            await self._until_over(claiming, [*others, *slots])
        finally:
            place.telling.tell("worker_stopping", reason=self._reason, running=self.running)
            await drain.run(claiming, others, self._asked, self._stopping_now)
            place.telling.summary(self.running)
            place.telling.tell(
                "worker_stopped",
                reason=self._reason,
                abandoned=drain.abandoned,
                released=drain.released,
            )
        return WorkerReport(self._reason, drain.abandoned, drain.released, place.counters.as_dict())

    async def _reach_database(self) -> bool:
        """Wait for a database that is not there yet, learn what was set in it, and subscribe.

        False when told to stop meanwhile.
        """
        place, parts = self._place, self._parts
        # Subscriptions must outlive the server, and what the claiming link commits may not.
        claiming, writing = parts.links["claim"], parts.links["complete"]
        while not self._stopping.is_set():
            try:
                identity = await writing.run(check_identity(place.store))
                settings = await claiming.run(place.store.workers.settings())
                is_paused = identity is not None and identity.paused
                place.terms.configure({each.type: each for each in settings}, is_paused)
                await parts.latecomers.subscribe(writing)
            except (DatabaseUnreachable, DatabaseBusy) as error:
                place.trouble.note(claiming.purpose, error)
                pause = parts.pace.error_s(place.clock.random())
                await place.clock.wait(self._stopping, pause)
            except BaseException:
                await self._leave_database()
                raise
            else:
                place.trouble.over(claiming.purpose)
                return True
        return False

    async def _leave_database(self) -> None:
        for purpose in ("claim", "complete"):
            await self._parts.links[purpose].close()

    async def _until_over(
        self, claiming: asyncio.Task[str], others: list[asyncio.Task[Any]]
    ) -> None:
        """Wait for the word, the time or the end of the work; a loop that ends by itself is a defect and is raised."""
        place = self._place
        companions = asyncio.create_task(self._parts.host.ended())
        stopped = asyncio.create_task(
            place.clock.wait(self._stopping, place.options.deadline_s), name="holdfast stop"
        )
        try:
            watched = {stopped, claiming, companions, *others}
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
            if claiming in done:
                self._stop_once(claiming.result())
            elif stopped in done and not stopped.result():
                self._stop_once("deadline")
        finally:
            for task in (stopped, companions):
                task.cancel()
            await asyncio.gather(stopped, companions, return_exceptions=True)

    def _to_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        call_on(self._loop, function, *arguments)


def in_words(attempt: Attempt, now: float) -> str:
    """Say of a running attempt what it is, for how long, and where."""
    claimed = attempt.claimed
    ran = "" if attempt.started_at is None else f", for {now - attempt.started_at:.0f} s"
    task = attempt.task
    where = whereabouts(attempt.type.handler, None if task is None else task.get_coro())
    return f"{claimed.type} (job {claimed.id}{ran}{f', at {where}' if where else ''})"
