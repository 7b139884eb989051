"""A server's clock is set back, or jumps ahead, under the real commands: nothing waits, nothing runs twice."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.records import DEFAULT_PRIORITY, Claim, LeaseClass, Probe
from holdfast.settings import load_settings
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.worker.plain_claims import START
from holdfast.worker.reaper import reap_once
from tests.cli.processes import Command
from tests.support.links import DisturbedDatabase, DisturbedLink
from tests.support.process import PostgresProcess
from tests.support.until import PATIENCE_S, wait_until
from tests.support.wrong_clock import WrongClock, serve_with_clock
from tests.worker.faults import Faults

T = TypeVar("T")

APPLICATION = """
import asyncio, os
from holdfast import Holdfast, Job, Retry, Snooze

app = Holdfast()

@app.job("plain")
async def plain(job: Job[None]) -> None:
    pass

@app.job("retried", retry=Retry(base="5s", cap="5s", jitter="0s"))
async def retried(job: Job[None]) -> None:
    if job.attempt == 1:
        raise RuntimeError("not yet")

@app.job("snoozed")
async def snoozed(job: Job[None]) -> Snooze:
    return Snooze("20m")

@app.job("sleeping")
async def sleeping(job: Job[None]) -> None:
    await job.sleep("20m")

@app.job("slow")
async def slow(job: Job[None]) -> None:
    with open("started", "a") as log:
        log.write("slow\\n")
    if len(open("started").readlines()) == 1:
        await asyncio.Event().wait()

@app.job("long")
async def long(job: Job[None]) -> None:
    with open("started", "a") as log:
        log.write("long\\n")
    await asyncio.sleep(10)  # several heartbeats and reapers go by, whatever the clock says meanwhile

@app.job("watched")
async def watched(job: Job[None]) -> None:
    with open("started", "a") as log:
        log.write("watched\\n")
    while not os.path.exists("finish"):
        await asyncio.sleep(0.05)
"""
HOUR = 3_600
SETTINGS = {"OUTBOX_REAPER_INTERVAL_MS": "1000", "WORKER_SHUTDOWN_TIMEOUT_MS": "1000"}
RETURNED = "select count(*) from holdfast.worker where back_at is not null"
"""The workers that have beaten since the clock jumped."""
SLEEPS = "select extract(epoch from until - clock_timestamp())::float8 from holdfast.step"
STATES = "select type, state, attempt from holdfast.jobs order by type"
WAITS = (
    "select type, extract(epoch from available_at - clock_timestamp())::float8 from holdfast.queue"
)


class Rig:
    """A server with a clock that can be set, and the commands that use it."""

    def __init__(self, server: PostgresProcess, clock: WrongClock, folder: Path) -> None:
        self.clock = clock
        self._folder = folder
        self.url = server.url
        (folder / "shop.py").write_text(APPLICATION)

    def start(self, *types: str, **options: Any) -> None:
        """Start a job of each type."""
        with closing(Holdfast(self.url, open_types=True)) as app, app.transaction() as tx:
            for each in types:
                app.start(tx, each, None, **options)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the server."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def states(self) -> dict[str, str]:
        """Return the state of each type's job."""
        return {type: state for type, state, _ in self.ask(STATES)}

    def waits(self) -> dict[str, float]:
        """Return how many seconds from now each live job is due, by the server's clock."""
        return dict(self.ask(WAITS))

    def wait_until(self, happened: Callable[[], object]) -> None:
        """Wait for what processes bring about."""
        wait_until(happened, lambda: self.ask(STATES))

    @contextmanager
    def worker(self, lease_ms: int = 12_000) -> Iterator[Command]:
        """Run `holdfast worker`, and stop it as a service manager does."""
        with self.command("worker", "shop:app", lease_ms=lease_ms) as running:
            yield running
            running.process.terminate()
            assert running.process.wait(PATIENCE_S) == 0

    def command(self, *words: str, lease_ms: int = 12_000) -> Command:
        """Run a command."""
        settings = {**SETTINGS, "OUTBOX_LEASE_DURATION_MS": str(lease_ms)}
        return Command(*words, cwd=self._folder, env={"HOLDFAST_URL": self.url, **settings})

    def finish(self) -> None:
        """End the handlers that wait for it."""
        (self._folder / "finish").touch()

    def started(self) -> list[str]:
        """Return the calls of the handlers that take their time."""
        file = self._folder / "started"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """One on a server of the test's own."""
    # Root's server runs as nobody, who may not look into pytest's folders.
    with tempfile.TemporaryDirectory(prefix="holdfast-clock-") as folder:
        Path(folder).chmod(0o755)
        with serve_with_clock(Path(folder)) as (server, clock):
            yield Rig(server, clock, tmp_path)


def test_what_a_clock_that_ran_ahead_has_dated_does_not_wait_for_that_hour(rig: Rig) -> None:
    rig.clock.set(HOUR)
    rig.start("retried", "snoozed", "slow", "sleeping")
    with rig.worker():
        rig.wait_until(lambda: rig.started() and rig.states()["retried"] == "pending")
        rig.wait_until(lambda: rig.states()["snoozed"] == "pending" and rig.ask(SLEEPS) != [])
    rig.start("plain")
    rig.start("plain", at=datetime.now(UTC) + timedelta(minutes=30))
    rig.clock.set(0)
    assert min(rig.waits().values()) > HOUR - PATIENCE_S, "all of it is dated by the old clock"

    with rig.command("doctor", "--app", "shop:app") as doctor:
        said, _ = doctor.process.communicate(timeout=PATIENCE_S)
    assert "ahead of the database's clock" in said
    assert "the clock was set back" in said

    with rig.worker():
        rig.wait_until(lambda: len(rig.waits()) == 3)
    states = [row[:2] for row in rig.ask(STATES)]
    assert states == [
        ("plain", "completed"),
        ("plain", "pending"),
        ("retried", "completed"),
        ("sleeping", "pending"),
        ("slow", "completed"),
        ("snoozed", "pending"),
    ]
    assert rig.started() == ["slow", "slow"], "released, and run again"
    waits = rig.waits()
    assert 29 * 60 - PATIENCE_S < waits["plain"] <= 30 * 60, (
        "not before the time it was planned for"
    )
    assert 18 * 60 < waits["snoozed"] <= 21 * 60
    ((sleeps,),) = rig.ask(SLEEPS)
    assert 18 * 60 < waits["sleeping"] <= 21 * 60
    assert 18 * 60 < sleeps <= 21 * 60


def test_a_worker_that_sees_the_clock_set_back_runs_on(rig: Rig) -> None:
    rig.clock.set(HOUR)
    with rig.worker():
        rig.start("snoozed", "long")
        rig.wait_until(lambda: rig.started() and rig.states()["snoozed"] == "pending")
        with rig.command("types", "pause", "plain", "--yes") as pause:
            assert pause.process.wait(PATIENCE_S) == 0
        rig.start("plain")
        rig.clock.set(0)
        with rig.command("types", "resume", "plain", "--yes") as resume:
            assert resume.process.wait(PATIENCE_S) == 0
        rig.wait_until(lambda: rig.states()["plain"] == rig.states()["long"] == "completed")
    assert rig.started() == ["long"]
    assert 18 * 60 < rig.waits()["snoozed"] <= 21 * 60


class JumpingDatabase(DisturbedDatabase):
    """One whose clock jumps ahead between the reaper's look at the fleet and its statement."""

    def __init__(self, database: Database, clock: WrongClock) -> None:
        super().__init__(database, Faults())
        self._clock = clock

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> DisturbedLink:
        link, clock = super().link(purpose, statement_timeout_ms), self._clock

        class JumpingLink(DisturbedLink):
            async def run_atomic(self, op: Op[T]) -> T:
                clock.set(HOUR)
                return await super().run_atomic(op)

        return JumpingLink(link, Faults())


def test_what_expires_by_a_jump_after_the_reapers_look_is_not_taken_back(rig: Rig) -> None:
    rig.start("plain")
    with closing(Holdfast(rig.url, open_types=True)) as app:
        database = app.database
        token = new_id()
        probe = Probe("plain", DEFAULT_PRIORITY, token, 1, *START)
        lease = LeaseClass(token, 60_000, 25, 100, 100)
        database.run(database.store.jobs.claim(Claim("there", 1, (probe,), (lease,))))
        jumping: Any = JumpingDatabase(database, rig.clock)
        assert asyncio.run(reap_once(jumping, load_settings({}), lambda report: None)) == 0
    assert rig.states() == {"plain": "running"}


def test_a_clock_that_jumps_ahead_runs_nothing_twice(rig: Rig) -> None:
    # Those whose leases are over by the clock get half an interval of their heartbeat more to renew them: 6 s.
    with rig.worker(lease_ms=48_000), rig.worker(lease_ms=48_000):
        # A worker that has not said yet that it lives cannot be expected back.
        rig.wait_until(lambda: rig.ask("select count(*) from holdfast.worker") == [(2,)])
        rig.start("watched")
        rig.wait_until(rig.started)
        rig.clock.set(HOUR)
        # Until then, the reaper of the other one looks every second.
        rig.wait_until(lambda: rig.ask(RETURNED) == [(2,)])
        rig.finish()
        rig.wait_until(lambda: rig.states()["watched"] == "completed")
    assert rig.started() == ["watched"]
    assert rig.ask("select attempts, crashes from holdfast.outcome") == [(1, 0)]
