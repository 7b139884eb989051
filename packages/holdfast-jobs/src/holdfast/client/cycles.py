"""`app.cycles`: read schedules and runs; pause, resume or run a cycle now."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.client.adapters.base import AnyTx, in_transaction
from holdfast.client.client import Client, Resource
from holdfast.client.pagination import PAGE_LENGTH, check_length
from holdfast.client.views import view_of
from holdfast.commands.change import drop_answer
from holdfast.commands.cycles import pause_cycle, request_cycle
from holdfast.commands.explain import RUN_COUNTS_MS
from holdfast.core.cycle import CycleSpec, RunOutcome
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op


class CycleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle as a read found it; `last_slot` is the newest slot that was decided."""

    name: str
    schedule: str
    zone: str
    singleton: bool
    missed: str
    paused: bool
    paused_by: str | None
    last_slot: datetime
    running_slot: str | None
    held_by: str | None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a cycle; one whose process died is `crashed`."""

    id: UUID
    name: str
    slot: str | None
    worker: str | None
    started_at: datetime
    finished_at: datetime | None
    outcome: RunOutcome
    counters: dict[str, Any]
    error: str | None


class CycleCommands(Resource):
    """What can be done to cycles in the caller's transaction; with an async one, await the answer."""

    def __init__(self, client: Client, declared: Mapping[str, CycleSpec]) -> None:
        super().__init__(client)
        self._declared = declared

    @in_transaction
    def pause(self, tx: AnyTx, name: str, by: str | None = None) -> None:
        """Pause a cycle with all its shards. Raises: CycleNotFound."""
        return self._pause(tx, name, True, by)

    @in_transaction
    def resume(self, tx: AnyTx, name: str) -> None:
        """Resume a cycle; runs missed during the pause are not caught up. Raises: CycleNotFound."""
        return self._pause(tx, name, False, None)

    @in_transaction
    def run_now(self, tx: AnyTx, name: str) -> None:
        """Have the next tick of any worker run a cycle, paused or not. Raises: CycleNotFound."""
        known = self._declared
        return self._client.write(
            tx, lambda store, _: drop_answer(request_cycle(store, name, new_id(), declared=known))
        )

    def _pause(self, tx: Any, name: str, paused: bool, by: str | None) -> None:
        return self._client.write(
            tx, lambda store, _: drop_answer(pause_cycle(store, name, paused, by))
        )

    def _list(self) -> Op[builtins.list[CycleInfo]]:
        return [view_of(CycleInfo, each) for each in (yield from self._client.store.cycles.page())]

    def _runs(self, name: str | None, limit: int) -> Op[builtins.list[RunInfo]]:
        page = self._client.store.runs.page(check_length(limit), RUN_COUNTS_MS, name)
        return [view_of(RunInfo, each) for each in (yield from page)]


class Cycles(CycleCommands):
    """Reads cycles on a connection of ours; writes take the transaction first."""

    def list(self) -> builtins.list[CycleInfo]:
        """Read every cycle that a worker has registered."""
        return self._client.read(self._list())

    def runs(self, name: str | None = None, *, limit: int = PAGE_LENGTH) -> builtins.list[RunInfo]:
        """Read the last runs of a cycle, or of all, newest first. Raises: InvalidOption."""
        return self._client.read(self._runs(name, limit))


class AsyncCycles(CycleCommands):
    """Async version of `Cycles`."""

    async def list(self) -> builtins.list[CycleInfo]:
        """See `Cycles.list`."""
        return await self._client.read_async(self._list())

    async def runs(
        self, name: str | None = None, *, limit: int = PAGE_LENGTH
    ) -> builtins.list[RunInfo]:
        """See `Cycles.runs`."""
        return await self._client.read_async(self._runs(name, limit))
