"""Renews the worker's leases, learns which are lost, and enforces timeouts; hosted by a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable
from holdfast.core.lease import local_deadline_ms
from holdfast.core.model import Held, Stand, TypeSetting
from holdfast.storage.database import Link
from holdfast.storage.port import Store
from holdfast.storage.records import WorkerSign
from holdfast.worker.attempt import AbortReason, Attempt
from holdfast.worker.clock import Clock
from holdfast.worker.holdings import Holdings
from holdfast.worker.judge import judge_timeout

RETRY_SHARE = 5


class Told(Protocol):
    """Whom the heartbeat tells what it learns; called on its own thread."""

    def lost(self, attempt: Attempt, reason: AbortReason) -> None: ...
    def timed_out(self, attempt: Attempt, recorded: bool) -> None: ...
    def configured(self, settings: Mapping[str, TypeSetting], paused: bool) -> None: ...
    def drain(self) -> None: ...
    def trouble(self, purpose: str, error: BaseException | None) -> None: ...


class Heartbeat:
    """One beat renews all leases in one statement and reads the held ids in a second.

    Compared both ways: what we hold and the database does not know is aborted with its reason; what the database says
    we hold and we do not know is given back. Without the database each claim lives to its local deadline, which comes
    before its lease can end.
    """

    def __init__(
        self,
        link: Link,
        store: Store,
        worker: str,
        holdings: Holdings,
        clock: Clock,
        interval_ms: int,
        told: Told,
        sign: Callable[[], WorkerSign],
    ) -> None:
        self._link = link
        self._store = store
        self._worker = worker
        self._holdings = holdings
        self._clock = clock
        self._interval = interval_ms / 1000
        self._told = told
        self._sign = sign
        self._wake = asyncio.Event()
        self._stopping = False
        self._next_beat = 0.0

    def nudge(self) -> None:
        """Beat now, for example because a hint said that jobs were taken from us. Called on its own loop."""
        self._next_beat = 0.0
        self._wake.set()

    def stop(self) -> None:
        """End after the present beat. Called on its own loop."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Beat until told to stop."""
        while not self._stopping:
            self._wake.clear()
            now = self._clock.monotonic()
            if now >= self._next_beat:
                self._next_beat = now + self._interval
                if not await self._beat():
                    self._next_beat = self._clock.monotonic() + self._interval / RETRY_SHARE
            await self._enforce(self._clock.monotonic())
            wait = self._next_event() - self._clock.monotonic()
            await self._clock.wait(self._wake, max(0.0, wait))

    async def _beat(self) -> bool:
        try:
            await self._give_back_unanswered()
            await self._renew()
            await self._compare()
            await self._presence()
        except (DatabaseUnreachable, DatabaseBusy) as error:
            self._told.trouble("heartbeat", error)
            return False
        self._told.trouble("heartbeat", None)
        return True

    async def _give_back_unanswered(self) -> None:
        tokens = self._holdings.take_unanswered()
        if not tokens:
            return
        try:
            await self._link.run(self._store.leases.release(tokens))
        except BaseException:
            self._holdings.unanswered(tokens)
            raise

    async def _renew(self) -> None:
        claims = {claim.token: claim for claim in self._holdings.claims()}
        if not claims:
            return
        asked_at = self._clock.monotonic()
        renewed = await self._link.run(self._store.leases.renew(list(claims)))
        for token in renewed:
            claim = claims[token]
            claim.deadline = local_deadline_ms(int(asked_at * 1000), claim.lease_ms) / 1000

    async def _compare(self) -> None:
        before = self._holdings.attempts()
        held = await self._link.run(self._store.leases.held(self._worker))
        known = {(each.id, each.token) for each in held}
        missing = [each for each in before if (each.claimed.id, each.claimed.token) not in known]
        if missing:
            await self._explain(missing)
        strangers = {each.token for each in held if not self._holdings.knows(each.token)}
        if strangers:
            await self._link.run(self._store.leases.release(sorted(strangers)))

    async def _explain(self, missing: list[Attempt]) -> None:
        pairs = [Held(each.claimed.id, each.claimed.token) for each in missing]
        stands = await self._link.run(self._store.jobs.stand(pairs))
        found = {(each.id, each.token): each for each in stands}
        for attempt in missing:
            reason = _reason(found[attempt.claimed.id, attempt.claimed.token])
            if reason is not None and not attempt.settled:
                self._told.lost(attempt, reason)

    async def _presence(self) -> None:
        draining = await self._link.run(self._store.workers.sign(self._sign()))
        settings = await self._link.run(self._store.workers.settings())
        identity = await self._link.run(self._store.schema.identity())
        paused = identity is not None and identity.paused
        self._told.configured({each.type: each for each in settings}, paused)
        if draining:
            self._told.drain()

    async def _enforce(self, now: float) -> None:
        """Stop what ran out of time, and what can no longer be sure of its lease."""
        for claim in self._holdings.claims():
            if now >= claim.deadline:
                for attempt in list(claim.attempts.values()):
                    self._told.lost(attempt, "error")
        for attempt in self._holdings.attempts():
            if attempt.timeout_at is not None and now >= attempt.timeout_at and not attempt.settled:
                await self._time_out(attempt)

    async def _time_out(self, attempt: Attempt) -> None:
        """Record a timed-out attempt here, because its loop may be blocked by the very handler."""
        attempt.settled = True
        started = attempt.started_at or attempt.received_at
        after_ms = int((self._clock.monotonic() - started) * 1000)
        finish = judge_timeout(attempt, self._worker, after_ms, self._clock.random())
        recorded = False
        try:
            done = await self._link.run(self._store.jobs.finish([finish]))
            recorded = bool(done)
        except (DatabaseUnreachable, DatabaseBusy) as error:
            self._told.trouble("heartbeat", error)
        self._told.timed_out(attempt, recorded)

    def _next_event(self) -> float:
        times = [self._next_beat]
        for claim in self._holdings.claims():
            if any(each.abort_reason is None for each in claim.attempts.values()):
                times.append(claim.deadline)
        times += [
            each.timeout_at
            for each in self._holdings.attempts()
            if each.timeout_at is not None and not each.settled
        ]
        return min(times)


def _reason(stand: Stand) -> AbortReason | None:
    """Why a job is no longer held; None when it is, or when we ended it ourselves a moment ago."""
    match stand.standing:
        case "held" | "done":
            return None
        case "ended":
            return "cancelled" if stand.state == "cancelled" else "already_completed"
        case "taken" | "free":
            return "taken_by_another_worker"
        case "gone":
            return "not_found"
