"""Renews the worker's leases, learns which are lost, and says that the worker lives; hosted by a thread of its own.

What a worker says of itself with each heartbeat.

Stops what ran out of time and what can no longer be sure of its lease; hosted by the heartbeat's thread.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Protocol

import msgspec

from holdfast.core.lease import default_heartbeat_ms, local_deadline_ms
from holdfast.core.records import Finish, Held, NewProgress, TypeSetting, WorkerSign
from holdfast.storage.database import Link
from holdfast.version import VERSION
from holdfast.worker.attempt import AbortReason, Attempt, lost_because
from holdfast.worker.context import Workplace
from holdfast.worker.held_leases import HeldClaim
from holdfast.worker.resolve_outcome import judge_timeout


def sign_of(place: Workplace) -> WorkerSign:
    """Make the sign of a worker that lives."""
    return WorkerSign(
        id=place.id,
        name=place.options.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        slots=place.options.slots,
        types=msgspec.json.encode(sorted(place.types)).decode(),
        counters=counters_of(place),
        last_error=place.telling.last_error,
    )


def counters_of(place: Workplace) -> str:
    """The worker's counters as they are kept with its presence."""
    return msgspec.json.encode(place.counters.as_dict()).decode()


PURPOSE = "heartbeat"


class DeadlineCallbacks(Protocol):
    """Whom the deadlines tell what they did; called on their own thread."""

    def lost(self, attempt: Attempt, reason: AbortReason) -> None: ...
    def interrupt(self, attempt: Attempt) -> None: ...
    def timed_out(self, attempt: Attempt, finish: Finish, recorded: bool) -> None: ...


class Deadlines:
    """Without the database each claim lives to its local deadline, which comes before its lease can end.

    It never waits for the database itself: a statement that hangs must not keep a deadline from being seen.
    """

    def __init__(
        self,
        place: Workplace,
        link: Link,
        told: DeadlineCallbacks,
        call: Callable[[Callable[[], object]], None],
    ) -> None:
        """`call` has something done on the loop that hosts this, from any thread."""
        self._place = place
        self._link = link
        self._told = told
        self._call = call
        self._wake = asyncio.Event()
        self._stopping = False
        self._next = math.inf
        self._recording: set[asyncio.Task[None]] = set()

    def expect(self, at: float) -> None:
        """Be sure to look at this time. From any thread; costs nothing when an earlier look is planned."""
        if at < self._next:
            self._call(self._wake.set)

    def stop(self) -> None:
        """End soon. Called on its own loop."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Watch until told to stop."""
        clock = self._place.clock
        while not self._stopping:
            self._wake.clear()
            # Whatever begins while we look is announced, and wakes us.
            self._next = math.inf
            self._next = self._enforce(clock.monotonic())
            wait = None if self._next == math.inf else max(0.0, self._next - clock.monotonic())
            await clock.wait(self._wake, wait)
        if self._recording:
            await asyncio.gather(*self._recording)

    def _enforce(self, now: float) -> float:
        """Stop what is over by now; return when to look again."""
        coming = [math.inf]
        late: list[Attempt] = []
        for claim, held in self._place.holdings.by_claim():
            attempts = [each for each in held if not each.is_ending]
            coming.append(self._check_lease(claim, attempts, now))
            for attempt in attempts:
                if attempt.timeout_at is None:
                    continue
                if now < attempt.timeout_at:
                    coming.append(attempt.timeout_at)
                elif attempt.take_ending("heartbeat"):
                    late.append(attempt)
        if late:
            self._time_out(late, now)
        return min(coming)

    def _check_lease(self, claim: HeldClaim, attempts: list[Attempt], now: float) -> float:
        """Stop what a claim holds once its lease may end; return when that is."""
        unaware = [each for each in attempts if each.abort_reason is None]
        if not unaware:
            return math.inf
        if now < claim.deadline:
            return claim.deadline
        # Those that wait come first: a slot whose handler is stopped begins the next of them at once.
        for attempt in sorted(unaware, key=attrgetter("is_started")):
            self._told.lost(attempt, "error")
        return math.inf

    def _time_out(self, late: list[Attempt], now: float) -> None:
        """Record timed-out attempts here, because their loop may be blocked by the very handler."""
        finishes: dict[Attempt, Finish] = {}
        for attempt in late:
            attempt.abort("timeout", now)
            self._told.interrupt(attempt)
            jitter = self._place.clock.random()
            finishes[attempt] = judge_timeout(attempt, self._place.id, now, jitter)
        task = asyncio.create_task(self._record(finishes))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def _record(self, finishes: dict[Attempt, Finish]) -> None:
        recorded: set[str] = set()
        try:
            done = await self._link.run(self._place.store.jobs.finish(list(finishes.values())))
            recorded = {each.id for each in done}
        except Exception as error:
            self._place.trouble.note(PURPOSE, error)
        for attempt, finish in finishes.items():
            self._told.timed_out(attempt, finish, attempt.claimed.id in recorded)


RETRY_SHARE = 5


class HeartbeatCallbacks(Protocol):
    """Whom the heartbeat tells what it learns; called on its own thread."""

    def lost(self, attempt: Attempt, reason: AbortReason) -> None: ...
    def strangers(self, tokens: set[str]) -> None: ...
    def configured(self, settings: Mapping[str, TypeSetting], is_paused: bool) -> None: ...
    def drain(self) -> None: ...


class Heartbeat:
    """One beat renews all leases in one statement and reads the held ids in a second.

    Compared both ways: what we hold and the database does not know is aborted with its reason; what the database says
    we hold and we do not know is given back.
    """

    def __init__(
        self, place: Workplace, link: Link, told: HeartbeatCallbacks, sign: Callable[[], WorkerSign]
    ) -> None:
        self._place = place
        self._link = link
        self._told = told
        self._sign = sign
        self._interval = place.timings.heartbeat_ms / 1000
        self._wake = asyncio.Event()
        self._stopping = False
        self._reported: dict[str, NewProgress] = {}

    def nudge(self) -> None:
        """Beat now, for example because a hint said that jobs were taken from us. Called on its own loop."""
        self._wake.set()

    def stop(self) -> None:
        """End after the present beat. Called on its own loop."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Beat until told to stop."""
        clock = self._place.clock
        while not self._stopping:
            self._wake.clear()
            began = clock.monotonic()
            pause = self._interval if await self._beat() else self._interval / RETRY_SHARE
            await clock.wait(self._wake, max(0.0, began + pause - clock.monotonic()))

    async def _beat(self) -> bool:
        try:
            await self._renew()
            await self._compare()
            await self._progress()
            await self._presence()
        except Exception as error:
            self._place.trouble.note(PURPOSE, error)
            return False
        self._place.trouble.over(PURPOSE)
        self._place.counters.heartbeats += 1
        return True

    async def _renew(self) -> None:
        claims = {claim.token: claim for claim in self._place.holdings.claims()}
        if not claims:
            return
        asked_ms = int(self._place.clock.monotonic() * 1000)
        renewed = await self._link.run(self._place.store.leases.renew(list(claims)))
        for token in renewed:
            claim = claims[token]
            claim.deadline = local_deadline_ms(asked_ms, claim.lease_ms) / 1000

    async def _compare(self) -> None:
        holdings = self._place.holdings
        before = holdings.attempts()
        with holdings.comparing() as is_known:
            held = await self._link.run(self._place.store.leases.held(self._place.id))
            strangers = {each.token for each in held if not is_known(each.token)}
        known = {(each.id, each.token) for each in held}
        missing = [each for each in before if (each.claimed.id, each.claimed.token) not in known]
        if missing:
            await self._explain(missing)
        if strangers:
            self._told.strangers(strangers)

    async def _explain(self, missing: list[Attempt]) -> None:
        pairs = [Held(each.claimed.id, each.claimed.token) for each in missing]
        stands = await self._link.run(self._place.store.jobs.stand(pairs))
        found = {(each.id, each.token): each for each in stands}
        for attempt in sorted(missing, key=attrgetter("is_started")):
            reason = lost_because(found[attempt.claimed.id, attempt.claimed.token])
            # Whoever writes its end finds out there; what looks lost may be that very write.
            if reason is not None and not attempt.is_ending:
                self._told.lost(attempt, reason)

    async def _progress(self) -> None:
        """Record how far attempts are, if they said anything new; forget what was said of those that have ended."""
        said = {
            each.claimed.id: _progress_of(each, each.progress)
            for each in self._place.holdings.attempts()
            if each.progress is not None
        }
        new = [each for job_id, each in said.items() if self._reported.get(job_id) != each]
        over = [each for job_id, each in self._reported.items() if job_id not in said]
        if new:
            await self._link.run(self._place.store.leases.report(new))
        if over:
            await self._link.run(self._place.store.leases.forget(over))
        self._reported = said

    async def _presence(self) -> None:
        store = self._place.store
        is_draining = await self._link.run(store.workers.sign(self._sign()))
        settings = await self._link.run(store.workers.settings())
        identity = await self._link.run(store.schema.identity())
        is_paused = identity is not None and identity.paused
        mine = {each.type: each for each in settings if each.type in self._place.types}
        self._fit_interval(mine)
        self._told.configured(mine, is_paused)
        if is_draining:
            self._told.drain()

    def _fit_interval(self, settings: Mapping[str, TypeSetting]) -> None:
        """Beat fast enough for the leases set at run time, before the first of them is taken."""
        leases = [each.lease_ms for each in settings.values() if each.lease_ms is not None]
        fitting = [default_heartbeat_ms(min(leases))] if leases else []
        self._interval = min([self._place.timings.heartbeat_ms, *fitting]) / 1000


def _progress_of(attempt: Attempt, said: tuple[float, str]) -> NewProgress:
    claimed = attempt.claimed
    return NewProgress(claimed.id, claimed.token, claimed.fence, *said)
