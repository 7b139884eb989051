"""A worker: runs the jobs of some types from one process, until told to stop.

Ends a worker in order: nothing new, unstarted work back, handlers to their end, last words, good-bye.

Puts the parts of one worker together.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from holdfast.client.enqueue import Targets, open_targets
from holdfast.commands.identity import check_identity
from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable
from holdfast.core.events import Observer
from holdfast.core.registry import JobType
from holdfast.notify.base import Notifier
from holdfast.storage.database import Database, Link
from holdfast.storage.id_generator import new_id
from holdfast.worker.after_commit import Office, Records
from holdfast.worker.attempt import Attempt
from holdfast.worker.background_loops import Companion, Companions, LoopThread, SameLoop, call_on
from holdfast.worker.claimer import Claimer
from holdfast.worker.clock import Clock, SystemClock, all_ended
from holdfast.worker.completer import Completer, Outcomes, Stragglers
from holdfast.worker.context import Workplace
from holdfast.worker.counters import Counters, WorkerReport
from holdfast.worker.executor import Calls, Execution
from holdfast.worker.heartbeat import Deadlines, Heartbeat, counters_of, sign_of
from holdfast.worker.heartbeat_events import News
from holdfast.worker.job import Middleware
from holdfast.worker.notifications import Hints
from holdfast.worker.options import Pace, WorkerOptions
from holdfast.worker.processes import ProcessHandlers
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.reaper import Latecomers, Reaper, Returns
from holdfast.worker.resolve_outcome import Continuation, whereabouts
from holdfast.worker.slots import Backlog, Overdue, Slots
from holdfast.worker.vacuum import Sweeper
from holdfast.worker.watchdog import Watch, Watchdog

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


LAST_WORDS_S = 5.0
ABORT_GRACE_S = 1.0


class Drain:
    """One worker's end. Leases are renewed until the last handler has ended."""

    def __init__(self, place: Workplace, parts: Parts) -> None:
        self._place = place
        self._parts = parts
        self.released = 0
        self.abandoned = 0

    async def run(
        self,
        claiming: asyncio.Task[Any],
        others: list[asyncio.Task[Any]],
        asked: asyncio.Event,
        now: asyncio.Event,
    ) -> None:
        """Go through all of it; `now` cuts the handlers short, a cancellation gives them up."""
        try:
            await self._let_work_end(claiming, asked, now)
        except BaseException:
            await self._parts.slots.abandon()
            raise
        finally:
            await self._leave([claiming, *others])

    async def _let_work_end(
        self, claiming: asyncio.Task[Any], asked: asyncio.Event, now: asyncio.Event
    ) -> None:
        clock, parts = self._place.clock, self._parts
        parts.claimer.stop()
        self._give_back_unstarted()
        await all_ended(clock, [claiming], self._place.options.statement_timeout_ms / 1000)
        # A claim that was under way may have brought something.
        self._give_back_unstarted()
        await self._let_handlers_have_their_time(asked)
        await self._let_handlers_end(now)
        await clock.wait(parts.outcomes.all_settled, LAST_WORDS_S)

    async def _leave(self, loops: list[asyncio.Task[Any]]) -> None:
        """End the loops that nobody needs any more; whoever went on renewing would keep jobs from everybody."""
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await self._part_from_companions()
        self.abandoned = self._count_abandoned()
        await self._close()

    def _give_back_unstarted(self) -> None:
        """Give back what no slot has started, without costing an attempt."""
        parts = self._parts
        unstarted = parts.backlog.close() + parts.quarantine.close()
        self.released += parts.office.give_back(unstarted)

    async def _let_handlers_have_their_time(self, asked: asyncio.Event) -> None:
        """Wait for handlers that have a time of their own, unless the worker is asked to stop meanwhile."""
        slots, clock = self._parts.slots, self._place.clock
        if slots.all_end_at == math.inf:
            return
        ended = asyncio.create_task(slots.finished(None))
        stopped = asyncio.create_task(asked.wait())
        ended.add_done_callback(lambda _: stopped.cancel())
        await all_ended(clock, [stopped], max(0.0, slots.all_end_at - clock.monotonic()))
        if not ended.done() and not asked.is_set():
            # They were told just now; those that obey are not to be told of a shutdown as well.
            await all_ended(clock, [ended], ABORT_GRACE_S)
        for task in (ended, stopped):
            task.cancel()
        await asyncio.gather(ended, stopped, return_exceptions=True)

    async def _let_handlers_end(self, now: asyncio.Event) -> None:
        """Wait for the running handlers up to the shutdown timeout, then tell them to stop, then give them up."""
        slots, clock = self._parts.slots, self._place.clock
        ended = asyncio.create_task(slots.finished(None))
        hurried = asyncio.create_task(now.wait())
        ended.add_done_callback(lambda _: hurried.cancel())
        is_late = clock.monotonic() >= slots.all_end_at
        shutdown_s = self._place.timings.shutdown_ms / 1000
        # Those that do not end by themselves have their last moment within the timeout, not after it.
        grace_s = min(ABORT_GRACE_S, shutdown_s / 4)
        await all_ended(clock, [hurried], 0.0 if is_late else shutdown_s - grace_s)
        if not ended.done():
            slots.interrupt()
            if not await all_ended(clock, [ended], grace_s or ABORT_GRACE_S):
                await slots.abandon()
        for task in (ended, hurried):
            task.cancel()
        await asyncio.gather(ended, hurried, return_exceptions=True)

    async def _part_from_companions(self) -> None:
        """End the heartbeat last; what it cannot give back in time is left to lease expiry."""
        parts = self._parts
        ended = asyncio.create_task(parts.host.ended())
        parts.host.call(parts.companions.stop)
        if not await all_ended(self._place.clock, [ended], LAST_WORDS_S):
            parts.host.call(parts.companions.cancel)
        await asyncio.gather(ended, return_exceptions=True)

    def _count_abandoned(self) -> int:
        """Count what is still leased in our name, or still runs."""
        attempts = set(self._place.holdings.attempts())
        lost_claims = 1 if self._place.holdings.has_unanswered else 0
        slots = self._parts.slots
        return len(attempts | slots.running | slots.abandoned) + lost_claims

    async def _close(self) -> None:
        place, parts = self._place, self._parts
        await parts.hints.close()
        await parts.completer.free()
        try:
            await parts.links["complete"].run(
                place.store.workers.stop(place.id, counters_of(place))
            )
        except Exception as error:
            place.trouble.note("complete", error)
        for purpose in OWN_LINKS:
            await parts.links[purpose].close()
        await parts.processes.close()
        parts.threads.shutdown(wait=False, cancel_futures=True)


OWN_LINKS = ("claim", "complete", "fan-in")
COMPANIONS_LINKS = ("heartbeat", "reaper")


class Parts:
    """Everything one worker consists of; `to_loop` has something done on its loop, from any thread."""

    def __init__(
        self,
        place: Workplace,
        notifier: Notifier | None,
        middlewares: Sequence[Middleware],
        targets: Targets,
        to_loop: Callable[..., None],
        stop: Callable[[str], None],
        own_thread: bool,
    ) -> None:
        self.links = _links(place)
        self.hints = Hints(place.id, notifier)
        self.pace = Pace(place.options)
        self.backlog = Backlog(place.terms.limit, self._is_behind)
        self.claimer = Claimer(
            place,
            self.links["claim"],
            self.backlog,
            self.pace,
            new_id,
            expect=self._expect,
            missed=self._give_back,
            is_held_up=self._is_behind,
        )
        # Only one job whose worker died is held at a time, so the next of them has to be looked for.
        place.holdings.when_calm = partial(to_loop, self.claimer.hint, None, True)
        place.holdings.when_less = partial(to_loop, self._less_held)
        self.quarantine = self.claimer.quarantine = Quarantine(
            place,
            self.links["complete"],
            self.backlog,
            lambda: self.slots.running,
            partial(self.claimer.hint, None, True),
        )
        self.records = Records(place, self.claimer, self.hints)
        self.outcomes = Outcomes(place.holdings, self.records)
        self.stragglers = Stragglers(
            place, self.links["fan-in"], self.outcomes, self.records.opened
        )
        self.completer = Completer(
            place, self.links["complete"], self.outcomes, self.stragglers.add
        )
        self.completer.when_eased = self._go_on
        # A server that went away may have forgotten our last claims, and others may have them by now.
        place.trouble.when_back = self.check_leases
        # Most leases go with the flush that ends their last job; those of handlers' own transactions do not.
        place.holdings.when_untidy = partial(to_loop, self.completer.tidy)
        self._build_slots(place, middlewares, targets, stop)
        self._build_companions(place, to_loop, stop, own_thread)

    def _build_slots(
        self,
        place: Workplace,
        middlewares: Sequence[Middleware],
        targets: Targets,
        stop: Callable[[str], None],
    ) -> None:
        self.threads = ThreadPoolExecutor(place.options.slots, "holdfast-handler")
        self.processes = ProcessHandlers(lambda job: self.slots.begun(job.held))
        calls = Calls(place.types, middlewares, self.threads, self.processes)
        continuation = Continuation(place.id, new_id, targets)
        self.office = Office(place, self.records, self.completer, self.claimer)
        self.slots = Slots(
            place,
            self.backlog,
            Execution(place, calls, continuation),
            self.office,
            self._expect,
        )
        self.overdue = Overdue(place.clock, self.backlog, self.office.give_back)
        self.quarantine.give_back = self.office.give_back
        self.watch = Watch(
            place,
            self.slots,
            self.hints,
            self.pace,
            self.claimer.nudge,
            partial(stop, "all slots are stuck"),
        )

    def _build_companions(
        self,
        place: Workplace,
        to_loop: Callable[..., None],
        stop: Callable[[str], None],
        own_thread: bool,
    ) -> None:
        news = News(
            place,
            self.claimer,
            self.backlog,
            self.completer,
            self.records,
            self.hints,
            to_loop=to_loop,
            asked_to_drain=partial(stop, "drained"),
            give_back=self._give_back,
        )
        beating, reaping = (self.links[purpose] for purpose in COMPANIONS_LINKS)
        self.heartbeat = Heartbeat(place, beating, news, partial(sign_of, place))
        self.deadlines = Deadlines(place, beating, news, self._on_companions_loop)
        self.returns = Returns(place, reaping, news.released)
        self.latecomers = Latecomers(place, reaping, new_id, news.delivered)
        reaper = Reaper(place, reaping, news.reaped)
        self.watchdog = Watchdog(
            place,
            reaping,
            self.slots,
            to_loop,
            self._on_companions_loop,
            partial(to_loop, stop, "the event loop is blocked"),
        )
        loops: list[Companion] = [
            self.heartbeat,
            self.deadlines,
            self.returns,
            self.latecomers,
            Sweeper(place, reaping),
            self.watchdog,
        ]
        if place.options.reaps:
            loops.append(reaper)
        self.companions = Companions(loops, [beating, reaping])
        host = LoopThread if own_thread else SameLoop
        self.host: LoopThread | SameLoop = host("holdfast-heartbeat", self.companions.run)

    def check_leases(self) -> None:
        """Have the heartbeat look what is still ours. From any thread."""
        self._on_companions_loop(self.heartbeat.nudge)

    def _less_held(self) -> None:
        self.quarantine.look_again()

    def _is_behind(self) -> bool:
        return self.completer.is_behind()

    def _go_on(self) -> None:
        self.backlog.resume()
        self.claimer.nudge()

    def _expect(self, at: float) -> None:
        self.deadlines.expect(at)

    def _give_back(self) -> None:
        self._on_companions_loop(self.returns.nudge)

    def _on_companions_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        self.host.call(function, *arguments)


def _links(place: Workplace) -> dict[str, Link]:
    """Return a link for each purpose; none of them is connected yet."""
    timeout_ms = place.options.statement_timeout_ms
    return {
        # A claim that is lost with the server was never made: its completion finds no token and is refused.
        purpose: place.database.link(purpose, timeout_ms, durable=purpose != "claim")
        for purpose in (*OWN_LINKS, *COMPANIONS_LINKS)
    }
