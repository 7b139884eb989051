"""Schedules in processes that compete and are killed: each due time starts one job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.instants import Instant
from holdfast_bench.machine import cpu_seconds
from holdfast_bench.servers import session_seconds
from holdfast_schedules import add_schedules
from holdfast_schedules.schedule_store import SCHEDULES, MovedSchedule
from tests.support.until import SLOWNESS, until
from tests.support.warm_python import WarmProcess
from tests.support.worker_process import worker_process

APPLICATION = """
from holdfast import Holdfast, Job
from holdfast_schedules import add_schedules

app = Holdfast()
schedules = add_schedules(app)

@app.job("report.send")
def send(job: Job[int]) -> None:
    pass
"""

SETTLE_S, IDLE_S = 3.0, 20.0
COLUMNS = """type, schedule, zone, missed, overlap, jitter_ms, priority, sealed, next_at, created_at,
             changed_at"""
COPY = f"""insert into holdfast_schedule (name, input, {COLUMNS})
with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < %s)
select 'report:' || n, n, {COLUMNS} from numbers, holdfast_schedule where name = %s"""  # noqa: S608
"""Thousands of schedules like the first, in less time than it takes to set them one by one."""


@contextmanager
def working(folder: Path, url: str, name: str, batch: int) -> Iterator[WarmProcess]:
    """Have a worker at work; it does not outlive the block."""
    (folder / "shop.py").write_text(APPLICATION)
    variables = {"HOLDFAST_URL": url, "HOLDFAST_SCHEDULES_BATCH": str(batch)}
    with worker_process(folder, name, "shop:app", **variables) as process:
        yield process


class Fleet:
    """Schedules that are all due at one instant, and what was started for them."""

    def __init__(self, url: str, count: int) -> None:
        self.app = Holdfast(url, open_types=True)
        self.count, self.is_postgres = count, url.startswith("postgres")
        self.schedules = add_schedules(self.app)
        self.database = self.app.database
        self.names = [f"report:{number}" for number in range(count)]
        with self.app.transaction() as tx:
            first = self.schedules.set(tx, self.names[0], "report.send", 0, every="1h")
            tx.execute(self._sql(COPY), (count - 1, first.name))

    def _sql(self, text: str) -> str:
        """Write a statement for this database."""
        if not self.is_postgres:
            return text.replace("%s", "?")
        return text.replace("holdfast_", "holdfast.")

    def make_due(self, after_s: float) -> Instant:
        """Let all of them be due at once."""
        due = _now() + int(after_s * 1e6)
        moved = [MovedSchedule(name, due, due, None, None) for name in self.names]
        self.database.run(SCHEDULES.move(moved))
        return due

    def analyze(self) -> None:
        """Let the planner know of them, as it does soon by itself."""
        with self.app.transaction() as tx:
            tx.execute("analyze")

    def slots(self) -> int:
        """How many slots were decided."""
        with self.app.transaction() as tx:
            found = tx.execute(self._sql("select count(*) from holdfast_schedule_slot"))
            return int(found.fetchone()[0])

    def took_s(self, due: Instant) -> float:
        """How long after they were due the last one was started."""
        last = "select max(decided_at) from holdfast_schedule_slot"
        if self.is_postgres:
            last = last.replace("max(decided_at)", "holdfast_us(max(decided_at))")
        with self.app.transaction() as tx:
            return float((tx.execute(self._sql(last)).fetchone()[0] - due) / 1e6)

    def keys(self) -> list[str | None]:
        """The keys of the jobs that were started."""
        page = self.app.jobs.list(limit=1_000)
        found = [each.key for each in page]
        while page.next is not None:
            page = self.app.jobs.list(limit=1_000, after=page.next)
            found += [each.key for each in page]
        return found

    def check(self) -> None:
        """Each slot has started one job."""
        keys = self.keys()
        assert len(keys) == len(set(keys)) == self.count
        assert {str(each).partition("@")[0] for each in keys} == {
            f"schedule:{name}" for name in self.names
        }


def _now() -> Instant:
    return time.time_ns() // 1000


async def test_each_due_time_starts_one_job_though_a_process_is_killed_in_the_middle(
    url: str, tmp_path: Path
) -> None:
    fleet = Fleet(url, 400)
    with working(tmp_path, url, "left", 10), working(tmp_path, url, "right", 10) as right:
        await until(lambda: len(fleet.app.workers.list()) == 2)
        fleet.make_due(0.5)
        await until(lambda: fleet.slots() > fleet.count // 8)
        right.kill()
        await until(lambda: fleet.slots() == fleet.count)
    fleet.check()
    fleet.app.close()


@pytest.mark.lasting
@pytest.mark.parametrize("killed", [False, True])
async def test_ten_thousand_due_in_the_same_second_are_started_within_five(
    url: str, tmp_path: Path, killed: bool
) -> None:
    fleet = Fleet(url, 10_000)
    with working(tmp_path, url, "left", 1_000), working(tmp_path, url, "right", 1_000) as right:
        await until(lambda: len(fleet.app.workers.list()) == 2)
        # Later than their next look: nobody tells them, as a `set` does.
        due = fleet.make_due(6)
        if killed:
            await until(lambda: fleet.slots() > fleet.count // 8)
            right.kill()
        await until(lambda: fleet.slots() == fleet.count)
    took = fleet.took_s(due)
    print(f"{fleet.count} schedules, killed={killed}: {took:.2f} s after they were due")
    fleet.check()
    fleet.app.close()
    assert took < 5 * SLOWNESS


class IdleCost(NamedTuple):
    """What an idle worker takes in a minute: processor time of its own and of its sessions, and transactions."""

    worker_ms: float
    server_ms: float
    transactions: float

    def __str__(self) -> str:
        return f"{self.worker_ms:.0f} + {self.server_ms:.0f} ms CPU, {self.transactions:.0f} transactions a minute"


async def measure_idle(folder: Path, url: str, app: Holdfast) -> IdleCost:
    """Have a worker idle for a while; it looks at schedules ten times a second, 50 times as often as by default."""

    def spent() -> tuple[float, float, int]:
        sessions = session_seconds(url, "all_sessions") or {} if is_postgres else {}
        return cpu_seconds(process.pid), sum(sessions.values()), count_transactions(url)

    is_postgres = url.startswith("postgres")
    known = {each.id for each in app.workers.list()}
    (folder / "shop.py").write_text(APPLICATION)
    variables = {"HOLDFAST_URL": url, "HOLDFAST_SCHEDULES_POLL_MS": "100"}
    with worker_process(folder, "idle", "shop:app", **variables) as process:
        await until(lambda: {each.id for each in app.workers.list()} - known)
        await asyncio.sleep(SETTLE_S)
        before = spent()
        await asyncio.sleep(IDLE_S)
        worker_s, server_s, transactions = (
            (after - each) * 60 / IDLE_S for after, each in zip(spent(), before, strict=True)
        )
    return IdleCost(worker_s * 1000, server_s * 1000, transactions)


def count_transactions(url: str) -> int:
    """How many transactions a database had; on SQLite they are not counted."""
    if not url.startswith("postgres"):
        return 0
    with psycopg.connect(url, autocommit=True) as connection:
        (row,) = connection.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
        ).fetchall()
    return int(row[0])


@pytest.mark.lasting
async def test_a_hundred_thousand_schedules_cost_an_idle_worker_no_more_than_none(
    url: str, tmp_path: Path
) -> None:
    app = Holdfast(url, open_types=True)
    without = await measure_idle(tmp_path, url, app)
    fleet = Fleet(url, 100_000)
    fleet.analyze()
    within = await measure_idle(tmp_path, url, app)
    print(f"without schedules {without}; with {fleet.count:,}: {within}")
    began = time.perf_counter()
    for _ in range(100):
        (head,) = fleet.database.read(SCHEDULES.heads())
    each_ms = (time.perf_counter() - began) * 10
    print(f"a look at {fleet.count:,} schedules: {each_ms:.2f} ms")
    assert head.type == "report.send"
    fleet.app.close()
    app.close()
    assert each_ms < 20
    assert within.transactions <= without.transactions * 1.1 + 10
    # A look more or less, as the scheduler of the machine has it.
    assert within.worker_ms <= without.worker_ms * 1.25 + 100
    assert within.server_ms <= without.server_ms * 1.25 + 100
