"""`app.jobs` and `app.dead_letters`: read jobs by id or as lists; cancel, trigger, redrive or drop them."""

from __future__ import annotations

import builtins
from functools import partial

from holdfast.client.adapters.base import AnyTx, AsyncTx, SyncTx, in_transaction
from holdfast.client.client import Resource
from holdfast.client.pagination import PAGE_LENGTH, read_page
from holdfast.client.start_options import Id, id_text, id_texts
from holdfast.client.views import (
    AttemptInfo,
    BlockerInfo,
    JobInfo,
    Page,
    RecordedStep,
    job_of,
    view_of,
)
from holdfast.commands.chains import drop_jobs
from holdfast.commands.change import count_answer
from holdfast.commands.jobs import cancel_jobs, run_jobs_now, spacing_us
from holdfast.commands.redrives import redrive_dead_letters
from holdfast.core.errors import JobNotFound
from holdfast.storage.operation import Op


class JobCommands(Resource):
    """What can be done to jobs in the caller's transaction; with an async one, await the answer."""

    @in_transaction
    def cancel(self, tx: AnyTx, *ids: Id, reason: str = "") -> int:
        """Cancel the jobs that have not ended, running ones through their abort signal; return how many.

        Raises: JobNotFound, WrongState when all have ended; InvalidId.
        """
        wanted = id_texts(ids)
        return self._client.write(
            tx, lambda store, _: count_answer(cancel_jobs(store, wanted, reason))
        )

    @in_transaction
    def trigger(self, tx: AnyTx, *ids: Id) -> int:
        """Make the pending ones among the jobs due now; return how many.

        Raises: JobNotFound, WrongState when none is; InvalidId.
        """
        wanted = id_texts(ids)
        return self._client.write(tx, lambda store, _: count_answer(run_jobs_now(store, wanted)))

    def _get(self, id: Id) -> Op[JobInfo]:
        wanted = id_text(id)
        records = yield from self._client.store.jobs.get([wanted])
        if not records:
            raise JobNotFound(f"there is no job {wanted}")
        return job_of(records[0], self._client.sealer)

    def _list(self, filter: str, limit: int, after: str | None) -> Op[Page[JobInfo]]:
        show = partial(job_of, sealer=self._client.sealer)
        return read_page("jobs", filter, limit, after, self._client.store.jobs.walk, show)

    def _attempts(self, id: Id) -> Op[builtins.list[AttemptInfo]]:
        wanted = id_text(id)
        records = yield from self._client.store.attempts.of(wanted)
        if not records:
            yield from self._get(wanted)
        return [view_of(AttemptInfo, each) for each in records]

    def _blockers(self, id: Id) -> Op[builtins.list[BlockerInfo]]:
        wanted = id_text(id)
        records = yield from self._client.store.blockers.of_jobs([wanted])
        if not records:
            yield from self._get(wanted)
        return [view_of(BlockerInfo, each, _sealer=self._client.sealer) for each in records]

    def _steps(self, id: Id) -> Op[builtins.list[RecordedStep]]:
        job = yield from self._get(id)
        records = yield from self._client.store.steps.of_jobs([str(job.id)])
        given = {"_chain_id": str(job.chain_id), "_sealer": self._client.sealer}
        return [view_of(RecordedStep, each, **given) for each in records]


class Jobs(JobCommands):
    """Reads jobs, on a connection of ours or, with `tx`, inside the caller's transaction; writes take it first."""

    def get(self, id: Id, *, tx: SyncTx | None = None) -> JobInfo:
        """Read a job. Raises: JobNotFound, InvalidId."""
        return self._client.read(self._get(id), tx)

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
        return self._client.read(self._list(filter, limit, after), tx)

    def attempts(self, id: Id, *, tx: SyncTx | None = None) -> builtins.list[AttemptInfo]:
        """Read the attempts that did not complete a job, oldest first. Raises: JobNotFound, InvalidId."""
        return self._client.read(self._attempts(id), tx)

    def blockers(self, id: Id, *, tx: SyncTx | None = None) -> builtins.list[BlockerInfo]:
        """Read the chains a job waits or waited for, in declared order. Raises: JobNotFound, InvalidId."""
        return self._client.read(self._blockers(id), tx)

    def steps(self, id: Id, *, tx: SyncTx | None = None) -> builtins.list[RecordedStep]:
        """Read what the durable calls of a job left behind, in their order. Raises: JobNotFound, InvalidId."""
        return self._client.read(self._steps(id), tx)


class AsyncJobs(JobCommands):
    """Async version of `Jobs`."""

    async def get(self, id: Id, *, tx: AsyncTx | None = None) -> JobInfo:
        """See `Jobs.get`."""
        return await self._client.read_async(self._get(id), tx)

    async def list(
        self,
        filter: str = "",
        *,
        limit: int = PAGE_LENGTH,
        after: str | None = None,
        tx: AsyncTx | None = None,
    ) -> Page[JobInfo]:
        """See `Jobs.list`."""
        return await self._client.read_async(self._list(filter, limit, after), tx)

    async def attempts(self, id: Id, *, tx: AsyncTx | None = None) -> builtins.list[AttemptInfo]:
        """See `Jobs.attempts`."""
        return await self._client.read_async(self._attempts(id), tx)

    async def blockers(self, id: Id, *, tx: AsyncTx | None = None) -> builtins.list[BlockerInfo]:
        """See `Jobs.blockers`."""
        return await self._client.read_async(self._blockers(id), tx)

    async def steps(self, id: Id, *, tx: AsyncTx | None = None) -> builtins.list[RecordedStep]:
        """See `Jobs.steps`."""
        return await self._client.read_async(self._steps(id), tx)


class DeadLetterCommands(Resource):
    """What can be done to dead letters in the caller's transaction; with an async one, await the answer."""

    @in_transaction
    def redrive(self, tx: AnyTx, *ids: Id, rate: float | None = None) -> int:
        """Re-queue the failed ones among the jobs; return how many.

        Attempts start over; the history of earlier ones is kept. With a rate they stay dead letters until running
        workers re-queue them, at most so many per second.
        Raises: JobNotFound, WrongState when none has failed; InvalidOption, InvalidId.
        """
        spacing_us(rate)
        wanted = id_texts(ids)
        return self._client.write(
            tx, lambda store, _: count_answer(redrive_dead_letters(store, wanted, rate))
        )

    @in_transaction
    def drop(self, tx: AnyTx, *ids: Id) -> int:
        """Delete the failed ones among the jobs, with their chains; return how many.

        Those that other jobs wait for are left alone.
        Raises: JobNotFound, WrongState, StillReferenced when none could be dropped; InvalidId.
        """
        wanted = id_texts(ids)
        return self._client.write(tx, lambda store, _: count_answer(drop_jobs(store, wanted)))

    def _page(self, filter: str, limit: int, after: str | None) -> Op[Page[JobInfo]]:
        show = partial(job_of, sealer=self._client.sealer)
        walk = self._client.store.jobs.walk
        return read_page("jobs", f"state:failed {filter}".strip(), limit, after, walk, show)


class DeadLetters(DeadLetterCommands):
    """Lists dead letters on a connection of ours; writes take the transaction first."""

    def list(
        self, filter: str = "", *, limit: int = PAGE_LENGTH, after: str | None = None
    ) -> Page[JobInfo]:
        """Read a page of dead letters, newest first. Raises: FilterError, InvalidOption, InvalidCursor."""
        return self._client.read(self._page(filter, limit, after))


class AsyncDeadLetters(DeadLetterCommands):
    """Async version of `DeadLetters`."""

    async def list(
        self, filter: str = "", *, limit: int = PAGE_LENGTH, after: str | None = None
    ) -> Page[JobInfo]:
        """See `DeadLetters.list`."""
        return await self._client.read_async(self._page(filter, limit, after))
