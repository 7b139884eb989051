"""Durable functions at one PostgreSQL database, through sessions that a test orders itself, and mistakes to plant."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import psycopg

from holdfast.commands.blockers import close_chains
from holdfast.core.records import (
    Claim,
    ClaimedJob,
    Finish,
    JobRef,
    LeaseClass,
    NewBlocker,
    NewJob,
    Probe,
)
from holdfast.core.steps import ClosedStep, NewSignal, NewStep, StepRecord, WrittenStep
from holdfast.steps.recorder import write_first
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, run
from holdfast.storage.postgres import store as postgres_store
from holdfast.storage.postgres.connection import PsycopgExecutor
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.sqlite import store as sqlite_store
from tests.support.until import wait_until

T = TypeVar("T")
TYPE = "order"
WORKER = "worker-1"
STORE = PostgresStore()
STOP = 7
"""The advisory lock at which a statement stops that was made to."""
_STOPPED = f"(select pg_advisory_xact_lock_shared({STOP})) is not null"
_STOPS = {
    "step_record": ("marks boolean)", f"marks boolean) where {_STOPPED}"),
    "step_append": (":token::uuid\n", f":token::uuid and {_STOPPED}\n"),
    "job_park": ("ignores integer[])", f"ignores integer[]) where {_STOPPED}"),
    "signal_route": ("where fresh order by id", f"where fresh and {_STOPPED} order by id"),
}
"""Where a statement may stop between its snapshot and its locks, as on a busy server."""


def recording(steps: Sequence[NewStep]) -> Op[list[WrittenStep]]:
    """The operation that a worker writes records with, where nobody is known to have written them."""
    return write_first(STORE, steps)


@contextmanager
def changed(changes: Mapping[str, tuple[str, str]], dialect: str = "postgresql") -> Iterator[None]:
    """Change the texts of statements, by name, for connections that are opened now."""
    module = postgres_store if dialect == "postgresql" else sqlite_store
    load: Callable[[str], Mapping[str, str]] = vars(module)["dialect_statements"]

    def read(dialect: str) -> Mapping[str, str]:
        texts = dict(load(dialect))
        for name, (old, new) in changes.items():
            assert old in texts[name], f"{name} does not say {old!r}"
            texts[name] = texts[name].replace(old, new)
        return texts

    def forget() -> None:
        postgres_store.postgres_statements.cache_clear()
        sqlite_store.sqlite_statements.cache_clear()

    forget()
    with patch.object(module, "dialect_statements", read):
        try:
            yield
        finally:
            forget()


def stops(*names: str) -> dict[str, tuple[str, str]]:
    """The changes with which statements stop between their snapshot and their locks."""
    return {name: _STOPS[name] for name in names}


class Session:
    """A connection: every operation is a transaction of its own, or all are one until it is ended."""

    def __init__(self, url: str, autocommit: bool = True) -> None:
        self.connection = psycopg.connect(url, autocommit=autocommit)
        self._executor = PsycopgExecutor(self.connection, "holdfast")
        self._thread = ThreadPoolExecutor(1)

    def run(self, op: Op[T]) -> T:
        """Run an operation."""
        return run(op, self._executor)

    def begin(self, op: Op[T]) -> Future[T]:
        """Run an operation beside what else happens."""
        return self._thread.submit(self.run, op)

    def commit(self) -> None:
        """Keep what was done."""
        self.connection.commit()

    def rollback(self) -> None:
        """Keep nothing."""
        self.connection.rollback()

    def close(self) -> None:
        """Give the connection up."""
        self._thread.shutdown()
        self.connection.close()


class Functions:
    """Functions, the workers that run them, and the users that signal them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: list[Session] = []
        self.own = self.session()

    def session(self, autocommit: bool = True) -> Session:
        """Open another connection."""
        made = Session(self._url, autocommit)
        self._opened.append(made)
        return made

    def close(self) -> None:
        """Close all connections."""
        for each in self._opened:
            each.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep statements that stop from going on."""
        with psycopg.connect(self._url, autocommit=True) as other:
            other.execute("select pg_advisory_lock(%s)", [STOP])
            yield

    def wait_until_stopped(self) -> None:
        """Wait until a statement has its snapshot and stops."""
        asked = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        wait_until(lambda: self.value(asked))

    def wait_until_blocked(self, session: Session) -> None:
        """Wait until a session waits for another's lock."""
        pid = session.connection.info.backend_pid
        wait_until(lambda: self.value("select cardinality(pg_blocking_pids(%s))", pid))

    def value(self, query: Any, *values: object) -> Any:
        """Ask for one value."""
        row = self.own.connection.execute(query, values).fetchone()
        return row and row[0]

    # ---- What workers do

    def start(self, type: str = TYPE) -> NewJob:
        """Write a job."""
        id = new_id()
        job = NewJob(id, id, type, "{}")
        self.own.run(STORE.jobs.insert([job]))
        return job

    def start_running(self, type: str = TYPE) -> ClaimedJob:
        """Write a job and claim it."""
        self.start(type)
        (job,) = self.claim(type)
        return job

    def claim(self, type: str = TYPE, on: Session | None = None) -> list[ClaimedJob]:
        """Claim what is due of a type."""
        token = new_id()
        probe = Probe(type, 5, token, 100, 0, "00000000-0000-0000-0000-000000000000")
        lease = LeaseClass(token, 60_000, 25, 1, 1)
        return (on or self.own).run(STORE.jobs.claim(Claim(WORKER, 100, (probe,), (lease,))))

    def take_over(self, on: Session | None = None) -> list[ClaimedJob]:
        """Reap all leases as if they had expired, and claim what that gave back."""
        session = on or self.own
        session.connection.execute("update holdfast.lease set expires_at = '2020-01-01'")
        session.run(STORE.leases.reap(100, 100))
        return self.claim(on=session)

    def step(self, job: ClaimedJob, name: str = "charge", **fields: Any) -> NewStep:
        """A record of a step that is done."""
        given: dict[str, Any] = {"key": "", "nth": 1, "position": 1, "kind": "step"}
        return NewStep(job.id, job.token, name, **given | {"state": "done"} | fields)

    def wait(self, job: ClaimedJob, key: str = "7", **fields: Any) -> NewStep:
        """A record of an open wait."""
        given: dict[str, Any] = {"kind": "wait", "state": "open", "marks": True}
        return self.step(job, "wait", **given | {"signal": "approved", "signal_key": key} | fields)

    def ended(self, step: NewStep, state: Any = "done", signal: str | None = None) -> ClosedStep:
        """The end of an open record."""
        proof = (step.job_id, step.token, step.name, step.key, step.nth)
        return ClosedStep(*proof, state, signal_id=signal)

    def record(self, *steps: NewStep, on: Session | None = None) -> list[WrittenStep]:
        """Append records."""
        return (on or self.own).run(recording(steps))

    def steps(self, *ids: str, on: Session | None = None) -> list[StepRecord]:
        """Read records."""
        return (on or self.own).run(STORE.steps.of_jobs(ids))

    def park(self, job: ClaimedJob, until: int | None = None) -> Op[bool]:
        """Park a function; say whether it was."""
        finish = Finish(job.id, job.token, "park", WORKER, job.chain_id, until=until)
        return bool((yield from STORE.jobs.finish([finish])))

    def parked(self, key: str = "7") -> ClaimedJob:
        """A function that waits for a signal."""
        job = self.start_running()
        assert self.record(self.wait(job, key))
        assert self.own.run(self.park(job))
        return job

    def signal(self, key: str = "7", **fields: Any) -> NewSignal:
        """A signal."""
        return NewSignal(new_id(), "approved", key, "null", 3_600_000, **fields)

    def send(self, *signals: NewSignal, on: Session | None = None) -> None:
        """Append signals."""
        (on or self.own).run(STORE.signals.append(signals))

    def route(self, on: Session | None = None) -> list[JobRef]:
        """Route fresh signals."""
        return (on or self.own).run(STORE.signals.route(500))

    def is_due(self, job: ClaimedJob) -> bool:
        """Whether a function can be claimed now."""
        query = (
            "select token is null and available_at <= now() from holdfast.queue where job_id = %s"
        )
        return bool(self.value(query, job.id))

    def parent(self) -> tuple[ClaimedJob, NewJob]:
        """A running function that waits for a chain, and the chain."""
        job, child = self.start_running(), self.start("child")
        assert self.record(self.step(job, "run", kind="run", state="open", marks=True))
        self.own.run(STORE.blockers.insert([NewBlocker(job.id, 0, child.id, "run", 1)]))
        return job, child

    def end_of(self, child: NewJob) -> Op[Sequence[JobRef]]:
        """What the end of a chain does for those who wait for it."""
        return (yield from close_chains(STORE, [(child.id, "completed")])).opened


def in_threads(number: int, work: Callable[[int], None]) -> None:
    """Do work in threads at once; raise what one of them raised."""
    barrier = threading.Barrier(number)

    def begin(place: int) -> None:
        barrier.wait()
        work(place)

    with ThreadPoolExecutor(number) as threads:
        for each in [threads.submit(begin, place) for place in range(number)]:
            each.result()
