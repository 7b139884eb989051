"""The noun `dead_letters`: failed jobs, kept until they are redriven or dropped."""

from __future__ import annotations

import builtins
from collections.abc import Coroutine
from typing import Any, overload

from holdfast.client import news
from holdfast.client.client import Client, Conditions, Write
from holdfast.client.hints import of_moved
from holdfast.client.kinds import AsyncTx, SyncTx
from holdfast.client.listing import PAGE_LENGTH, read_page
from holdfast.client.options import Id, id_texts
from holdfast.client.views import JobInfo, Page, job_of
from holdfast.client.witnesses import gone_among, redriven_among
from holdfast.commands.dead_letters import drop_dead
from holdfast.commands.requeue import redrive_jobs, spacing_us
from holdfast.core.records import JobRef
from holdfast.notify.base import Hint
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class DeadLetterWrites:
    """What can be done to dead letters; on an async transaction the answer is awaited."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @overload
    def redrive(self, tx: SyncTx, *ids: Id, rate: float | None = None) -> int: ...
    @overload
    def redrive(
        self, tx: AsyncTx, *ids: Id, rate: float | None = None
    ) -> Coroutine[Any, Any, int]: ...
    def redrive(self, tx: Any, *ids: Id, rate: float | None = None) -> Any:
        """Take those of the jobs that failed back into the queue, at most `rate` a second; return how many.

        Attempts begin anew, the history of earlier ones stays.
        Raises: JobNotFound, WrongState when none has failed; InvalidOption, InvalidId.
        """
        spacing = spacing_us(rate)
        wanted, moved = id_texts(ids), builtins.list[JobRef]()

        def op(store: Store, _: Conditions) -> Op[int]:
            moved[:] = yield from redrive_jobs(store, wanted, spacing)
            return len(moved)

        return self._client.write(
            tx,
            Write(
                op,
                lambda _: of_moved(moved),
                lambda _: news.of_redriven(moved),
                lambda _: redriven_among(moved),
            ),
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
        wanted, gone = id_texts(ids), set[str]()

        def op(store: Store, _: Conditions) -> Op[int]:
            dropped = yield from drop_dead(store, wanted)
            gone.update(each.chain_id for each in dropped)
            return len(dropped)

        return self._client.write(
            tx,
            Write(
                op,
                lambda _: [Hint("ended", ids=tuple(sorted(gone)))] if gone else [],
                witness=lambda _: gone_among(sorted(gone)),
            ),
        )

    def _page(self, filter: str, limit: int, after: str | None) -> Op[Page[JobInfo]]:
        return read_page(
            "jobs",
            f"state:failed {filter}".strip(),
            limit,
            after,
            self._client.store.jobs.walk,
            job_of,
        )


class DeadLetters(DeadLetterWrites):
    """Lists dead letters on a connection of ours; writes take the transaction first."""

    def list(
        self, filter: str = "", *, limit: int = PAGE_LENGTH, after: str | None = None
    ) -> Page[JobInfo]:
        """Read a page of dead letters, newest first. Raises: FilterError, InvalidCursor."""
        return self._client.read(self._page(filter, limit, after))


class AsyncDeadLetters(DeadLetterWrites):
    """See `DeadLetters`; the same operations in the other colour."""

    async def list(
        self, filter: str = "", *, limit: int = PAGE_LENGTH, after: str | None = None
    ) -> Page[JobInfo]:
        """See `DeadLetters.list`."""
        return await self._client.read_async(self._page(filter, limit, after))
