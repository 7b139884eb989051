"""Short ways to make jobs, claims and finishes, and to look into a file from outside."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from holdfast.core.records import Claim, ClaimedJob, Finish, FinishKind, LeaseClass, NewJob, Probe
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

MAIL = "mail"
PRIORITY = 5


def new_job(type: str = MAIL, input: str = "{}", **fields: Any) -> NewJob:
    """A job that starts a chain."""
    id = new_id()
    return NewJob(id=id, chain_id=id, type=type, input=input, **fields)


def claim_of(type: str = MAIL, limit: int = 10, priority: int = PRIORITY) -> Claim:
    """A claim of one type and priority from the start."""
    token = new_id()
    return Claim(
        worker="w",
        limit=limit,
        probes=(Probe(type, priority, token, limit, 0, ""),),
        classes=(LeaseClass(token, 60_000, 3, 1000, 60_000),),
    )


def finish_of(job: ClaimedJob, kind: FinishKind = "complete", **fields: Any) -> Finish:
    """The end of a claimed job's attempt."""
    return Finish(
        id=job.id, token=job.token, kind=kind, worker="w", chain_id=job.chain_id, **fields
    )


def failing_after(store: Store, job: NewJob, error: Exception) -> Op[None]:
    """An operation that writes a job and then fails."""
    yield from store.jobs.insert([job])
    raise error


def job_ids(path: Path) -> set[str]:
    """The ids of all jobs that are committed."""
    with closing(sqlite3.connect(path)) as connection:
        return {row[0] for row in connection.execute("select id from holdfast_job")}


@contextmanager
def locked(path: Path, wait_s: float = 5.0) -> Iterator[sqlite3.Connection]:
    """Hold the file's write lock from outside; whoever leaves the block without a commit rolls back."""
    with closing(sqlite3.connect(path, timeout=wait_s, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        yield connection
