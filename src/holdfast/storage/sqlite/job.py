"""Jobs in SQLite: the operations that are one statement in PostgreSQL and several here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.core.model import (
    Claim,
    ClaimedJob,
    EndedJob,
    Ending,
    Finish,
    Finished,
    Instant,
    JobRecord,
    JobRef,
    NewJob,
)
from holdfast.storage.aggregates.job import Jobs
from holdfast.storage.aggregates.wire import document, texts
from holdfast.storage.query import JobQuery
from holdfast.storage.sqlite.claim import claim_jobs
from holdfast.storage.sqlite.clock import moment
from holdfast.storage.sqlite.finish import finish_attempts
from holdfast.storage.sqlite.rows import job_record, page_params
from holdfast.storage.sqlite.successor import queue_jobs, write_successors
from holdfast.storage.sqlite.tally import Tally
from holdfast.storage.statement import Op, Row, Statement

_NOTHING = (None, None, None, None, 0, False)


class SqliteJobs(Jobs):
    """See `storage.port.JobStore`."""

    def insert(
        self, jobs: Sequence[NewJob], channel: str | None = None, now: Instant | None = None
    ) -> Op[set[str]]:
        # There is no channel to notify on: other processes watch the file itself.
        rows = yield _writing(jobs, now)
        yield from queue_jobs([row[0] for row in rows])
        tally = Tally()
        for type, number in Counter(row[1] for row in rows).items():
            tally.of(type).started = number
        yield from tally.write(now)
        return {row[0] for row in rows}

    def claim(self, claim: Claim, now: Instant | None = None) -> Op[list[ClaimedJob]]:
        return claim_jobs(claim, now)

    def finish(
        self,
        finishes: Sequence[Finish],
        freed: Sequence[str] = (),
        awaited: bool = False,
        now: Instant | None = None,
    ) -> Op[list[Finished]]:
        return finish_attempts(finishes, freed, awaited, now)

    def end(self, endings: Sequence[Ending], now: Instant | None = None) -> Op[list[EndedJob]]:
        now = yield from moment(now)
        rows = yield Statement("job_end_read", {"ids": texts(each.id for each in endings)})
        if not rows:
            return []
        yield Statement("job_end", {"rows": document(endings), "now": now})
        yield Statement("queue_drop", {"ids": texts(row[0] for row in rows)})
        tally = Tally()
        given = {each.id: each for each in endings}
        for row in rows:
            tally.of(row[2]).end(given[row[0]].state)
        successors = [
            (job, bool(row[5])) for row in rows if (job := given[row[0]].next) is not None
        ]
        yield from write_successors(successors, now, tally)
        yield from tally.write(now)
        return [_ended(row) for row in rows]

    def redrive(
        self, ids: Sequence[str], spacing_us: int = 0, now: Instant | None = None
    ) -> Op[list[JobRef]]:
        rows = sorted((yield Statement("job_redrive", {"ids": texts(ids)})))
        if not rows:
            return []
        spread = document([(id, fence) for id, _, fence in rows])
        yield Statement("job_redrive_queue", {"rows": spread, "spacing_us": spacing_us, "now": now})
        tally = Tally()
        for _, type, _ in rows:
            tally.of(type).failed -= 1
        yield from tally.write(now)
        return [JobRef(id, type) for id, type, _ in rows]

    def get(self, ids: Sequence[str]) -> Op[list[JobRecord]]:
        rows = yield Statement("job_get", {"ids": texts(ids)})
        return [job_record(row) for row in rows]

    def _fitting(self, query: JobQuery, now: Instant | None) -> Op[list[JobRecord]]:
        rows = yield Statement("job_list", {**page_params(query), "now": now})
        return [job_record(row) for row in rows]


def _ended(row: Row) -> EndedJob:
    id, chain_id, type, was, worker, awaited = row
    return EndedJob(id, chain_id, type, was, worker, bool(awaited))


def _writing(jobs: Sequence[NewJob], now: Instant | None) -> Statement:
    """The statement that writes jobs; a start of one or of many alike takes the straightest way."""
    kinds = {(each.type, each.priority) for each in jobs}
    if len(kinds) != 1 or any(_asked(each) != _NOTHING for each in jobs):
        return Statement("job_insert", {"rows": document(jobs), "now": now})
    ((type, priority),) = kinds
    inputs = document({each.id: each.input for each in jobs})
    return Statement(
        "job_insert_alike", {"inputs": inputs, "type": type, "priority": priority, "now": now}
    )


def _asked(job: NewJob) -> tuple[object, ...]:
    """What a job asks for beside its type, priority and input; a place in another's chain included."""
    return job.at, job.key, job.trace, job.max_attempts, job.blockers, job.chain_id != job.id
