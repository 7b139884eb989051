"""`app.jobs`: read jobs by id or as lists; cancel them or make them due now."""

from __future__ import annotations

import builtins
from collections.abc import Coroutine
from typing import Any, overload

from holdfast.client.adapters.base import AsyncTx, SyncTx
from holdfast.client.client import Client
from holdfast.client.pagination import PAGE_LENGTH, read_page
from holdfast.client.start_options import Id, id_text, id_texts
from holdfast.client.views import (
    AttemptInfo,
    BlockerInfo,
    JobInfo,
    Page,
    job_of,
    view_of,
)
from holdfast.commands.change import counted
from holdfast.commands.jobs import cancel_jobs, run_jobs_now
from holdfast.core.errors import JobNotFound
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class JobCommands:
    """What can be done to jobs in the caller's transaction; with an async one, await the answer."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @overload
    def cancel(self, tx: SyncTx, *ids: Id, reason: str = "") -> int: ...
    @overload
    def cancel(self, tx: AsyncTx, *ids: Id, reason: str = "") -> Coroutine[Any, Any, int]: ...
    def cancel(self, tx: Any, *ids: Id, reason: str = "") -> Any:
        """Cancel those of the jobs that have not ended, running ones through their abort signal; return how many.

        Raises: JobNotFound, WrongState when all have ended; InvalidId.
        """
        wanted = id_texts(ids)
        return self._client.write(tx, lambda store, _: counted(cancel_jobs(store, wanted, reason)))

    @overload
    def trigger(self, tx: SyncTx, *ids: Id) -> int: ...
    @overload
    def trigger(self, tx: AsyncTx, *ids: Id) -> Coroutine[Any, Any, int]: ...
    def trigger(self, tx: Any, *ids: Id) -> Any:
        """Make those of the jobs due now that are pending; return how many.

        Raises: JobNotFound, WrongState when none is; InvalidId.
        """
        wanted = id_texts(ids)
        return self._client.write(tx, lambda store, _: counted(run_jobs_now(store, wanted)))


class JobReads:
    """Reads of jobs, sync or async."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, id: Id) -> Op[JobInfo]:
        wanted = id_text(id)
        records = yield from self._store.jobs.get([wanted])
        if not records:
            raise JobNotFound(f"there is no job {wanted}")
        return job_of(records[0])

    def list(self, filter: str, limit: int, after: str | None) -> Op[Page[JobInfo]]:
        return read_page("jobs", filter, limit, after, self._store.jobs.walk, job_of)

    def attempts(self, id: Id) -> Op[builtins.list[AttemptInfo]]:
        wanted = id_text(id)
        records = yield from self._store.jobs.attempts(wanted)
        if not records:
            yield from self.get(wanted)
        return [view_of(AttemptInfo, each) for each in records]

    def blockers(self, id: Id) -> Op[builtins.list[BlockerInfo]]:
        wanted = id_text(id)
        records = yield from self._store.blockers.of_jobs([wanted])
        if not records:
            yield from self.get(wanted)
        return [view_of(BlockerInfo, each) for each in records]


class Jobs(JobCommands):
    """Reads jobs, on a connection of ours or, with `tx`, inside the caller's transaction; writes take it first."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._reads = JobReads(client.store)

    def get(self, id: Id, *, tx: SyncTx | None = None) -> JobInfo:
        """Read a job. Raises: JobNotFound, InvalidId."""
        return self._client.read(self._reads.get(id), tx)

    def list(
        self,
        filter: str = "",
        *,
        limit: int = PAGE_LENGTH,
        after: str | None = None,
        tx: SyncTx | None = None,
    ) -> Page[JobInfo]:
        """Read a page of jobs, newest first; `after` is the previous page's `next`.

        Raises: FilterError, InvalidOption, InvalidCursor.
        """
        return self._client.read(self._reads.list(filter, limit, after), tx)

    def attempts(self, id: Id, *, tx: SyncTx | None = None) -> builtins.list[AttemptInfo]:
        """Read the attempts that did not complete a job, oldest first. Raises: JobNotFound, InvalidId."""
        return self._client.read(self._reads.attempts(id), tx)

    def blockers(self, id: Id, *, tx: SyncTx | None = None) -> builtins.list[BlockerInfo]:
        """Read the chains a job waits or waited for, in declared order. Raises: JobNotFound, InvalidId."""
        return self._client.read(self._reads.blockers(id), tx)


class AsyncJobs(JobCommands):
    """Async version of `Jobs`."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._reads = JobReads(client.store)

    async def get(self, id: Id, *, tx: AsyncTx | None = None) -> JobInfo:
        """See `Jobs.get`."""
        return await self._client.read_async(self._reads.get(id), tx)

    async def list(
        self,
        filter: str = "",
        *,
        limit: int = PAGE_LENGTH,
        after: str | None = None,
        tx: AsyncTx | None = None,
    ) -> Page[JobInfo]:
        """See `Jobs.list`."""
        return await self._client.read_async(self._reads.list(filter, limit, after), tx)

    async def attempts(self, id: Id, *, tx: AsyncTx | None = None) -> builtins.list[AttemptInfo]:
        """See `Jobs.attempts`."""
        return await self._client.read_async(self._reads.attempts(id), tx)

    async def blockers(self, id: Id, *, tx: AsyncTx | None = None) -> builtins.list[BlockerInfo]:
        """See `Jobs.blockers`."""
        return await self._client.read_async(self._reads.blockers(id), tx)
