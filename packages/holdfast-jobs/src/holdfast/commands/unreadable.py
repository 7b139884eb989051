"""Waiting jobs against the code: which inputs it can read, before a deploy and when a worker starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.core.errors import InputUnreadable, SealError
from holdfast.core.records import LIVE, BlockerRecord, JobRecord, UnreadableJob
from holdfast.core.registry import JobType
from holdfast.core.sealing import key_id, open_input
from holdfast.core.steps import StepRecord
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.storage.store.pagination import JobQuery

REREAD_BATCH = 200
CHECK_BATCH = 500
SOONEST_MS, LATEST_MS = 30_000, 3_600_000


class Reread(msgspec.Struct, frozen=True):
    """One page of what could not be read: how many were looked at, what can be read now, and where the next begins."""

    seen: int
    types: Sequence[str]
    last: str


def reread_jobs(store: Store, types: Mapping[str, JobType], after: str) -> Op[Reread]:
    """Make jobs due whose input this code can read, and forget those that have ended."""
    found = yield from store.unreadable.page(list(types), after, REREAD_BATCH)
    if not found:
        return Reread(0, (), after)
    readable = [each.id for each in found if each.waits and is_readable(types[each.type], each)]
    due = (yield from store.jobs.trigger(readable)) if readable else []
    # One that a worker holds at this moment is about to be put back, and is looked at again later.
    done = [each.id for each in due] + [each.id for each in found if not each.waits]
    if done:
        yield from store.unreadable.forget(done)
    return Reread(len(found), sorted({each.type for each in due}), found[-1].id)


def is_readable(type: JobType, job: UnreadableJob) -> bool:
    """Whether this code can read the input of a job."""
    try:
        text = open_input(type.sealer, job.input or "null", job.id, job.type)
        type.read_input(text, job.version)
    except (InputUnreadable, SealError):
        return False
    return True


class TypeCheck(msgspec.Struct):
    """How many waiting jobs of a type the code can read; `error` and `example` are of the first it cannot.

    `keys` counts the sealed ones by the id of their key, `unasked` has jobs by what they recorded in vain.
    """

    type: str
    waiting: int = 0
    unreadable: int = 0
    versions: set[int] = msgspec.field(default_factory=set)
    error: str | None = None
    example: str | None = None
    keys: dict[str, int] = msgspec.field(default_factory=dict)
    unasked: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def count(self, type: JobType, job: JobRecord) -> None:
        """Try to read the input of one job."""
        self.waiting += 1
        self.versions.add(job.version)
        key = key_id(job.input)
        if key is not None:
            self.keys[key] = self.keys.get(key, 0) + 1
        try:
            type.read_input(open_input(type.sealer, job.input, job.id, job.type), job.version)
        except (InputUnreadable, SealError) as error:
            self.unreadable += 1
            text = error.message
            if key is not None and error.__cause__ is not None:
                text = f"the sealed input cannot be read as {type.input.name}"
            self.error, self.example = self.error or text, self.example or job.id

    def note_misfit(self, job: JobRecord, problem: str) -> None:
        """Note a parked function whose records the code does not fit."""
        self.unreadable += 1
        self.error, self.example = self.error or problem, self.example or job.id


class ParkedFunction(msgspec.Struct, frozen=True):
    """A waiting durable function, what its steps left, and the chains that it called."""

    job: JobRecord
    records: Sequence[StepRecord]
    children: Sequence[BlockerRecord]


def check_page(
    store: Store,
    types: Mapping[str, JobType],
    checks: dict[str, TypeCheck],
    functions: list[ParkedFunction],
    before: str | None,
) -> Op[str | None]:
    """Read the inputs of the next waiting jobs with the code of their types; return where the next page begins.

    Durable functions among them are added to `functions`.
    """
    query = JobQuery(CHECK_BATCH, before, states=tuple(sorted(LIVE)), types=tuple(types))
    page = yield from store.jobs.walk(query, CHECK_BATCH * 10)
    for job in page.records:
        checks.setdefault(job.type, TypeCheck(job.type)).count(types[job.type], job)
    functions += yield from _functions_of(store, page.records)
    return page.end


def _functions_of(store: Store, jobs: Sequence[JobRecord]) -> Op[list[ParkedFunction]]:
    if not jobs:
        return []
    records: dict[str, list[StepRecord]] = {}
    for each in (yield from store.steps.of_jobs([job.id for job in jobs])):
        records.setdefault(each.job_id, []).append(each)
    children: dict[str, list[BlockerRecord]] = {}
    if records:
        for edge in (yield from store.blockers.of_jobs(sorted(records))):
            children.setdefault(edge.job_id, []).append(edge)
    found = [job for job in jobs if job.id in records]
    return [ParkedFunction(job, records[job.id], children.get(job.id, [])) for job in found]


def readers_of(registry: Iterable[JobType]) -> dict[str, JobType]:
    """Return the types that this code handles, and the events that wait for their first subscriber, by name."""
    handled = [each for each in registry if each.handler is not None]
    events = {each.event: each for each in handled if each.event is not None}
    return {**events, **{each.name: each for each in handled}}


def next_try_ms(known_us: int, after_ms: int | None = None) -> int | None:
    """Return when a job is tried again that could not be read: soon during a deploy, less and less often after it.

    The last try is when it has waited for `after_ms`; None once it has.
    """
    delay_ms = min(LATEST_MS, max(SOONEST_MS, known_us // 1000))
    if after_ms is None:
        return delay_ms
    left_ms = after_ms - known_us // 1000
    return min(delay_ms, left_ms) if left_ms > 0 else None
