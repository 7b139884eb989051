"""A day of jobs in a fixed mix of states and types, whatever their number, written into our tables.

What a fleet holds at a moment does not grow with its history: as many jobs run beside ten thousand as beside a million.
PostgreSQL gets the rows by COPY, SQLite row by row.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from holdfast.commands.cycles import begin_slot, complete_slot
from holdfast.core.cycle import NewCycle, NewRun, slot_at
from holdfast.core.declared_limits import encode_declared
from holdfast.core.ids import uuid7_text
from holdfast.core.worker_presence import WorkerSign
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast_archive.manifest import ArchivedObject
from holdfast_archive.manifest_store import ARCHIVING
from holdfast_bench.handwritten import SQL, SQLITE
from holdfast_bench.workload import INPUT_TEXT, KEYED, OUTPUT_TEXT, make_app
from holdfast_schedules import add_schedules

if TYPE_CHECKING:
    import psycopg

    from holdfast.app import Holdfast
    from holdfast.storage.store import Store

AT_ONCE = 20_000
NEVER = 9_223_372_036_854_775_807

TYPES: Final = (
    *("mail.send", "mail.digest", "order.charge", "order.ship", "push.send", "image.resize"),
    *("report.render", "search.index", "sync.crm", "webhook.post"),
)
RARE_TYPE: Final = "audit.export"
RARE = 3
"""So many jobs of that type, the oldest of all: what a walk from the newest on finds last."""

ERRORS: Final = (
    ("TimeoutError: the gateway did not answer within 30 s", "timeout"),
    ("ConnectionError: connection refused by 10.0.0.7", "refused"),
    ("ValueError: the address has no domain", "value"),
)
RUNNING = 50
HELD_AT_ONCE = 10
POLICY: Final = (3_600_000, 25, 10_000, 300_000)
SPAN_US = 86_400_000_000
HOUR_US = 3_600_000_000
MINUTE_US = 60_000_000

KEYS, QUEUED = 500, 5_000
"""Keys of a limited type, and the jobs that wait in their queues."""

CYCLE, RUNS = "cleanup", 300
"""A cycle that ran so often, once a minute."""

SCHEDULE, SCHEDULES = "report", 200
"""One of the schedules that were set at run time."""
MANIFEST, MANIFESTS = "jobs/2026-10/0", 200
"""One of the parts that the archive has."""

STOPPED = 200
"""Workers that were here before."""

Rows = dict[str, list[tuple[Any, ...]]]


class HistoryJob(NamedTuple):
    """The n-th job, its id and what follows from its number."""

    n: int
    id: str
    at: int
    type: str


@dataclass(frozen=True, slots=True)
class JobMix:
    """So many jobs until now. `moment` and `ids` write an instant and a list of ids as the store has them."""

    count: int
    now: int
    moment: Callable[[int | None], Any]
    ids: Callable[[list[str]], str]

    def batches(self, size: int) -> Iterator[Rows]:
        """Give the rows by table, so many jobs at once; the last ones are what is there once."""
        for first in range(0, self.count, size):
            rows: Rows = defaultdict(list)
            for n in range(first, min(first + size, self.count)):
                self._add(rows, self._make_job(n))
            yield rows
        yield self._make_held()
        yield {"tally": self._tally(), "worker": self._workers()}

    def _make_job(self, n: int) -> HistoryJob:
        """States repeat every hundred jobs, types after that."""
        at = self.now - SPAN_US + SPAN_US * n // self.count
        type = RARE_TYPE if n < RARE else TYPES[n // 100 % len(TYPES)]
        return HistoryJob(n, uuid7_text(at // 1000, n % 4096, n.to_bytes(6)), at, type)

    def _add(self, rows: Rows, job: HistoryJob) -> None:
        """Of each hundred 5 failed, 2 were cancelled, 4 are due, 3 are planned, 2 are blocked, the others completed."""
        match job.n % 100:
            case place if place < 5:
                self._end(rows, job, "failed", *ERRORS[job.n % 3])
            case 5 | 6:
                self._end(rows, job, "cancelled", "not wanted any more", None)
            case 7 | 8 | 9 | 10:
                self._wait(rows, job, job.at)
            case 11 | 12 | 13:
                self._wait(rows, job, self.now + HOUR_US + job.n)
            case 14 | 15:
                self._wait(rows, job, None)
                rows["blocker"].append((job.id, 0, self._make_job(job.n - 5).id, "fail", True))
            case _:
                self._end(rows, job, "completed", None, None)

    def _job(self, rows: Rows, job: HistoryJob, blockers: int = 0) -> None:
        # The job after every twentieth of a hundred goes on with that one's chain.
        follows = job.n % 100 == 21
        chain = self._make_job(job.n - 1).id if follows else job.id
        made = self.moment(job.at)
        rows["job"].append((job.id, chain, int(follows), job.type, INPUT_TEXT, 5, blockers, made))

    def _wait(self, rows: Rows, job: HistoryJob, at: int | None) -> None:
        self._job(rows, job, int(at is None))
        rows["queue"].append((job.id, job.type, 5, self.moment(at), 0, 0, None))

    def _end(
        self, rows: Rows, job: HistoryJob, state: str, error: str | None, fingerprint: str | None
    ) -> None:
        self._job(rows, job)
        started = self.moment(job.at + 20_000 + job.n % 977 * 100)
        ended = self.moment(job.at + 250_000)
        output = OUTPUT_TEXT if state == "completed" else None
        worker, continued = f"w-{job.n % 5}", job.n % 100 == 20
        what = (state, continued, output, error, fingerprint)
        rows["outcome"].append((job.id, job.type, *what, 1, 0, 1, worker, started, ended))
        if state == "failed":
            rows["attempt"].append((job.id, 1, 1, "error", worker, started, ended, error))

    def _make_held(self) -> Rows:
        rows: Rows = defaultdict(list)
        begun, ends = self.moment(self.now), self.moment(self.now + HOUR_US)
        for first in range(self.count, self.count + RUNNING, HELD_AT_ONCE):
            jobs = [self._make_job(n) for n in range(first, first + HELD_AT_ONCE)]
            token = self._make_job(first + RUNNING).id
            for job in jobs:
                self._job(rows, job)
                rows["queue"].append((job.id, job.type, 5, begun, 1, 1, token))
            names = self.ids([each.id for each in jobs])
            worker = f"w-{first // HELD_AT_ONCE % 5}"
            rows["lease"].append((token, worker, begun, ends, *POLICY, names))
        return rows

    def _tally(self) -> list[tuple[Any, ...]]:
        """A row for each minute and type, one for what the minutes do not divide, and the hours of the week before."""
        minutes = SPAN_US // MINUTE_US
        each = self.count // (minutes * len(TYPES))
        rows = [
            (self.moment(self.now - minute * MINUTE_US), type, *_counts(each))
            for minute in range(minutes)
            for type in TYPES
        ]
        oldest, rest = self.moment(self.now - SPAN_US), self.count - each * minutes * len(TYPES)
        week = [
            (self.moment(self.now - SPAN_US - hour * HOUR_US), type, 60 * each, 60 * each, 0, 0)
            for hour in range(1, 6 * 24)
            for type in TYPES
        ]
        ends = [(oldest, TYPES[0], *_counts(rest)), (oldest, RARE_TYPE, *_counts(RARE))]
        return [*rows, *week, *ends]

    def _workers(self) -> list[tuple[Any, ...]]:
        at = self.moment(self.now)
        types = msgspec.json.encode(TYPES).decode()
        return [
            (f"w-{n}", f"w-{n}", "localhost", n, "0", 10, types, at, at, "{}") for n in range(5)
        ]


def _counts(jobs: int) -> tuple[int, int, int, int]:
    return jobs, jobs * 84 // 100, jobs * 5 // 100, jobs * 2 // 100


def seed_history(url: str, count: int) -> None:
    """Fill a database that has our tables and nothing in them."""
    if url.startswith("sqlite"):
        _seed_sqlite(url.removeprefix("sqlite:///"), count)
    else:
        _seed_postgres(url, count)
    with closing(make_app(url, (KEYED,))) as app:
        store = app.database.store
        app.database.run(store.workers.fold_tally(count))
        _queue_jobs(app)
        _set_schedules(app)
        for op in (_run_cycle(store), _archive(store), _stop_workers(store)):
            app.database.run(op)


def _queue_jobs(app: Holdfast) -> None:
    """Let jobs of a limited type wait in the queues of many keys, and a worker declare the limit."""
    inputs = [{"tenant": n % KEYS} for n in range(QUEUED)]
    with app.transaction() as tx:
        app.start_many(tx, KEYED, inputs)
    flow = app.registry.get(KEYED).flow
    assert flow is not None
    sign = WorkerSign(
        *("w-keyed", "w-keyed", "localhost", 1, "0", 10, f'["{KEYED}"]', "{}", None),
        live_ms=SPAN_US // 1000,
        limits=encode_declared([flow]),
    )
    app.database.run(app.database.store.workers.sign(sign))


def _set_schedules(app: Holdfast) -> None:
    """Let there be schedules that were set at run time."""
    schedules = add_schedules(app)
    with app.transaction() as tx:
        for n in range(SCHEDULES):
            schedules.set(tx, f"{SCHEDULE}{n or ''}", KEYED, {"tenant": n % KEYS}, every="1h")


def _run_cycle(store: Store) -> Op[None]:
    """Let a cycle have a history."""
    begun = _now() - RUNS * MINUTE_US
    yield from store.cycles.register([NewCycle(CYCLE, "every 1m", "UTC", True, "last")], begun)
    for n in range(RUNS):
        at = begun + (n + 1) * MINUTE_US
        slot = slot_at(at // 1_000_000 * 1_000_000)
        run = NewRun(new_id(), CYCLE, f"w-{n % 5}", slot.name)
        held = yield from begin_slot(store, run, slot, new_id(), 60_000, at)
        assert held is not None
        yield from complete_slot(store, held, '{"processed":7,"skipped":2}', at + 700_000)


def _archive(store: Store) -> Op[None]:
    """Let parts of a period be in the archive."""
    source, period, _ = MANIFEST.split("/")
    token = new_id()
    for part in range(MANIFESTS):
        file = ArchivedObject("job", f"{source}/{period}/{part}.parquet", 1_000, 90_000, "ab")
        id, write = new_id(), ARCHIVING
        yield from write.claim(id, source, period, part, "{}", token, 60_000)
        yield from write.mark_exported(id, token, [file], 1_000, "{}")
        yield from write.mark_verified(id, token, SPAN_US)


def _stop_workers(store: Store) -> Op[None]:
    """Let workers have come and gone."""
    for n in range(STOPPED):
        names = (f"gone-{n}", "gone", "localhost", n, "0", 10, "[]", "{}", None)
        yield from store.workers.sign(WorkerSign(*names))
        yield from store.workers.stop(f"gone-{n}", "{}")


def _seed_postgres(url: str, count: int) -> None:
    import psycopg

    mix = JobMix(count, _now(), _text_of, lambda ids: "{" + ",".join(ids) + "}")
    with psycopg.connect(url, autocommit=True) as connection:
        for rows in mix.batches(AT_ONCE):
            with connection.transaction():
                _copy(connection, rows)
        connection.execute("vacuum analyze")
        # Only to start from rest; a role that may do nothing but create databases may not.
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute("checkpoint")


def _copy(connection: psycopg.Connection[Any], rows: Rows) -> None:
    for table, lines in rows.items():
        with connection.cursor().copy(SQL[f"copy_{table}"]) as writing:
            for line in lines:
                writing.write_row(line)


def _seed_sqlite(path: str, count: int) -> None:
    mix = JobMix(
        count,
        _now(),
        lambda at: NEVER if at is None else at,
        lambda ids: msgspec.json.encode(ids).decode(),
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for rows in mix.batches(AT_ONCE):
            connection.execute("begin immediate")
            for table, lines in rows.items():
                connection.executemany(SQLITE[f"insert_{table}"], lines)
            connection.execute("commit")
        connection.execute("analyze")
        connection.execute("pragma wal_checkpoint(truncate)")


def _now() -> int:
    return time.time_ns() // 1000


def _text_of(at: int | None) -> str:
    """Write an instant as PostgreSQL reads it; none at all is a job that is blocked."""
    if at is None:
        return "infinity"
    return datetime.fromtimestamp(at / 1_000_000, UTC).isoformat()
