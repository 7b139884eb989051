"""A worker that is stopped within a handler's transaction: the next one does not wait for what it has locked."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from tests.support.postgres import PostgresServer
from tests.support.until import PATIENCE_S, until
from tests.worker.ledger import PostgresLedger
from tests.worker.workshop import Workshop

LEASE_MS = 1_500
APPLICATION = """
import asyncio, os, time
from pathlib import Path

from holdfast import Holdfast, Job

app = Holdfast()
CHARGE = "update account set balance = balance + 1"

def pause(job):
    Path(f"began-{job.attempt}-{os.getpid()}").touch()
    while job.attempt == 1 and not Path("go").exists():
        time.sleep(0.02)

@app.job("atomic", atomic=True)
async def atomic(job: Job[None]) -> None:
    await job.tx.execute(CHARGE)
    await asyncio.to_thread(pause, job)

@app.job("atomic.threaded", atomic=True)
def threaded(job: Job[None]) -> None:
    job.tx.execute(CHARGE)
    pause(job)

@app.job("prepare")
async def prepare(job: Job[None]) -> None:
    async with job.prepare() as tx:
        await tx.execute(CHARGE)
        await asyncio.to_thread(pause, job)
        await tx.execute("select 1")

@app.job("complete")
def complete(job: Job[None]) -> None:
    with job.complete() as done:
        done.tx.execute(CHARGE)
        pause(job)
        done.tx.execute("select 1")
"""


@pytest.fixture
def server_url(request: pytest.FixtureRequest, server: str) -> Iterator[str]:
    """A database of its own on a server."""
    running: PostgresServer = request.getfixturevalue(server)
    with running.database() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table account (balance integer)")
        connection.execute("insert into account values (0)")
        yield url


@contextmanager
def working(folder: Path, url: str, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Have a worker at work; it does not outlive the block, stopped or not."""
    (folder / "shop.py").write_text(APPLICATION)
    with (folder / name).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker", "shop:app"],
            cwd=folder,
            env=os.environ
            | {
                "HOLDFAST_URL": url,
                "OUTBOX_LEASE_DURATION_MS": str(LEASE_MS),
                "OUTBOX_REAPER_INTERVAL_MS": "300",
            },
            stderr=log,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Tell a worker to end, and wait for it."""
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ("postgres_server", "atomic"),
        ("postgres_server", "complete"),
        ("other_postgres_server", "atomic.threaded"),
        ("other_postgres_server", "prepare"),
    ],
)
async def test_the_next_worker_does_not_wait_for_what_a_stopped_one_has_locked(
    server_url: str, tmp_path: Path, kind: str
) -> None:
    database = PostgresDatabase(server_url)
    ledger = PostgresLedger(server_url)
    await database.run_async(database.store.schema.identify(new_id()))
    workshop = Workshop(database, ledger)
    try:
        job_id = await workshop.start_one(kind)
        with working(tmp_path, server_url, "first") as first:
            await until(lambda: bool(list(tmp_path.glob("began-1-*"))))
            first.send_signal(signal.SIGSTOP)
            with working(tmp_path, server_url, "second") as second:
                # The first is stopped all the while: with its transaction alive, the second could not write.
                await until(lambda: ledger.state(job_id) == "completed")
                (tmp_path / "go").touch()
                first.send_signal(signal.SIGCONT)
                log = tmp_path / "first"
                # Whichever comes first, the heartbeat or the end of the handler, it is a loss and not a failure.
                await until(lambda: bool(re.search("lease_lost|write_refused", log.read_text())))
                await asyncio.to_thread(stop, first)
                await asyncio.to_thread(stop, second)
        history = [each.kind for each in await workshop.attempts(job_id)]
        assert history == ["reap"]
        assert (await workshop.job(job_id)).attempt == 2
        with psycopg.connect(server_url) as connection:
            assert connection.execute("select balance from account").fetchall() == [(1,)]
        said = log.read_text()
        assert "unreachable" not in said, said
        assert "job_retried" not in said, said
        assert "job_failed" not in said, said
    finally:
        await workshop.close()
        await database.close_async()
        ledger.close()
