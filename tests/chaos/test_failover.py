"""A server whose commits wait for a standby: nothing is granted or acknowledged that the standby has not got."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, errors
from holdfast.storage.postgres.database import PostgresDatabase
from tests.chaos.test_lost_claims import claim_on
from tests.support.installation import embedded_binaries
from tests.support.postgres import StartPostgres
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess
from tests.support.until import SLOWNESS, until

APPLICATION = """
import os
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("work")
async def work(job: Job[int]) -> None:
    with open("started", "a") as log:
        log.write(f"{job.input}\\n")
"""
FOLLOWERS = "select sync_state from pg_stat_replication"
WAITING = (
    "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = any (%s)"
)
JOBS = 20


class Pair:
    """A primary and its synchronous standby."""

    def __init__(self, primary: PostgresProcess, standby: PostgresProcess) -> None:
        self.primary = primary
        self.standby = standby

    def ask(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask the primary."""
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            return connection.execute(query, parameters or None).fetchall()

    async def follow(self) -> None:
        """Wait until commits wait for the standby, and it is there."""
        await until(lambda: self.ask(FOLLOWERS) == [("sync",)])

    async def waits(self, *purposes: str) -> int:
        """Wait for a session of ours that waits for the standby; return its process."""
        names = [f"holdfast {each}" for each in purposes]
        await until(lambda: self.ask(WAITING, names))
        return int(self.ask(WAITING, names)[0][0])

    def fail_over(self) -> None:
        """The primary is gone for good, and the standby takes its place."""
        self.primary.stop("kill")
        self.standby.restart()
        with psycopg.connect(self.standby.url, autocommit=True) as connection:
            assert connection.execute("select pg_promote()").fetchone() == (True,)
            connection.execute("alter system set synchronous_standby_names = ''")
            connection.execute("select pg_reload_conf()")


@pytest.fixture
async def pair(private_postgres: StartPostgres) -> Any:
    """A server whose commits wait for its standby."""
    primary = private_postgres()
    standby = PostgresProcess(embedded_binaries(), None, QUICK_LOGIN_ROUNDS, primary)
    with standby, psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("alter system set synchronous_standby_names = '*'")
        connection.execute("select pg_reload_conf()")
        servers = Pair(primary, standby)
        await servers.follow()
        yield servers


@contextmanager
def working(folder: Path, url: str, **settings: str) -> Iterator[None]:
    """Run `holdfast worker` on a server."""
    (folder / "shop.py").write_text(APPLICATION)
    (folder / "started").touch()
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker", "shop:app"],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOLDFAST_URL": url, "PYTHONPATH": ":".join(sys.path)}
            | settings,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def started(folder: Path) -> list[str]:
    return (folder / "started").read_text().split()


@pytest.fixture
def app(pair: Pair) -> Iterator[Holdfast]:
    made = Holdfast(pair.primary.url, open_types=True)
    made.migrate()
    yield made
    made.close()


def start_all(app: Holdfast, delay_s: float = 0, jobs: int = JOBS) -> None:
    with app.transaction() as tx:
        app.start_many(tx, "work", list(range(jobs)), after=delay_s)


async def test_a_primary_without_its_standby_grants_no_job(
    pair: Pair, app: Holdfast, tmp_path: Path
) -> None:
    with working(tmp_path, pair.primary.url):
        await until(lambda: pair.ask("select from holdfast.worker"))
        await asyncio.to_thread(start_all, app, 2 * SLOWNESS)
        pair.standby.stop("immediate")
        await pair.waits("claim")
        assert started(tmp_path) == []
        pair.standby.start()
        await until(lambda: len(started(tmp_path)) == JOBS)
    assert sorted(map(int, started(tmp_path))) == list(range(JOBS))


async def test_a_claim_on_a_primary_that_is_lost_is_none(pair: Pair, app: Holdfast) -> None:
    await asyncio.to_thread(start_all, app, 0, 2)
    pair.standby.stop("immediate")
    database = app.database
    assert isinstance(database, PostgresDatabase)
    link = database.link("claim", 300)
    with pytest.raises(errors.DatabaseUnreachable):
        await claim_on(link, database, limit=1)
    # The row of the first stays locked by the commit that waits. A lazy claim is granted all the same.
    assert (await claim_on(link, database, "lazy")).attempt == 1
    await link.close()


async def test_a_repeated_start_is_acknowledged_only_when_it_would_survive(
    pair: Pair, app: Holdfast
) -> None:
    id = app.new_id()
    acknowledged: list[str] = []

    def start(app: Holdfast) -> None:
        try:
            with app.transaction() as tx:
                app.start(tx, "work", 1, id=id)
        except errors.HoldfastError:
            return
        acknowledged.append("start")

    def ask(app: Holdfast) -> None:
        try:
            app.chains.get(id)
        except errors.HoldfastError:
            return
        acknowledged.append("get")

    pair.standby.stop("immediate")
    first = threading.Thread(target=start, args=[app])
    first.start()
    cut = await pair.waits("client")
    pair.ask("select pg_terminate_backend(%s)", cut)
    await asyncio.to_thread(first.join)
    assert pair.ask("select count(*) from holdfast.job where id = %s", id) == [(1,)]

    others = [Holdfast(pair.primary.url, open_types=True) for _ in range(2)]
    repeats = [
        threading.Thread(target=target, args=[other])
        for target, other in zip((start, ask), others, strict=True)
    ]
    for each in repeats:
        each.start()
    await until(lambda: len(pair.ask(WAITING, ["holdfast client"])) == 2)
    assert acknowledged == []
    pair.fail_over()
    for each in repeats:
        await asyncio.to_thread(each.join)
    assert acknowledged == []
    with psycopg.connect(pair.standby.url) as connection:
        assert connection.execute("select count(*) from holdfast.job").fetchone() == (0,)
    for other in others:
        other.close()


async def test_a_repeated_start_is_answered_at_once_while_the_standby_is_there(
    pair: Pair, app: Holdfast
) -> None:
    id = app.new_id()
    for expected in (False, True):
        with app.transaction() as tx:
            assert app.start(tx, "work", 1, id=id).deduplicated is expected
    assert app.chains.get(id).id == id
