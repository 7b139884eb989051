"""A completion in a transaction that the handler holds itself: written there, believed when that has committed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.client.providers import provider_of
from holdfast.client.providers.port import AsyncProvider, Need
from holdfast.core.errors import TransactionAborted
from holdfast.core.model import Finish, Held
from holdfast.ops.finish import FinishReport
from holdfast.storage.database import Database
from holdfast.storage.statement import Op, run, run_async
from holdfast.worker.attempt import Attempt
from holdfast.worker.stages import finish_fenced

Judge = Callable[[Attempt, Any], Op[Finish]]
"""Turns a handler's answer into the write that records it, once what it needs was looked up."""


class Handover:
    """One attempt's end, given to a transaction of the handler's own."""

    def __init__(self, database: Database, judge: Judge, attempt: Attempt) -> None:
        self._database = database
        self._judge = judge
        self._attempt = attempt
        self._made: tuple[Finish, FinishReport] | None = None

    def write(self, tx: Any, output: Any) -> Coroutine[Any, Any, None] | None:
        """Make the fenced write on the caller's transaction; awaited where that is async.

        Raises: LeaseLost, OutputInvalid, UnknownJobType, and the errors of connections.
        """
        op = self._finished(output)
        provider = provider_of(tx)
        need = Need(self._database.store, self._database.schema, True)
        if isinstance(provider, AsyncProvider):

            async def write() -> None:
                access = await provider.open(need)
                self._made = await run_async(op, access.executor)

            return write()
        self._made = run(op, provider.open(need).executor)
        return None

    def _finished(self, output: Any) -> Op[tuple[Finish, FinishReport]]:
        attempt = self._attempt
        finish = yield from self._judge(attempt, output)
        store, idle_ms = self._database.store, attempt.terms.lease_ms // 2
        return finish, (yield from finish_fenced(store, finish, idle_ms))

    async def outcome(self) -> tuple[Finish, FinishReport] | None:
        """What was written, if its transaction has committed; None when nothing was written or it was undone."""
        if self._made is None:
            return None
        finish, report = self._made
        pair = Held(finish.id, finish.token)
        (stand,) = await self._database.read_async(self._database.store.jobs.stand([pair]))
        return (finish, report) if stand.standing == "done" else None


def undone() -> TransactionAborted:
    """The error of a handler that returned although its completing transaction was rolled back."""
    return TransactionAborted(
        "the transaction in which the job was completed did not commit",
        help="let an exception leave the handler when the transaction is rolled back",
    )
