"""Jobs for HTTP, pages and the command line: lists, one in full, moves, following changes; dead letters in groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from holdfast.admin.access import Caller, NounAdmin, check
from holdfast.admin.bulk_audit import new_bulk
from holdfast.admin.serializers import (
    job_version,
    payloads_of,
    redact_text,
    require,
    rfc3339,
    shown_attempt,
    shown_blocker,
    shown_dead_group,
    shown_progress,
    without_payloads,
)
from holdfast.admin.steps import SHOWN_STEPS, shown_steps
from holdfast.client.pagination import query_of, read_page
from holdfast.client.views import Page
from holdfast.commands.chains import drop_jobs
from holdfast.commands.change import Change
from holdfast.commands.debounce import with_last_input
from holdfast.commands.explain import explain, look_around
from holdfast.commands.jobs import cancel_jobs, redrive_jobs, run_jobs_now, spacing_us
from holdfast.commands.redrives import rate_text, redrive_dead_letters
from holdfast.core.errors import InvalidOption, JobNotFound
from holdfast.core.filters import parse_filter
from holdfast.core.ids import parse_id
from holdfast.core.instants import Instant
from holdfast.core.records import JobRecord
from holdfast.core.sealing import Sealer
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

MAX_AT_ONCE = 1_000
"""Jobs that one command may name."""

TAILED = 500
TAIL_LOOK = 2_000
"""Following shows at most TAILED of the newest matching jobs, among the TAIL_LOOK newest of all."""

GROUPED = 1_000
"""Groups are made of this many of the newest dead letters, which a page can wait for at any size."""

SCANNED = 100_000
"""A command scans at most this many for those that match its filter."""

COUNTED = 10_000
"""Jobs are counted up to here, as many as a page changes at once."""

Expected = Sequence[str] | None
"""The versions of which one must be current; None accepts any."""

JobCommand = Callable[[Store, Sequence[str]], Op[Change[list[str]]]]
"""A command on jobs by id; it answers with the ids that it changed."""

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/([smh]))?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3_600}


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


class JobDetail(msgspec.Struct, frozen=True):
    """A job in full, with the sentence that explains its state.

    `waits_for` names a few of the jobs that hold its limit, `next_permit_at` when its rate lets the next one start.
    `steps_cut` means that a durable function has more steps than are shown.
    """

    job: dict[str, Any]
    why: str
    waits_for: list[str]
    next_permit_at: str | None
    attempts: list[dict[str, Any]]
    blockers: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    steps_cut: bool
    progress: dict[str, Any] | None
    version: str
    now: Instant


class Moved(msgspec.Struct, frozen=True):
    """What a command moved, and what it left alone because it was in another state or gone."""

    moved: list[str]
    left: list[str]


class Matches(msgspec.Struct, frozen=True):
    """How many jobs match a filter; `more` means that counting stopped there."""

    count: int
    more: bool


class JobAdmin(NounAdmin):
    """What can be asked about jobs and done to them."""

    async def page(
        self, caller: Caller, filter: str, limit: int, after: str | None
    ) -> Page[dict[str, Any]]:
        """Read a page of jobs, newest first, with the last error of those to be tried again.

        Raises: FilterError, InvalidCursor, InvalidOption.
        """
        return await self._gateway.read(
            caller, "job.list", lambda store: _page(store, filter, limit, after)
        )

    async def get(self, caller: Caller, id: str, raw: bool = False) -> JobDetail:
        """Read a job in full; payloads, and raw ones, only for those who may see them. Raises: JobNotFound, Refused."""
        wanted = str(parse_id(id))
        if raw:
            check(caller.principal, "job.payload")
        withheld, sealer = not caller.may("job.payload"), self._gateway.app.registry.sealer
        return await self._gateway.read(
            caller, "job.get", lambda store: _detail(store, wanted, sealer, raw, withheld)
        )

    async def steps(
        self, caller: Caller, id: str, limit: int = SHOWN_STEPS, raw: bool = False
    ) -> list[dict[str, Any]]:
        """Read the last steps of a durable function; results, and raw ones, as payloads are. Raises: JobNotFound."""
        wanted = str(parse_id(id))
        if raw:
            check(caller.principal, "job.payload")
        withheld, sealer = not caller.may("job.payload"), self._gateway.app.registry.sealer

        def op(store: Store) -> Op[list[dict[str, Any]]]:
            job = yield from read_job(store, wanted)
            blockers = yield from store.blockers.of_jobs([wanted])
            found = yield from store.steps.latest(wanted, limit)
            return shown_steps(found, blockers, job.chain_id, sealer, raw, withheld)

        return await self._gateway.read(caller, "job.get", op)

    async def count(self, caller: Caller, filter: str) -> Matches:
        """Count the jobs that match a filter, up to COUNTED among the newest SCANNED. Raises: FilterError."""
        query = msgspec.structs.replace(query_of(filter, 1, None), limit=COUNTED)
        found = await self._gateway.read(
            caller, "job.list", lambda store: store.jobs.matching(query, SCANNED)
        )
        return Matches(len(found.records), found.end is not None)

    async def changes(
        self, caller: Caller, filter: str, watch: Watch, look: int
    ) -> list[dict[str, Any]]:
        """Read what is new or changed among the newest jobs since the watch's last look. Raises: FilterError."""
        query = query_of(filter, look, None)
        found = await self._gateway.read(
            caller, "tail.read", lambda store: store.jobs.walk(query, TAIL_LOOK)
        )
        return [without_payloads(each) for each in watch.changes(found.records)]

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
        command: JobCommand,
    ) -> Moved:
        wanted = checked_ids(ids)

        def op(store: Store) -> Op[Change[Moved]]:
            if len(wanted) == 1:
                yield from _check_one(store, wanted[0], expected)
            change = yield from command(store, wanted)
            left = sorted(set(wanted) - set(change.answer))
            return change.with_answer(Moved(change.answer, left))

        return await self._gateway.run(caller, action, op)


def _page(store: Store, filter: str, limit: int, after: str | None) -> Op[Page[dict[str, Any]]]:
    page = yield from read_page("jobs", filter, limit, after, store.jobs.walk, without_payloads)
    tried = [each["id"] for each in page.items if each["attempt"] and each["state"] in _OPEN]
    errors = (yield from store.attempts.last_errors(tried)) if tried else {}
    for each in page.items:
        each["last_error"] = redact_text(errors.get(each["id"]))
    return page


_OPEN = ("pending", "running")


def checked_ids(ids: Sequence[str]) -> list[str]:
    """Return ids in order, each once. Raises: InvalidId, InvalidOption when they are none or too many."""
    wanted = sorted({str(parse_id(each)) for each in ids})
    if not wanted or len(wanted) > MAX_AT_ONCE:
        raise InvalidOption(f"{len(wanted)} ids were given, from 1 to {MAX_AT_ONCE} are accepted")
    return wanted


def _detail(
    store: Store, id: str, sealer: Sealer | None, raw: bool, withheld: bool
) -> Op[JobDetail]:
    record = yield from read_job(store, id)
    asked = yield from with_last_input(store, record)
    around = yield from look_around(store, record)
    attempts = yield from store.attempts.of(id)
    blockers = yield from store.blockers.of_jobs([id])
    progress = yield from store.leases.progress([id])
    steps = yield from store.steps.latest(id, SHOWN_STEPS + 1)
    explained = explain(record, around)
    return JobDetail(
        job={**without_payloads(asked), **payloads_of(asked, sealer, raw, withheld)},
        why=explained.sentence,
        waits_for=list(explained.waits_for),
        next_permit_at=rfc3339(explained.next_permit_at),
        attempts=[shown_attempt(each) for each in attempts],
        blockers=[shown_blocker(each) for each in blockers],
        steps=shown_steps(steps[-SHOWN_STEPS:], blockers, record.chain_id, sealer, raw, withheld),
        steps_cut=len(steps) > SHOWN_STEPS,
        progress=shown_progress(progress[0]) if progress else None,
        version=job_version(record),
        now=around.now,
    )


def read_job(store: Store, id: str) -> Op[JobRecord]:
    """Read a job. Raises: JobNotFound."""
    found = yield from store.jobs.get([id])
    if not found:
        raise JobNotFound(f"there is no job {id}")
    return found[0]


def _check_one(store: Store, id: str, expected: Expected) -> Op[None]:
    if expected is not None:
        # A live row is held until the move, so that the version cannot pass in between.
        yield from store.jobs.lock([id])
    record = yield from read_job(store, id)
    require(expected, job_version(record))


class HandledDeadLetters(msgspec.Struct, frozen=True):
    """What a command did to dead letters; `more` means that more match than one command takes."""

    ids: list[str]
    more: bool


class Redrive(msgspec.Struct, frozen=True):
    """A redrive that is under way: its rate, and how many dead letters it has left."""

    id: str
    rate: str
    left: int


class Groups(msgspec.Struct, frozen=True):
    """Dead letters by their kind; `cut` means that only the newest were scanned.

    `redrives` are those at a rate that are under way, with what is left of them.
    """

    items: list[dict[str, Any]]
    cut: bool
    redrives: list[Redrive]


class DeadLetterAdmin(NounAdmin):
    """What can be asked about dead letters and done to them. Each command takes ids, or a filter that finds them."""

    async def groups(self, caller: Caller, limit: int = 100) -> Groups:
        """Read the largest groups by type and kind of error among the newest."""
        return await self._gateway.read(
            caller, "dead.list", lambda store: dead_groups(store, limit, GROUPED)
        )

    async def redrive(
        self,
        caller: Caller,
        ids: Sequence[str] = (),
        filter: str | None = None,
        rate: float | None = None,
        redrive_id: str | None = None,
    ) -> HandledDeadLetters:
        """Put dead letters back into the queue; with a rate, running workers do that, at most so many a second.

        What has the same `redrive_id` shares its rate.
        Raises: JobNotFound, WrongState when none is one; InvalidOption, FilterError.
        """
        spacing_us(rate)

        def redrive(store: Store, wanted: Sequence[str]) -> Op[Change[list[str]]]:
            return redrive_dead_letters(store, wanted, rate, redrive_id)

        return await self._handle(caller, "dead.redrive", ids, filter, redrive)

    async def drop(
        self, caller: Caller, ids: Sequence[str] = (), filter: str | None = None
    ) -> HandledDeadLetters:
        """Delete dead letters with their chains; those that other jobs wait for are left alone.

        Raises: JobNotFound, WrongState, StillReferenced when none could be dropped.
        """
        return await self._handle(caller, "dead.drop", ids, filter, drop_jobs)

    async def _handle(
        self,
        caller: Caller,
        action: str,
        ids: Sequence[str],
        filter: str | None,
        command: JobCommand,
    ) -> HandledDeadLetters:
        def op(store: Store) -> Op[Change[HandledDeadLetters]]:
            wanted, more = yield from _chosen(store, ids, filter)
            change = (yield from command(store, wanted)) if wanted else Change[list[str]]([])
            return change.with_answer(HandledDeadLetters(change.answer, more))

        if filter is not None and caller.bulk is None:
            caller = replace(caller, bulk=new_bulk(filter, in_parts=False))
        return await self._gateway.run(caller, action, op)


def dead_groups(store: Store, limit: int, look: int) -> Op[Groups]:
    """Read groups of dead letters, and whether there are more than were scanned."""
    found = yield from store.dead_letters.groups(limit, look)
    cut = sum(each.count for each in found) >= look
    redrives = [
        Redrive(each.id, rate_text(each.spacing_us), each.left)
        for each in (yield from store.redrives.under_way())
    ]
    return Groups([shown_dead_group(each) for each in found], cut, redrives)


def per_second(text: str) -> float:
    """Parse a rate such as 50/s or 10/m; a bare number is per second. Raises: InvalidOption."""
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise InvalidOption(
            f"{text[:20]!r} is not a rate like 50/s or 10/m",
            help="use a number per second, minute or hour",
        )
    rate = float(match[1]) / _SECONDS[match[2] or "s"]
    spacing_us(rate)
    return rate


def _chosen(store: Store, ids: Sequence[str], filter: str | None) -> Op[tuple[list[str], bool]]:
    if bool(ids) == (filter is not None):
        raise InvalidOption("choose dead letters by ids or by a filter")
    if filter is None:
        return checked_ids(ids), False
    is_narrowed = any(term.field == "state" for term in parse_filter(filter, words=False))
    text = filter if is_narrowed else f"state:failed {filter}"
    found = yield from store.jobs.walk(query_of(text, MAX_AT_ONCE, None), SCANNED)
    ids = [each.id for each in found.records if each.state == "failed"]
    return ids, found.end is not None
