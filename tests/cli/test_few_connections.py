"""Workers on a server with too few connections for all of them: they work with what they get, and say so."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from tests.cli.processes import Command
from tests.support.postgres import StartPostgres
from tests.support.process import PostgresProcess
from tests.support.until import PATIENCE_S, wait_until

APPLICATION = """
import asyncio
import os

import psycopg

from holdfast import Holdfast, Job

app = Holdfast()
EFFECT = "insert into effect (job) values (%s)"

@app.job("plain")
async def plain(job: Job[int]) -> None:
    await asyncio.sleep(0.02)  # so that no worker finishes them before the others are there

@app.job("atomic", atomic=True)
async def atomic(job: Job[int]) -> None:
    await job.tx.execute(EFFECT, [str(job.id)])

@app.job("threaded", atomic=True)
def threaded(job: Job[int]) -> None:
    job.tx.execute(EFFECT, [str(job.id)])

@app.job("staged")
async def staged(job: Job[int]) -> None:
    async with job.prepare() as tx:
        await tx.execute("select 1")
    await asyncio.sleep(0.02)
    async with job.complete() as completion:
        await completion.tx.execute(EFFECT, [str(job.id)])

@app.job("own")
def own(job: Job[int]) -> None:
    with app.transaction() as tx:
        tx.execute(EFFECT, [str(job.id)])
        job.complete(tx=tx)

@app.job("driver")
def driver(job: Job[int]) -> None:
    with psycopg.connect(os.environ["HOLDFAST_URL"]) as tx:
        tx.execute(EFFECT, [str(job.id)])
        job.complete(tx=tx)
"""
KINDS = ("plain", "atomic", "threaded", "staged", "own", "driver")
ENDED = "select count(*) from holdfast.outcome where state = 'completed'"
ATTEMPTS = "select max(attempts), max(crashes) from holdfast.outcome"
EFFECTS = "select count(*), count(distinct job) from effect"
# As few as a server can have reserved, so that all others are there for the workers.
RESERVED = {"superuser_reserved_connections": "3"}
SHORT = {"OUTBOX_LEASE_DURATION_MS": "3000"}
SAID = "the server refuses some connections"


@contextmanager
def observed(server: PostgresProcess) -> Iterator[psycopg.Connection[Any]]:
    """Look at a server that has a table for the handlers' effects."""
    with psycopg.connect(server.url, autocommit=True) as observer:
        observer.execute("create table if not exists effect (job uuid not null)")
        yield observer


def drain(
    server: PostgresProcess,
    folder: Path,
    jobs: Mapping[str, int],
    workers: int,
    environ: Mapping[str, str] | None = None,
    patience_s: float = PATIENCE_S,
) -> tuple[Sequence[str], float]:
    """Start jobs, have workers end them, and return what these said and how long it took once they were started."""
    (folder / "shop.py").write_text(APPLICATION)
    app = Holdfast(server.url, open_types=True)
    with observed(server) as observer, ExitStack() as stack:
        before = observer.execute(ENDED).fetchone()
        assert before is not None
        count = sum(jobs.values()) + before[0]
        with app.transaction() as tx:
            for name, number in jobs.items():
                app.start_many(tx, name, range(number))
        app.close()
        given = {"HOLDFAST_URL": server.url, **(environ or {})}
        running = [
            stack.enter_context(Command("worker", "shop:app", cwd=folder, env=given))
            for _ in range(workers)
        ]
        began = time.monotonic()

        def have_all_ended() -> bool:
            assert [each.process.poll() for each in running] == [None] * workers
            return observer.execute(ENDED).fetchone() == (count,)

        wait_until(have_all_ended, lambda: observer.execute(ENDED).fetchone(), patience_s)
        took_s = time.monotonic() - began
        for each in running:
            each.process.terminate()
        said = [each.process.communicate(timeout=PATIENCE_S)[1] for each in running]
        assert [each.process.poll() for each in running] == [0] * workers, said
    return said, took_s


@pytest.mark.parametrize("lease", [{}, SHORT], ids=["default lease", "short lease"])
def test_six_workers_finish_on_a_server_that_allows_20_connections(
    private_postgres: StartPostgres, tmp_path: Path, lease: dict[str, str]
) -> None:
    server = private_postgres({"max_connections": "20", **RESERVED})
    said, _ = drain(server, tmp_path, {"plain": 1_000}, 6, lease)
    with observed(server) as observer:
        assert observer.execute(ATTEMPTS).fetchone() == (1, 0)
    none = [each for each in said if "too many clients" in each and "worker_started" not in each]
    assert none or any(SAID in each for each in said), said
    assert all(each.count(SAID) <= 1 for each in said), said


def test_six_workers_on_20_connections_end_jobs_of_every_kind_once(
    private_postgres: StartPostgres, tmp_path: Path
) -> None:
    server = private_postgres({"max_connections": "20", **RESERVED})
    said, _ = drain(server, tmp_path, dict.fromkeys(KINDS, 40), 6)
    with observed(server) as observer:
        assert observer.execute(ATTEMPTS).fetchone() == (1, 0)
        assert observer.execute(EFFECTS).fetchone() == (200, 200)
    assert any("connections_short" in each for each in said), said
    assert not any("database_unreachable" in each for each in said), said


def test_more_workers_than_connections_take_turns(
    private_postgres: StartPostgres, tmp_path: Path
) -> None:
    server = private_postgres({"max_connections": "10", **RESERVED})
    drain(server, tmp_path, {"atomic": 60, "plain": 60}, 8)
    with observed(server) as observer:
        assert observer.execute(ATTEMPTS).fetchone() == (1, 0)
        assert observer.execute(EFFECTS).fetchone() == (60, 60)


@pytest.mark.lasting
@pytest.mark.timeout(900)
def test_six_workers_on_20_connections_take_at_most_twice_the_time_of_one(
    private_postgres: StartPostgres, tmp_path: Path
) -> None:
    server = private_postgres({"max_connections": "20", **RESERVED})
    jobs = dict.fromkeys(KINDS, 300)
    _, one_s = drain(server, tmp_path, jobs, 1, patience_s=300)
    _, six_s = drain(server, tmp_path, jobs, 6, patience_s=300)
    with observed(server) as observer:
        assert observer.execute(EFFECTS).fetchone() == (3_000, 3_000)
    assert six_s <= 2 * one_s, (one_s, six_s)


@pytest.mark.lasting
@pytest.mark.timeout(900)
def test_a_hundred_workers_on_100_connections_drain_2500_jobs(
    private_postgres: StartPostgres, tmp_path: Path
) -> None:
    server = private_postgres({"max_connections": "100", **RESERVED})
    # So many processes may keep one from its heartbeat for longer than its lease.
    drain(server, tmp_path, {"atomic": 1_250, "plain": 1_250}, 100, patience_s=600)
    with observed(server) as observer:
        assert observer.execute(EFFECTS).fetchone() == (1_250, 1_250)
