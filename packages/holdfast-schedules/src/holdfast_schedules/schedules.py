"""`add_schedules(app)`: schedules in the caller's transaction, sync and async."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

import msgspec

from holdfast.client.adapters.base import AnyTx, AsyncTx, SyncTx, in_transaction
from holdfast.client.client import Conditions
from holdfast.client.pagination import PAGE_LENGTH, check_length
from holdfast.client.views import Chain, view_of
from holdfast.commands.change import Change
from holdfast.core.codec import decode_any
from holdfast.core.duration import Duration
from holdfast.core.instants import to_datetime
from holdfast.core.job_context import decode_context
from holdfast.core.records import ChainRecord
from holdfast.core.registry import Target
from holdfast.core.sealing import Sealer
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_schedules.commands import (
    delete_schedule,
    one_schedule,
    pause_schedule,
    run_schedule,
    schedule_history,
    set_schedule,
)
from holdfast_schedules.schedule_plan import ScheduleOptions, make_schedule, make_times, open_stored
from holdfast_schedules.schedule_store import (
    SCHEDULES,
    SchedulePage,
    ScheduleRecord,
    SlotRecord,
    SlotState,
)

if TYPE_CHECKING:
    from holdfast.app import Holdfast

_ATTACHED = "schedules"


def add_schedules(app: Holdfast) -> Schedules:
    """Give an application schedules that are set at run time; called again, return the same ones.

    Its workers start the jobs of schedules that are due.
    """
    found: Schedules | None = app.attached.get(_ATTACHED)
    if found is None:
        found = app.attached[_ATTACHED] = Schedules(app)
    return found


def declared_schedules(app: Holdfast) -> Schedules | None:
    """Return the application's schedules, if it has some."""
    found: Schedules | None = app.attached.get(_ATTACHED)
    return found


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as a read found it; `last_job` is the latest job that it started, `error` why it last started none."""

    name: str
    type: str
    schedule: str
    zone: str
    missed: str
    overlap: str
    jitter_ms: int
    priority: int
    max_attempts: int | None
    next_at: datetime
    paused: bool
    paused_by: str | None
    last_slot: datetime | None
    last_job: UUID | None
    error: str | None
    created_at: datetime
    changed_at: datetime
    context: dict[str, str]
    _input: str
    _sealer: Sealer | None

    @property
    def input(self) -> Any:
        """The input of its jobs, as plain JSON. Raises: SealError."""
        return decode_any(open_stored(self._input, self.name, self._sealer))

    def __repr__(self) -> str:
        """Show what identifies it, and no payload."""
        return f"ScheduleInfo({self.name!r}, type={self.type!r}, schedule={self.schedule!r})"


class SlotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A due time that was decided: what was started for it, and what came of that, while it is kept."""

    slot: datetime
    state: SlotState
    requested: bool
    job_id: UUID | None
    job_state: str | None
    error: str | None


class ScheduleReads:
    """What reads of schedules have in common, sync or async."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    def _info(self, record: ScheduleRecord) -> ScheduleInfo:
        return view_of(
            ScheduleInfo,
            record,
            last_job=None if record.last_job is None else UUID(record.last_job),
            context=decode_context(record.context),
            _sealer=self._app.registry.sealer,
        )

    def _get(self, name: str) -> Op[ScheduleInfo]:
        facts = yield from one_schedule(self._app.client.store, name)
        return self._info(facts.schedule)

    def _list(self, page: SchedulePage) -> Op[builtins.list[ScheduleInfo]]:
        return [self._info(each) for each in (yield from SCHEDULES.page(page))]

    def _history(self, name: str, limit: int) -> Op[builtins.list[SlotInfo]]:
        store = self._app.client.store
        found = yield from schedule_history(store, name, check_length(limit))
        return [_slot_info(*each) for each in found]


class AsyncSchedules(ScheduleReads):
    """Async version of the reads of `Schedules`."""

    async def get(self, name: str, *, tx: AsyncTx | None = None) -> ScheduleInfo:
        """See `Schedules.get`."""
        return await self._app.client.read_async(self._get(name), tx)

    async def list(
        self,
        prefix: str | None = None,
        *,
        type: str | None = None,
        paused: bool | None = None,
        limit: int = PAGE_LENGTH,
        after: str | None = None,
        tx: AsyncTx | None = None,
    ) -> list[ScheduleInfo]:
        """See `Schedules.list`."""
        page = SchedulePage(check_length(limit), after or "", prefix, type, paused)
        return await self._app.client.read_async(self._list(page), tx)

    async def history(self, name: str, *, limit: int = PAGE_LENGTH) -> builtins.list[SlotInfo]:
        """See `Schedules.history`."""
        return await self._app.client.read_async(self._history(name, limit))


class Schedules(ScheduleReads):
    """Schedules of an application. What changes one takes the caller's transaction; with an async one, await it."""

    def __init__(self, app: Holdfast) -> None:
        super().__init__(app)
        self.aio = AsyncSchedules(app)
        """The reads, for `await`."""

    @in_transaction
    def set(
        self,
        tx: AnyTx,
        name: str,
        target: Target,
        input: Any = None,
        *,
        every: Duration | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Set a schedule: start a job of a type with this input at each due time, from the next one on.

        One of this name is changed; where nothing is different, nothing is written. Its next due time moves only with
        every, cron or timezone; one that is paused stays so. Its jobs are started in the context in which it is set.

        Raises: ScheduleNameInvalid, UnknownJobType, InputInvalid, PayloadError, InvalidSchedule, InvalidOption; in that
        case nothing is written.
        """
        app = self._app
        times = make_times(every, cron, timezone)
        wanted = make_schedule(app.targets, name, target, input, times, options)

        def command(store: Store, conditions: Conditions) -> Op[Change[ScheduleInfo]]:
            nonlocal wanted
            if options.get("context") is None and conditions.capture is not None:
                wanted = msgspec.structs.replace(wanted, context=conditions.capture())
            change = yield from set_schedule(wanted, app.registry.sealer)
            return change.with_answer(self._info(change.answer))

        return app.client.write(tx, command)

    @in_transaction
    def pause(self, tx: AnyTx, name: str, by: str | None = None) -> None:
        """Start no jobs of a schedule until it is resumed. Raises: ScheduleNotFound."""
        return self._app.client.write(tx, lambda store, _: pause_schedule(name, True, by))

    @in_transaction
    def resume(self, tx: AnyTx, name: str) -> None:
        """Go on with the next due time; those of the pause are left out. Raises: ScheduleNotFound."""
        return self._app.client.write(tx, lambda store, _: pause_schedule(name, False))

    @in_transaction
    def delete(self, tx: AnyTx, name: str) -> None:
        """Remove a schedule; jobs that it started stay. Raises: ScheduleNotFound."""
        return self._app.client.write(tx, lambda store, _: delete_schedule(name))

    @in_transaction
    def run_now(self, tx: AnyTx, name: str) -> Chain:
        """Start a job of a schedule now, paused or not; its due times stay.

        Raises: ScheduleNotFound, and what `app.start` raises.
        """
        app = self._app
        return app.client.write(
            tx, lambda store, _: run_schedule(store, app.targets, app.registry.sealer, name)
        )

    def get(self, name: str, *, tx: SyncTx | None = None) -> ScheduleInfo:
        """Read a schedule. Raises: ScheduleNotFound."""
        return self._app.client.read(self._get(name), tx)

    def list(
        self,
        prefix: str | None = None,
        *,
        type: str | None = None,
        paused: bool | None = None,
        limit: int = PAGE_LENGTH,
        after: str | None = None,
        tx: SyncTx | None = None,
    ) -> list[ScheduleInfo]:
        """Read schedules by name: those whose names begin with a prefix, of a type, paused or not.

        `after` is the last name of the page before. Raises: InvalidOption.
        """
        page = SchedulePage(check_length(limit), after or "", prefix, type, paused)
        return self._app.client.read(self._list(page), tx)

    def history(self, name: str, *, limit: int = PAGE_LENGTH) -> builtins.list[SlotInfo]:
        """Read the latest due times of a schedule and what was started for them, newest first.

        Raises: ScheduleNotFound, InvalidOption.
        """
        return self._app.client.read(self._history(name, limit))


def _slot_info(slot: SlotRecord, chain: ChainRecord | None) -> SlotInfo:
    return SlotInfo(
        slot=to_datetime(slot.slot),
        state=slot.state,
        requested=slot.requested,
        job_id=None if slot.job_id is None else UUID(slot.job_id),
        job_state=None if chain is None else chain.state,
        error=slot.error,
    )
