"""Jobs for HTTP, pages and the command line: lists, one job in full, retry, cancel, run now, and following changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.admin.authorize import Caller, Gateway
from holdfast.admin.roles import check
from holdfast.admin.serializers import (
    job_version,
    payload,
    require,
    shown_attempt,
    shown_blocker,
    shown_job,
    shown_progress,
)
from holdfast.client.pagination import query_of, read_page
from holdfast.client.views import Page
from holdfast.commands.change import Change
from holdfast.commands.explain import look_around, why
from holdfast.commands.jobs import cancel_jobs, redrive_jobs, run_jobs_now
from holdfast.core.errors import InvalidOption, JobNotFound
from holdfast.core.ids import parse_id
from holdfast.core.records import ChainRecord, Instant, JobRecord
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class Watch:
    """Remembers how each job was last seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int]] = {}

    def changes(self, jobs: list[JobRecord]) -> Iterator[JobRecord]:
        """Return what is new or changed since the last look, the oldest first."""
        before, self._seen = self._seen, {each.id: (each.state, each.attempt) for each in jobs}
        for job in reversed(jobs):
            if before.get(job.id) != self._seen[job.id]:
                yield job


MOST_AT_ONCE = 1_000
"""Jobs that one command may name."""

TAILED = 500
TAIL_LOOK = 2_000
"""Following shows at most TAILED of the newest matching jobs, among the TAIL_LOOK newest of all."""

Expected = Sequence[str] | None
"""The versions of which one must be current; None accepts any."""


class JobDetail(msgspec.Struct, frozen=True):
    """A job in full, with the sentence that explains its state."""

    job: dict[str, Any]
    why: str
    attempts: list[dict[str, Any]]
    blockers: list[dict[str, Any]]
    progress: dict[str, Any] | None
    version: str
    now: Instant


class Moved(msgspec.Struct, frozen=True):
    """What a command moved, and what it left alone because it was in another state or gone."""

    moved: list[str]
    left: list[str]


class JobAdmin:
    """What can be asked about jobs and done to them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def page(
        self, caller: Caller, filter: str, limit: int, after: str | None
    ) -> Page[dict[str, Any]]:
        """Read a page of jobs, newest first. Raises: FilterError, InvalidCursor, InvalidOption."""
        return await self._gateway.read(
            caller,
            "job.list",
            lambda store: read_page("jobs", filter, limit, after, store.jobs.walk, shown_job),
        )

    async def get(self, caller: Caller, id: str, raw: bool = False) -> JobDetail:
        """Read a job in full; payloads, and raw ones, only for those who may see them. Raises: JobNotFound, Refused."""
        wanted = str(parse_id(id))
        if raw:
            check(caller.principal, "job.payload")
        show = partial(payload, raw=raw) if caller.may("job.payload") else None
        return await self._gateway.read(
            caller, "job.get", lambda store: _detail(store, wanted, show)
        )

    async def changes(
        self, caller: Caller, filter: str, watch: Watch, look: int
    ) -> list[dict[str, Any]]:
        """Read what is new or changed among the newest jobs since the watch's last look. Raises: FilterError."""
        query = query_of(filter, look, None)
        found = await self._gateway.read(
            caller, "tail.read", lambda store: store.jobs.walk(query, TAIL_LOOK)
        )
        return [shown_job(each) for each in watch.changes(found.records)]

    async def retry(self, caller: Caller, ids: Sequence[str], expected: Expected = None) -> Moved:
        """Put failed jobs back into the queue. Raises: JobNotFound, WrongState, Changed."""
        return await self._move(caller, "job.retry", ids, expected, redrive_jobs)

    async def cancel(self, caller: Caller, ids: Sequence[str], expected: Expected = None) -> Moved:
        """Cancel live jobs; running handlers get their abort signal. Raises: JobNotFound, WrongState, Changed."""
        cancel = partial(cancel_jobs, reason=caller.reason or "")
        return await self._move(caller, "job.cancel", ids, expected, cancel)

    async def run_now(self, caller: Caller, ids: Sequence[str], expected: Expected = None) -> Moved:
        """Make pending jobs due now. Raises: JobNotFound, WrongState, Changed."""
        return await self._move(caller, "job.run_now", ids, expected, run_jobs_now)

    async def _move(
        self,
        caller: Caller,
        action: str,
        ids: Sequence[str],
        expected: Expected,
        command: Callable[[Store, Sequence[str]], Op[Change[list[str]]]],
    ) -> Moved:
        wanted = checked_ids(ids)

        def op(store: Store) -> Op[Change[Moved]]:
            if len(wanted) == 1:
                yield from _check_one(store, wanted[0], expected)
            change = yield from command(store, wanted)
            left = sorted(set(wanted) - set(change.answer))
            return change.with_answer(Moved(change.answer, left))

        return await self._gateway.run(caller, action, op)


def checked_ids(ids: Sequence[str]) -> list[str]:
    """Return ids in order, each once. Raises: InvalidId, InvalidOption when they are none or too many."""
    wanted = sorted({str(parse_id(each)) for each in ids})
    if not wanted or len(wanted) > MOST_AT_ONCE:
        raise InvalidOption(f"{len(wanted)} ids were given, from 1 to {MOST_AT_ONCE} are accepted")
    return wanted


def _detail(store: Store, id: str, show: Callable[[str | None], Any] | None) -> Op[JobDetail]:
    record = yield from _one(store, id)
    around = yield from look_around(store, record)
    attempts = yield from store.jobs.attempts(id)
    blockers = yield from store.blockers.of_jobs([id])
    progress = yield from store.leases.progress([id])
    return JobDetail(
        job={**shown_job(record), **payloads_of(record, show)},
        why=why(record, around),
        attempts=[shown_attempt(each) for each in attempts],
        blockers=[shown_blocker(each) for each in blockers],
        progress=shown_progress(progress[0]) if progress else None,
        version=job_version(record),
        now=around.now,
    )


def payloads_of(
    record: JobRecord | ChainRecord, show: Callable[[str | None], Any] | None
) -> dict[str, Any]:
    """Return input and output as the caller may see them, or that they are withheld."""
    if show is None:
        return {"input": None, "output": None, "payloads_withheld": True}
    return {
        "input": show(record.input),
        "output": show(record.output),
        "payloads_withheld": False,
    }


def _one(store: Store, id: str) -> Op[JobRecord]:
    found = yield from store.jobs.get([id])
    if not found:
        raise JobNotFound(f"there is no job {id}")
    return found[0]


def _check_one(store: Store, id: str, expected: Expected) -> Op[None]:
    if expected is not None:
        # A live row is held until the move, so that the version cannot pass in between.
        yield from store.jobs.lock([id])
    record = yield from _one(store, id)
    require(expected, job_version(record))
