"""Claims are not flushed to disk one by one. What is lost with the server was never claimed: its holder is refused."""

import asyncio

import pytest

from holdfast.core.instants import Instant
from holdfast.core.records import Claim, ClaimCommit, ClaimedJob, Finish, LeaseClass, NewJob, Probe
from holdfast.storage.database import Link
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from tests.support.postgres import StartPostgres

# Long enough that nothing but a commit of its own brings a claim to the disk during a test.
LAZY_LOG = {"wal_writer_delay": "10s"}
NIL = "00000000-0000-0000-0000-000000000000"


async def claim_on(
    link: Link,
    database: PostgresDatabase,
    commit: ClaimCommit = "auto",
    limit: int = 10,
    now: Instant | None = None,
) -> ClaimedJob:
    """Claim the only job."""
    token = new_id()
    probe = Probe("work", 5, token, 10, 0, NIL, None)
    lease = LeaseClass(token, 60_000, 25, 1_000, 5_000)
    (job,) = await link.run(
        database.store.jobs.claim(Claim("w", limit, (probe,), (lease,), commit=commit), now)
    )
    return job


async def complete_on(link: Link, database: PostgresDatabase, job: ClaimedJob) -> int:
    """Complete a job as its holder would; return how many rows that hit."""
    finish = Finish(job.id, job.token, "complete", "w", job.chain_id, output="1", started_at=0)
    return len(await link.run(database.store.jobs.finish([finish], [job.token])))


@pytest.mark.parametrize(
    ("commit", "state"), [("durable", "running"), ("lazy", "pending"), ("auto", "pending")]
)
async def test_a_claim_lost_with_the_server_was_never_made(
    private_postgres: StartPostgres, commit: ClaimCommit, state: str
) -> None:
    server = private_postgres(LAZY_LOG)
    database = PostgresDatabase(server.url)
    database.migrate()
    job_id = new_id()
    await database.run_async(database.store.jobs.insert([NewJob(job_id, job_id, "work", "{}")]))
    link, writing = database.link("claim"), database.link("complete")
    first = await claim_on(link, database, commit)
    (held,) = await database.read_async(database.store.jobs.get([job_id]))
    assert (held.state, held.attempt) == ("running", 1)

    await asyncio.to_thread(server.restart, "immediate")
    await link.close()
    await writing.close()
    (found,) = await database.read_async(database.store.jobs.get([job_id]))
    assert found.state == state
    if commit == "durable":
        assert await complete_on(writing, database, first) == 1
    else:
        assert found.attempt == 0
        assert await complete_on(writing, database, first) == 0
        second = await claim_on(link, database)
        assert second.fence > first.fence
        assert await complete_on(writing, database, first) == 0
        assert await complete_on(writing, database, second) == 1
    (ended,) = await database.read_async(database.store.jobs.get([job_id]))
    assert (ended.state, ended.attempt) == ("completed", 1)
    for each in (link, writing):
        await each.close()
    await database.close_async()
