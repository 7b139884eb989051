"""Puts the parts of a worker together, runs them, and takes them down in order."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable
from holdfast.core.events import Observer
from holdfast.core.jobtype import JobType
from holdfast.core.model import Reaped, TypeSetting
from holdfast.notify.port import ANY, Hint, Listener, Notifier
from holdfast.ops.blockers import FanIn
from holdfast.ops.publish import subscribe_handlers
from holdfast.storage.database import Database
from holdfast.storage.identifiers import new_id
from holdfast.storage.records import Subscription, WorkerSign
from holdfast.version import VERSION
from holdfast.worker.attempt import AbortReason, Attempt
from holdfast.worker.backlog import Backlog
from holdfast.worker.claimer import Claimer
from holdfast.worker.clock import Clock, SystemClock
from holdfast.worker.completer import Completer
from holdfast.worker.continuing import Continuation, TypeOf
from holdfast.worker.counters import Counters
from holdfast.worker.execution import Ended, Execution
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.holdings import Holdings
from holdfast.worker.judge import finish_of
from holdfast.worker.middleware import Middleware
from holdfast.worker.options import WorkerOptions
from holdfast.worker.pace import Pace
from holdfast.worker.processes import ProcessHandlers
from holdfast.worker.reaper import Reaper
from holdfast.worker.slots import Slots
from holdfast.worker.telling import Telling
from holdfast.worker.thread import LoopThread

LAST_WORDS_S = 5.0
ABORT_GRACE_S = 1.0
WATCH_S = 1.0
LAG_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """How a worker ended; abandoned attempts are left to lease expiry."""

    reason: str
    abandoned: int
    released: int


class Worker:
    """Runs the jobs of some types from one process, until told to stop."""

    def __init__(
        self,
        database: Database,
        types: Mapping[str, JobType],
        options: WorkerOptions | None = None,
        *,
        notifier: Notifier | None = None,
        observer: Observer | None = None,
        middlewares: Sequence[Middleware] = (),
        type_of: TypeOf | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.options = options or WorkerOptions()
        self.types = {name: each for name, each in types.items() if each.handler is not None}
        self.timings = self.options.timing(
            [each.lease or self.options.lease for each in self.types.values()]
        )
        self.id = f"{self.options.name}-{new_id()[-12:]}"
        self.counters = Counters()
        self._database = database
        self._notifier = notifier
        self._clock = clock or SystemClock()
        self._telling = Telling(self.id, observer, self._clock, self.counters)
        self._holdings = Holdings()
        self._backlog = Backlog()
        self._pace = Pace(self.options)
        self._settings: Mapping[str, TypeSetting] = {}
        self._threads = ThreadPoolExecutor(self.options.slots, "holdfast-handler")
        self._processes = ProcessHandlers()
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._reason = "asked"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = threading.get_ident()
        self._build(middlewares, type_of or self._own_type)

    def _build(self, middlewares: Sequence[Middleware], type_of: TypeOf) -> None:
        store, options, clock, telling = (
            self._database.store,
            self.options,
            self._clock,
            self._telling,
        )
        self._links = {
            purpose: self._database.link(purpose, options.statement_timeout_ms)
            for purpose in ("claim", "complete", "heartbeat", "reaper")
        }
        self._completer = Completer(
            self._links["complete"],
            store,
            self._holdings,
            clock,
            telling.accepted,
            telling.refused,
            self._fanned_in,
            telling.trouble,
        )
        self._claimer = Claimer(
            self._links["claim"],
            store,
            self.id,
            options,
            self.types,
            self._holdings,
            self._backlog,
            clock,
            new_id,
            self._pace,
            telling.trouble,
        )
        execution = Execution(
            self.id,
            self._database,
            self.types,
            Continuation(self.id, new_id, type_of),
            middlewares,
            self._threads,
            self._processes,
            clock.random,
        )
        self._slots = Slots(
            options,
            self._backlog,
            execution,
            self._completer,
            self._claimer,
            self._holdings,
            clock,
            telling.started,
            self._recorded,
            self._lease_ms,
        )
        self._heartbeat = Heartbeat(
            self._links["heartbeat"],
            store,
            self.id,
            self._holdings,
            clock,
            self.timings.heartbeat_ms,
            self,
            self._sign,
        )
        self._reaper = Reaper(
            self._links["reaper"],
            store,
            clock,
            self.timings.reaper_interval_ms,
            options.reaper_batch,
            options.poison_limit,
            self._reaped,
            telling.reaper_ran,
            telling.trouble,
        )
        self._thread = LoopThread("holdfast-heartbeat", self._beside)

    @property
    def running(self) -> int:
        """How many attempts run now."""
        return len(self._slots.running)

    def stop(self, reason: str = "asked") -> None:
        """Take nothing new and end when the running handlers have; the second call ends them now. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped, reason)

    def _stopped(self, reason: str) -> None:
        if self._stop.is_set():
            self._stop_now.set()
        else:
            self._reason = reason
            self._stop.set()

    async def run(self) -> WorkerReport:
        """Work until stopped. Raises: configuration and schema errors before anything is claimed."""
        self._loop = asyncio.get_running_loop()
        await self._subscribe()
        listener = self._listen()
        self._thread.start()
        completer = asyncio.create_task(self._completer.run(), name="holdfast completer")
        claimer = asyncio.create_task(self._claimer.run(), name="holdfast claimer")
        watch = asyncio.create_task(self._watch(listener), name="holdfast watch")
        self._slots.start()
        self._telling.tell(
            "worker_started",
            slots=self.options.slots,
            types=sorted(self.types),
            lease_ms=self.options.lease.duration_ms,
            heartbeat_ms=self.timings.heartbeat_ms,
        )
        try:
            await self._until_stopped(claimer, completer)
        finally:
            report = await self._drain(claimer, completer, watch, listener)
        return report

    async def _until_stopped(self, *tasks: asyncio.Task[None]) -> None:
        """Wait for the word; a loop that ends by itself is a defect and is raised."""
        stop = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                await task
        finally:
            stop.cancel()

    async def _drain(
        self,
        claimer: asyncio.Task[None],
        completer: asyncio.Task[None],
        watch: asyncio.Task[None],
        listener: Listener | None,
    ) -> WorkerReport:
        self._telling.tell("worker_stopping", reason=self._reason, running=self.running)
        self._claimer.stop()
        released = self._give_back()
        await asyncio.wait([claimer], timeout=self.options.statement_timeout_ms / 1000)
        released += self._give_back()
        await self._let_handlers_end()
        abandoned = len(self._slots.running)
        if abandoned:
            self._slots.abandon()
        await self._last_words(completer)
        watch.cancel()
        completer.cancel()
        claimer.cancel()
        await asyncio.gather(watch, completer, claimer, return_exceptions=True)
        self._thread.call(self._heartbeat.stop)
        self._thread.call(self._reaper.stop)
        await self._thread.join()
        await self._close(listener)
        self._telling.tell(
            "worker_stopped", reason=self._reason, abandoned=abandoned, released=released
        )
        return WorkerReport(self._reason, abandoned, released)

    def _give_back(self) -> int:
        """Give back what no slot has started, without costing an attempt."""
        unstarted = self._backlog.close()
        for attempt in unstarted:
            self._completer.submit(attempt, finish_of(attempt, self.id, "release"))
        return len(unstarted)

    async def _let_handlers_end(self) -> None:
        """Wait for the running handlers up to the shutdown timeout; a second signal tells them to stop."""
        ended = asyncio.create_task(self._slots.finished(None))
        now = asyncio.create_task(self._stop_now.wait())
        await asyncio.wait(
            {ended, now},
            timeout=self.timings.shutdown_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        now.cancel()
        if not ended.done():
            at = self._clock.monotonic()
            for attempt in list(self._slots.running.values()):
                attempt.abort("shutdown", at)
            await asyncio.wait({ended}, timeout=ABORT_GRACE_S)
        ended.cancel()
        await asyncio.gather(ended, now, return_exceptions=True)

    async def _last_words(self, completer: asyncio.Task[None]) -> None:
        drained = asyncio.create_task(self._completer.drained())
        await asyncio.wait(
            {drained, completer}, timeout=LAST_WORDS_S, return_when=asyncio.FIRST_COMPLETED
        )
        drained.cancel()
        await asyncio.gather(drained, return_exceptions=True)

    async def _close(self, listener: Listener | None) -> None:
        if listener is not None:
            await asyncio.to_thread(listener.close)
        try:
            counters = msgspec.json.encode(self.counters.as_dict()).decode()
            await self._links["complete"].run(self._database.store.workers.stop(self.id, counters))
        except (DatabaseUnreachable, DatabaseBusy) as error:
            self._telling.trouble("complete", error)
        for purpose in ("claim", "complete"):
            await self._links[purpose].close()
        await self._processes.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _beside(self) -> None:
        """What the heartbeat thread hosts: a blocked main loop stops neither renewals nor the reaper."""
        try:
            await asyncio.gather(self._heartbeat.run(), self._reaper.run())
        finally:
            await self._links["heartbeat"].close()
            await self._links["reaper"].close()

    async def _subscribe(self) -> None:
        """Register the handlers of events and deliver what waited for them."""
        subscriptions = [
            Subscription(each.event, each.name.removeprefix(f"{each.event}/"))
            for each in self.types.values()
            if each.event is not None
        ]
        if subscriptions:
            op = subscribe_handlers(self._database.store, subscriptions, new_id)
            await self._links["claim"].run_atomic(op)

    def _listen(self) -> Listener | None:
        if self._notifier is None:
            return None
        loop = asyncio.get_running_loop()

        def on_hint(hint: Hint) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._hinted, hint)

        return self._notifier.listen(on_hint)

    def _hinted(self, hint: Hint) -> None:
        match hint.kind:
            case "due":
                self._claimer.hint(None if hint.type == ANY else hint.type)
            case "look":
                self._claimer.hint(None if hint.type == ANY else hint.type, from_the_start=True)
            case "lost" if hint.worker == self.id:
                self._thread.call(self._heartbeat.nudge)
            case _:
                pass

    async def _watch(self, listener: Listener | None) -> None:
        """Watch the loop's own lag, handlers that do not obey, and whether hints still arrive."""
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(WATCH_S)
            lag = self._clock.monotonic() - before - WATCH_S
            if lag > LAG_S:
                self._telling.tell("loop_lagged", lag_ms=int(lag * 1000))
            self._pace.hints_alive = listener is not None and listener.alive
            self._report_stuck()

    def _report_stuck(self) -> None:
        now = self._clock.monotonic()
        stuck = [
            each
            for each in self._slots.running.values()
            if each.aborted_at is not None
            and now - each.aborted_at > self.options.stuck_after_ms / 1000
        ]
        if len(stuck) > self.counters.stuck:
            for each in stuck:
                self._telling.tell(
                    "slot_stuck",
                    job_id=each.claimed.id,
                    type=each.claimed.type,
                    reason=each.abort_reason,
                )
        self.counters.stuck = len(stuck)
        if len(stuck) >= self.options.slots and not self._stop.is_set():
            self._stopped("all slots are stuck")

    def _recorded(self, attempt: Attempt, ended: Ended) -> None:
        """An attempt ended without the completer: in its handler's transaction, or with its lease lost."""
        if ended.report is not None and ended.finish is not None:
            self._telling.accepted(attempt, ended.finish)
            self._fanned_in(ended.report.fan_in)
        elif attempt.abort_reason is None and ended.error is not None:
            self._telling.refused(attempt, finish_of(attempt, self.id, "complete"), "taken")

    def _fanned_in(self, fan_in: FanIn) -> None:
        if fan_in.opened:
            for type in {each.type for each in fan_in.opened}:
                self._claimer.hint(type)
            self._send([Hint("due", each) for each in {job.type for job in fan_in.opened}])

    def _reaped(self, jobs: list[Reaped], fan_in: FanIn) -> None:
        """Called on the heartbeat thread."""
        self._telling.reaped(jobs)
        self._send(
            [Hint("due", type) for type in {each.type for each in jobs if each.state == "pending"}]
            + [
                Hint(
                    "lost",
                    worker=worker,
                    ids=tuple(each.id for each in jobs if each.worker == worker)[:50],
                )
                for worker in {each.worker for each in jobs}
            ]
        )
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._claimer.hint)
            if fan_in.opened:
                self._loop.call_soon_threadsafe(self._fanned_in, fan_in)

    def _send(self, hints: list[Hint]) -> None:
        if self._notifier is not None and hints:
            self._notifier.send(hints)

    def lost(self, attempt: Attempt, reason: AbortReason) -> None:
        """Called on the heartbeat thread: a lease is gone or can no longer be trusted."""
        self._on_loop(self._lose, attempt, reason)

    def _lose(self, attempt: Attempt, reason: AbortReason) -> None:
        if attempt.abort_reason is None:
            self._telling.lost(attempt, reason)
        attempt.abort(reason, self._clock.monotonic())
        if reason != "error":
            self._holdings.drop(attempt)

    def timed_out(self, attempt: Attempt, recorded: bool) -> None:
        """Called on the heartbeat thread: an attempt ran out of time, and its end may be recorded already."""
        self._on_loop(self._time_out, attempt, recorded)

    def _time_out(self, attempt: Attempt, recorded: bool) -> None:
        attempt.settled = recorded
        if recorded:
            self._holdings.drop(attempt)
        attempt.abort("timeout", self._clock.monotonic())

    def configured(self, settings: Mapping[str, TypeSetting], paused: bool) -> None:
        """Called on the heartbeat thread: what was set at run time."""
        self._settings = settings
        self._on_loop(self._claimer.configure, settings, paused)

    def drain(self) -> None:
        """Called on the heartbeat thread: somebody asked this worker to drain."""
        if not self._stop.is_set():
            self.stop("drained")

    def trouble(self, purpose: str, error: BaseException | None) -> None:
        """Called on the heartbeat thread: it lost the database, or has it again."""
        self._telling.trouble(purpose, error)

    def _on_loop(self, function: object, *arguments: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)  # type: ignore[arg-type]

    def _lease_ms(self, attempt: Attempt) -> int:
        setting = self._settings.get(attempt.type.name)
        if setting is not None and setting.lease_ms is not None:
            return setting.lease_ms
        return (attempt.type.lease or self.options.lease).duration_ms

    def _own_type(self, target: object) -> JobType | None:
        if isinstance(target, str):
            return self.types.get(target)
        return next((each for each in self.types.values() if each.handler is target), None)

    def _sign(self) -> WorkerSign:
        self.counters.claimed = self._claimer.claimed
        return WorkerSign(
            id=self.id,
            name=self.options.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=VERSION,
            slots=self.options.slots,
            types=msgspec.json.encode(sorted(self.types)).decode(),
            counters=msgspec.json.encode(self.counters.as_dict()).decode(),
            last_error=self._telling.last_error,
        )
