"""A store under test, sync or async over any `storage.database.Database`, and the steps that most tests take on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import pytest

from holdfast.core.ids import IdMaker
from holdfast.core.instants import Instant
from holdfast.core.records import (
    DEFAULT_PRIORITY,
    AttemptRecord,
    Claim,
    ClaimedJob,
    Finish,
    Finished,
    FinishKind,
    Held,
    JobRecord,
    LeaseClass,
    LeaseStatus,
    NewBlocker,
    NewJob,
    OnBlockerFailure,
    Probe,
    ReapPage,
)
from holdfast.storage.database import Database, Raised
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.store import Store
from holdfast.storage.store.pagination import JobQuery

T = TypeVar("T")

# More than the most crowded test starts at once, so that its operations really run beside one another.
THREADS = 80

Contents = Mapping[str, Sequence[str]]
"""Every row of every table as text, in a stable order."""


class OpenTransaction(Protocol):
    """A transaction that stays open until a test ends it."""

    async def run(self, op: Op[T]) -> T:
        """Run an operation inside the transaction."""

    async def commit(self) -> None:
        """End it and keep what it did."""

    async def rollback(self) -> None:
        """End it and keep nothing."""


class Harness(Protocol):
    """A store with an empty database under it, sync or async."""

    @property
    def store(self) -> Store: ...

    async def run(self, op: Op[T]) -> T:
        """Run an operation in a transaction of its own."""

    async def begin(self) -> OpenTransaction:
        """Open a transaction, beside any that are open."""

    async def contents(self) -> Contents:
        """Read everything that is committed."""

    async def close(self) -> None:
        """Roll back what is still open; the database itself is closed by its maker."""


class _RolledBack(Exception):
    """Leaves a transaction's block so that nothing of it stays."""


class _TaskTransaction:
    """An async transaction on the running loop."""

    is_open = False

    def __init__(self, database: Database) -> None:
        self._block: Any = database.transaction_async()
        self._transaction: Any = None

    async def begin(self) -> None:
        self._transaction = await self._block.__aenter__()
        self.is_open = True

    async def run(self, op: Op[T]) -> T:
        assert self.is_open, "the transaction has ended"
        return await run_async(op, self._transaction)

    async def commit(self) -> None:
        await self._leave(None, None, None)

    async def rollback(self) -> None:
        await self._leave(_RolledBack, _RolledBack(), None)

    async def _leave(self, *raised: *Raised) -> None:
        self.is_open = False
        await self._block.__aexit__(*raised)


class _ThreadTransaction(_TaskTransaction):
    """A sync transaction in a thread of its own, because some drivers bind a connection to one."""

    def __init__(self, database: Database) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._block = database.transaction()

    async def begin(self) -> None:
        self._transaction = await _call(self._thread, self._block.__enter__)
        self.is_open = True

    async def run(self, op: Op[T]) -> T:
        assert self.is_open, "the transaction has ended"
        return await _call(self._thread, run, op, self._transaction)

    async def _leave(self, *raised: *Raised) -> None:
        self.is_open = False
        try:
            await _call(self._thread, self._block.__exit__, *raised)
        finally:
            self._thread.shutdown()


async def _call(thread: ThreadPoolExecutor, function: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, function, *args)


class AsyncHarness:
    """Async, on the running loop."""

    _new_transaction: type[_TaskTransaction] = _TaskTransaction

    def __init__(self, database: Database, read_contents: Callable[[], Contents]) -> None:
        self.store = database.store
        self._database = database
        self._read_contents = read_contents
        self._begun: list[_TaskTransaction] = []

    async def run(self, op: Op[T]) -> T:
        return await self._database.run_async(op)

    async def begin(self) -> OpenTransaction:
        transaction = self._new_transaction(self._database)
        await transaction.begin()
        self._begun.append(transaction)
        return transaction

    async def contents(self) -> Contents:
        return await asyncio.to_thread(self._read_contents)

    async def close(self) -> None:
        for transaction in self._begun:
            if transaction.is_open:
                await transaction.rollback()


class SyncHarness(AsyncHarness):
    """Sync; every operation runs in a thread, so that several run at once."""

    _new_transaction = _ThreadTransaction

    def __init__(self, database: Database, read_contents: Callable[[], Contents]) -> None:
        super().__init__(database, read_contents)
        self._threads = ThreadPoolExecutor(max_workers=THREADS)

    async def run(self, op: Op[T]) -> T:
        return await _call(self._threads, self._database.run, op)

    async def close(self) -> None:
        await super().close()
        self._threads.shutdown()


MILLISECOND = 1_000
SECOND = 1_000_000
# 2025-10-09T08:53:20Z, with microseconds that a store must not lose.
START = 1_760_000_000_123_456

FROM_THE_START = (0, "00000000-0000-0000-0000-000000000000")
LEASE_MS = 60_000
BACKOFF_MS = 1_000
BACKOFF_CAP_MS = 5_000
POISON = 3
MAIL = "mail"
WORKER = "worker-1"


class StoreFixture:
    """A store under test; every operation that it builds is given its `now`."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.store = harness.store
        self.now: Instant = START
        self._ids = IdMaker(lambda: self.now // MILLISECOND, os.urandom)

    def new_id(self) -> str:
        """Return an id for a job or a token, greater than all before it."""
        return self._ids.next()

    def pass_time(self, *, ms: int = 0, seconds: int = 0) -> Instant:
        """Move the clock on and return the new time."""
        self.now += ms * MILLISECOND + seconds * SECOND
        return self.now

    async def run(self, op: Op[T]) -> T:
        """Run an operation in a transaction of its own."""
        return await self.harness.run(op)

    def job(self, type: str = MAIL, **fields: Any) -> NewJob:
        """Return the first job of a new chain."""
        job_id = self.new_id()
        return NewJob(**{"id": job_id, "chain_id": job_id, "type": type, "input": "{}"} | fields)

    def next_job(self, job: NewJob | ClaimedJob, type: str = "next", **fields: Any) -> NewJob:
        """Return a job that follows another one in its chain."""
        index = job.chain_index + 1
        return self.job(type, chain_id=job.chain_id, chain_index=index, **fields)

    async def start(self, type: str = MAIL, **fields: Any) -> NewJob:
        """Write one job."""
        job = self.job(type, **fields)
        await self.start_all([job])
        return job

    async def start_all(self, jobs: Sequence[NewJob]) -> None:
        """Write jobs, all of them new."""
        written = await self.run(self.store.jobs.insert(jobs, now=self.now))
        assert written == {job.id for job in jobs}

    async def start_blocked(
        self, *chain_ids: str, policy: OnBlockerFailure = "fail", **fields: Any
    ) -> NewJob:
        """Write a job that waits for chains."""
        job = await self.start(blockers=len(chain_ids), **fields)
        edges = [NewBlocker(job.id, place, each, policy) for place, each in enumerate(chain_ids)]
        await self.run(self.store.blockers.insert(edges))
        return job

    def claim_op(
        self,
        *types: str,
        limit: int = 100,
        room: int = 100,
        share: int | None = None,
        priorities: Sequence[int | None] = (DEFAULT_PRIORITY,),
        after: tuple[Instant, str] = FROM_THE_START,
        worker: str = WORKER,
        token: str | None = None,
        allow_crashed: bool = True,
        lease_ms: int = LEASE_MS,
        max_attempts: int = 25,
        reads: int | None = None,
    ) -> Op[list[ClaimedJob]]:
        """Return the claim of one worker under one new lease."""
        token = token or self.new_id()
        probes = tuple(
            Probe(type, priority, token, room, *after, share=share, reads=reads)
            for type in types or (MAIL,)
            for priority in priorities
        )
        lease = LeaseClass(token, lease_ms, max_attempts, BACKOFF_MS, BACKOFF_CAP_MS)
        claim = Claim(worker, limit, probes, (lease,), allow_crashed)
        return self.store.jobs.claim(claim, self.now)

    async def claim(self, *types: str, **options: Any) -> list[ClaimedJob]:
        """Claim what is due of these types; see `claim_op` for the options."""
        return await self.run(self.claim_op(*types, **options))

    async def start_running(self, type: str = MAIL, **options: Any) -> ClaimedJob:
        """Write one job and claim it; see `claim_op` for the options."""
        await self.start(type)
        claimed = await self.claim(type, **options)
        assert len(claimed) == 1, "something else of this type was due"
        return claimed[0]

    def finish_of(self, job: ClaimedJob, kind: FinishKind, **fields: Any) -> Finish:
        """Return the end of a claimed job's attempt."""
        proof = {"id": job.id, "token": job.token, "chain_id": job.chain_id, "worker": WORKER}
        return Finish(**proof | {"kind": kind, "gate": job.gate} | fields)

    async def finish(self, *finishes: Finish, awaited: bool = False) -> list[Finished]:
        """Write ends of attempts in one flush."""
        return await self.run(self.store.jobs.finish(finishes, awaited=awaited, now=self.now))

    async def finish_as(self, job: ClaimedJob, kind: FinishKind, **fields: Any) -> bool:
        """End one attempt; say whether the store accepted it."""
        return bool(await self.finish(self.finish_of(job, kind, **fields)))

    async def finish_next(self, kind: FinishKind, type: str = MAIL, **fields: Any) -> ClaimedJob:
        """Claim the one job of a type that is due and end its attempt; a job that continues gets a successor."""
        (job,) = await self.claim(type)
        if kind == "continue":
            fields.setdefault("next", self.next_job(job))
        assert await self.finish_as(job, kind, **fields)
        return job

    async def finish_new(self, kind: FinishKind, type: str = MAIL, **fields: Any) -> ClaimedJob:
        """Write one job, claim it and end its attempt."""
        await self.start(type)
        return await self.finish_next(kind, type, **fields)

    async def reap(self, limit: int = 100, poison: int = POISON, **options: Any) -> ReapPage:
        """Take back one page of expired leases."""
        return await self.run(self.store.leases.reap(limit, poison, now=self.now, **options))

    async def lose_all(self) -> None:
        """Let every lease run out, take the jobs back and wait for their backoff."""
        self.pass_time(ms=LEASE_MS)
        await self.reap(poison=100)
        self.pass_time(seconds=60)

    async def lease_status(self, job: ClaimedJob) -> LeaseStatus:
        """Ask what became of a claimed job."""
        (status,) = await self.run(self.store.jobs.lease_status([Held(job.id, job.token)]))
        return status

    async def read(self, job_id: str) -> JobRecord:
        """Read one job that must exist."""
        (record,) = await self.run(self.store.jobs.get([job_id]))
        return record

    async def read_all(self, **conditions: Any) -> list[JobRecord]:
        """Read every job, newest first."""
        query = JobQuery(**{"limit": 10_000} | conditions)
        return await self.run(self.store.jobs.page(query, self.now))

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        """Read a job's history."""
        return await self.run(self.store.attempts.of(job_id))

    async def rows(self, table: str) -> list[str]:
        """Read every row of a table, whatever prefix its name has."""
        contents = await self.harness.contents()
        (rows,) = (rows for name, rows in contents.items() if name.endswith(table))
        return list(rows)


class Conformance:
    """The base of every class: tests ask for `fixture`, and `fixture` asks for the user's `harness`."""

    @pytest.fixture
    def fixture(self, harness: Harness) -> StoreFixture:
        """A store with nothing in it, at the start of time."""
        return StoreFixture(harness)
