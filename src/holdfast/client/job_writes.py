"""Writes to single jobs from outside a worker, in the caller's transaction: cancel them, make them due now."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

from holdfast.client import news
from holdfast.client.client import Client, Conditions, Write
from holdfast.client.hints import of_due, of_ended
from holdfast.client.kinds import AsyncTx, SyncTx
from holdfast.client.options import Id, id_texts
from holdfast.client.witnesses import ended_among
from holdfast.commands.blockers import FanIn
from holdfast.commands.cancel import EndReport, cancel_jobs
from holdfast.commands.requeue import trigger_jobs
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class JobWrites:
    """What can be done to jobs. With a sync `tx` the answer comes at once, with an async one it is awaited."""

    def __init__(self, client: Client) -> None:
        self._writes = client

    @overload
    def cancel(self, tx: SyncTx, *ids: Id, reason: str = "") -> int: ...
    @overload
    def cancel(self, tx: AsyncTx, *ids: Id, reason: str = "") -> Coroutine[Any, Any, int]: ...
    def cancel(self, tx: Any, *ids: Id, reason: str = "") -> Any:
        """Cancel those of the jobs that have not ended, running ones through their abort signal; return how many.

        Raises: JobNotFound, WrongState when all have ended; InvalidId.
        """
        wanted, report = id_texts(ids), EndReport([], FanIn([], []))

        def op(store: Store, _: Conditions) -> Op[int]:
            nonlocal report
            report = yield from cancel_jobs(store, wanted, reason)
            return len(report.ended)

        return self._writes.write(
            tx,
            Write(
                op,
                lambda _: of_ended(report),
                lambda _: news.of_ended(report, "cancelled", reason),
                lambda _: ended_among(report, "cancelled"),
            ),
        )

    @overload
    def trigger(self, tx: SyncTx, *ids: Id) -> int: ...
    @overload
    def trigger(self, tx: AsyncTx, *ids: Id) -> Coroutine[Any, Any, int]: ...
    def trigger(self, tx: Any, *ids: Id) -> Any:
        """Make those of the jobs due now that are pending; return how many.

        Raises: JobNotFound, WrongState when none is; InvalidId.
        """
        wanted = sorted(set(id_texts(ids)))
        types: list[str] = []

        def op(store: Store, _: Conditions) -> Op[int]:
            moved = yield from trigger_jobs(store, wanted)
            types[:] = [each.type for each in moved]
            return len(moved)

        return self._writes.write(tx, Write(op, lambda _: of_due(types)))
