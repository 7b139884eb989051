"""Upkeep of the log: it goes on in a new part now and then, and old parts that all readers have passed are dropped.

On PostgreSQL a part is a partition: made as a table with a check, then attached, and detached concurrently before it is
dropped, so that no publisher waits for longer than a lock timeout. A role that may not do that leaves all events in the
first part, from where they are deleted in batches, as in SQLite.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from holdfast.core.instants import Instant
from holdfast.scheduler.runner import RunnerContext
from holdfast.storage.store.params import resolve_now
from holdfast_streams.events import LOG_TRIMMED
from holdfast_streams.reader_store import READERS, LogPart

if TYPE_CHECKING:
    from holdfast.app import Holdfast

log = logging.getLogger("holdfast.streams")

TRIM_BATCH = 5_000
MAX_BATCHES = 20
_HOUR_US = 3_600_000_000


class LogUpkeep:
    """Begins and removes parts of the log, one process at a time."""

    def __init__(
        self, app: Holdfast, keep_hours: int, partition_hours: int, context: RunnerContext
    ) -> None:
        self._app = app
        self._keep_us = keep_hours * _HOUR_US
        self._span_us = partition_hours * _HOUR_US
        self._context = context
        self._has_parts = app.database.store.dialect == "postgresql"

    async def run(self) -> None:
        """Do what is due; what cannot be done now is tried again the next time."""
        lock = self._app.database.singleton("streams:log")
        removed = trimmed = 0
        try:
            if not await lock.acquire():
                return
            try:
                if self._has_parts:
                    removed = await asyncio.to_thread(self._tend_parts)
                if not self._has_parts:
                    trimmed = await self._trim()
            finally:
                await lock.release()
        except Exception as error:
            # Partitions are changed on a connection of the driver's, whose errors it is, too.
            log.warning("the event log could not be tended: %s", error)
            return
        if (removed or trimmed) and self._context.observer is not None:
            self._context.observer.observe(LOG_TRIMMED(parts=removed, events=trimmed))

    async def _trim(self) -> int:
        """Delete old events where no part can be dropped."""
        removed = 0
        for _ in range(MAX_BATCHES):
            count = await self._app.database.run_async(
                READERS.trim(self._keep_us // 1000, TRIM_BATCH, self._context.now())
            )
            removed += count
            if not count:
                break
        return removed

    def _tend_parts(self) -> int:
        """Go on in a new part if the newest is long enough, and drop old ones; return how many."""
        database = self._app.database
        now = database.read(resolve_now(self._context.now()))
        parts = database.read(READERS.parts())
        newest = parts[-1] if parts else LogPart(0, 0, None, False)
        is_due = now - newest.begins_at >= self._span_us
        old = [each for each in parts if is_over(each, now - self._keep_us)]
        return self._change(newest.part + 1 if is_due else None, old) if is_due or old else 0

    def _change(self, new: int | None, old: list[LogPart]) -> int:
        from holdfast_streams.log_partitions import PartitionDdl

        database, removed = self._app.database, 0
        with PartitionDdl(self._app.url, self._app.schema) as ddl:
            if new is not None and ddl.create(new):
                database.run(READERS.begin_part(new, self._context.now()))
            self._has_parts = not ddl.is_refused
            for each in old:
                if ddl.remove(each.part):
                    database.run(READERS.end_part(each.part))
                    removed += 1
        return removed


def is_over(part: LogPart, kept_from: Instant) -> bool:
    """Whether a part is needed by nobody: it ended before what is kept, and every reader has passed it."""
    return part.is_passed and part.ends_at is not None and part.ends_at < kept_from
