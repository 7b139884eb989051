"""`app.dead_letters`: failed jobs, kept until they are redriven or dropped."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

from holdfast.client.adapters.base import AsyncTx, SyncTx
from holdfast.client.client import Client
from holdfast.client.pagination import PAGE_LENGTH, read_page
from holdfast.client.start_options import Id, id_texts
from holdfast.client.views import JobInfo, Page, job_of
from holdfast.commands.chains import drop_jobs
from holdfast.commands.change import counted
from holdfast.commands.jobs import redrive_jobs, spacing_us
from holdfast.storage.operation import Op


class DeadLetterCommands:
    """What can be done to dead letters in the caller's transaction; with an async one, await the answer."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @overload
    def redrive(self, tx: SyncTx, *ids: Id, rate: float | None = None) -> int: ...
    @overload
    def redrive(
        self, tx: AsyncTx, *ids: Id, rate: float | None = None
    ) -> Coroutine[Any, Any, int]: ...
    def redrive(self, tx: Any, *ids: Id, rate: float | None = None) -> Any:
        """Put those of the jobs that failed back into the queue, at most `rate` a second; return how many.

        Attempts begin anew, the history of earlier ones stays.
        Raises: JobNotFound, WrongState when none has failed; InvalidOption, InvalidId.
        """
        spacing, wanted = spacing_us(rate), id_texts(ids)
        return self._client.write(
            tx, lambda store, _: counted(redrive_jobs(store, wanted, spacing))
        )

    @overload
    def drop(self, tx: SyncTx, *ids: Id) -> int: ...
    @overload
    def drop(self, tx: AsyncTx, *ids: Id) -> Coroutine[Any, Any, int]: ...
    def drop(self, tx: Any, *ids: Id) -> Any:
        """Delete those of the jobs that failed, with their chains; return how many.

        Those that other jobs wait for are left alone.
        Raises: JobNotFound, WrongState, StillReferenced when none could be dropped; InvalidId.
        """
        wanted = id_texts(ids)
        return self._client.write(tx, lambda store, _: counted(drop_jobs(store, wanted)))

    def _page(self, filter: str, limit: int, after: str | None) -> Op[Page[JobInfo]]:
        return read_page(
            "jobs",
            f"state:failed {filter}".strip(),
            limit,
            after,
            self._client.store.jobs.walk,
            job_of,
        )


class DeadLetters(DeadLetterCommands):
    """Lists dead letters on a connection of ours; writes take the transaction first."""

    def list(
        self, filter: str = "", *, limit: int = PAGE_LENGTH, after: str | None = None
    ) -> Page[JobInfo]:
        """Read a page of dead letters, newest first. Raises: FilterError, InvalidCursor."""
        return self._client.read(self._page(filter, limit, after))


class AsyncDeadLetters(DeadLetterCommands):
    """Async version of `DeadLetters`."""

    async def list(
        self, filter: str = "", *, limit: int = PAGE_LENGTH, after: str | None = None
    ) -> Page[JobInfo]:
        """See `DeadLetters.list`."""
        return await self._client.read_async(self._page(filter, limit, after))
