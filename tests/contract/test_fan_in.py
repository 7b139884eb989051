"""Blockers that end in the same moment open the job that waits for them exactly once, at a cost that stays linear."""

from __future__ import annotations

import asyncio

import pytest
from psycopg import AsyncConnection

from holdfast.commands.attempts import FinishReport, finish_attempts
from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.records import Claim, ClaimedJob, Finish, LeaseClass, NewBlocker, NewJob, Probe
from holdfast.storage.id_generator import new_id, new_ids
from holdfast.storage.operation import Op, run_async
from holdfast.storage.postgres.connection import PsycopgAsyncExecutor
from holdfast.storage.postgres.database import PostgresDatabase

NIL = "00000000-0000-0000-0000-000000000000"
A_FEW = 4


def scene(database: PostgresDatabase, count: int) -> tuple[str, list[ClaimedJob]]:
    """Start `count` chains and a job that waits for all of them; claim the chains."""
    store, ids, waiting = database.store, new_ids(count), new_id()
    starts = [StartRequest(NewJob(id=each, chain_id=each, type="b", input="1")) for each in ids]
    database.run(start_chains(store, starts))
    edges = tuple(NewBlocker(waiting, place, each) for place, each in enumerate(ids))
    job = NewJob(id=waiting, chain_id=waiting, type="d", input="1", blockers=count)
    database.run(start_chains(store, [StartRequest(job, blockers=edges)]))
    token = new_id()
    claim = Claim(
        "w", count, (Probe("b", 5, token, count, 0, NIL),), (LeaseClass(token, 60_000, 3, 10, 10),)
    )
    return waiting, database.run(store.jobs.claim(claim))


def completion(job: ClaimedJob) -> Finish:
    return Finish(
        id=job.id, token=job.token, kind="complete", worker="w", chain_id=job.chain_id, output="1"
    )


@pytest.mark.parametrize("count", [2, 10])
async def test_blockers_that_end_at_once_open_the_job_exactly_once(
    postgres_url: str, count: int
) -> None:
    database = PostgresDatabase(postgres_url)
    connections = [
        await AsyncConnection.connect(postgres_url, autocommit=True) for _ in range(count)
    ]
    for _ in range(10):
        waiting, jobs = scene(database, count)
        barrier = asyncio.Barrier(count)

        async def end(
            connection: AsyncConnection, job: ClaimedJob, gate: asyncio.Barrier
        ) -> FinishReport:
            executor = PsycopgAsyncExecutor(connection, "holdfast")
            await gate.wait()
            async with connection.transaction():
                return await run_async(finish_attempts(database.store, [completion(job)]), executor)

        reports = await asyncio.gather(
            *(end(each, job, barrier) for each, job in zip(connections, jobs, strict=True))
        )
        opened = [ref.id for report in reports for ref in report.fan_in.opened]
        assert opened == [waiting]
        assert database.run(database.store.jobs.get([waiting]))[0].state == "pending"
    for connection in connections:
        await connection.close()
    database.close()


def counted(op: Op[FinishReport], seen: list[str]) -> Op[FinishReport]:
    """The same operation; its statements are noted by name."""
    try:
        statement = next(op)
        while True:
            seen.append(statement.name)
            statement = op.send((yield statement))
    except StopIteration as end:
        report: FinishReport = end.value
        return report


def test_ten_thousand_blockers_cost_a_few_statements_a_flush(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    waiting, jobs = scene(database, 10_000)
    opened: list[str] = []
    for place in range(0, len(jobs), 500):
        finishes = [completion(job) for job in jobs[place : place + 500]]
        statements: list[str] = []
        report = database.run(counted(finish_attempts(database.store, finishes), statements))
        assert len(statements) <= A_FEW, statements
        opened += [ref.id for ref in report.fan_in.opened]
    assert opened == [waiting]
    database.close()
