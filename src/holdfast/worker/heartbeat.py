"""Renews the worker's leases, learns which are lost, and says that the worker lives; hosted by a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Protocol

from holdfast.core.lease import default_heartbeat_ms, local_deadline_ms
from holdfast.core.model import Held, TypeSetting
from holdfast.storage.database import Link
from holdfast.storage.records import NewProgress, WorkerSign
from holdfast.worker.attempt import AbortReason, Attempt
from holdfast.worker.standing import lost_because
from holdfast.worker.workplace import Workplace

PURPOSE = "heartbeat"
RETRY_SHARE = 5


class Told(Protocol):
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
        self, place: Workplace, link: Link, told: Told, sign: Callable[[], WorkerSign]
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
