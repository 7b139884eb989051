"""`app.workers`: list workers; drain one."""

from __future__ import annotations

import builtins
from datetime import datetime

import msgspec

from holdfast.client.adapters.base import AnyTx, in_transaction
from holdfast.client.client import Resource
from holdfast.client.pagination import PAGE_LENGTH, check_length
from holdfast.client.views import view_of
from holdfast.commands.workers import drain_worker
from holdfast.storage.operation import Op


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as of its last heartbeat; `stopped_at` is None until it has shut down."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    slots: int
    types: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None
    draining: bool
    counters: dict[str, int]
    last_error: str | None


class WorkerCommands(Resource):
    """What can be done to workers in the caller's transaction; with an async one, await the answer."""

    @in_transaction
    def drain(self, tx: AnyTx, id: str) -> None:
        """Ask a worker to take nothing new, finish what it runs, and exit. Raises: WorkerNotFound."""
        return self._client.write(tx, lambda store, _: drain_worker(store, id))

    def _list(self, everyone: bool, limit: int) -> Op[builtins.list[WorkerInfo]]:
        page = self._client.store.workers.page
        records = yield from page(check_length(limit), live=not everyone)
        return [view_of(WorkerInfo, each) for each in records]


class Workers(WorkerCommands):
    """Reads workers on a connection of ours; writes take the transaction first."""

    def list(
        self, *, everyone: bool = False, limit: int = PAGE_LENGTH
    ) -> builtins.list[WorkerInfo]:
        """Read the workers that live, newest first, or all that are known. Raises: InvalidOption."""
        return self._client.read(self._list(everyone, limit))


class AsyncWorkers(WorkerCommands):
    """Async version of `Workers`."""

    async def list(
        self, *, everyone: bool = False, limit: int = PAGE_LENGTH
    ) -> builtins.list[WorkerInfo]:
        """See `Workers.list`."""
        return await self._client.read_async(self._list(everyone, limit))
