"""Durable functions across a failover: what the standby had not received of a step is lost whole, and done again."""

import asyncio
import signal
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.steps import StepRecord
from tests.chaos.standby import Pair
from tests.support.until import until
from tests.support.worker_process import worker_process

APPLICATION = """
import asyncio
from pathlib import Path

from holdfast import Holdfast, Job

app = Holdfast()

def note(text):
    with open("did", "a") as log:
        log.write(f"{text}\\n")

async def plain(number: int) -> int:
    note("plain")
    return number

async def atomic(tx, number: int) -> int:
    note("atomic")
    await tx.execute("insert into reserved values (%s)", [number])
    return number

async def hold() -> None:
    note("hold")
    while not Path("go").exists():
        await asyncio.sleep(0.02)

@app.job("order")
async def order(job: Job[None]) -> int:
    await job.step("first", plain, 1)
    while not Path("alone").exists():
        await asyncio.sleep(0.02)
    paid = await job.step("plain", plain, 2)
    held = await job.step("atomic", atomic, 3, atomic=True)
    await job.step("hold", hold)
    return paid + held
"""


async def cut_off(pair: Pair) -> None:
    """Have the primary go on without its standby, which hears of nothing more."""
    with psycopg.connect(pair.primary.url, autocommit=True) as primary:
        primary.execute("alter system set synchronous_standby_names = ''")
        primary.execute("select pg_reload_conf()")
    with psycopg.connect(pair.standby.url, autocommit=True) as standby:
        standby.execute("alter system set primary_conninfo = ''")
        standby.execute("select pg_reload_conf()")
    await until(lambda: pair.ask("select from pg_stat_replication") == [])


def steps(app: Holdfast, id: str) -> dict[str, StepRecord]:
    """Read what is recorded."""
    return {
        str(each.id): each for each in app.database.read(app.database.store.steps.of_jobs([id]))
    }


@pytest.mark.parametrize("standby", ["asynchronous", "synchronous"])
async def test_a_step_and_its_rows_survive_a_failover_or_are_lost_together(
    standby: str, pair: Pair, app: Holdfast, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    did = tmp_path / "did"
    did.touch()
    is_lost = standby == "asynchronous"
    settings = {"HOLDFAST_URL": pair.url}
    if is_lost:
        settings["OUTBOX_LEASE_DURATION_MS"] = "3000"
    with psycopg.connect(pair.primary.url, autocommit=True) as primary:
        primary.execute("create table reserved (number integer)")
    with app.transaction() as tx:
        id = str(app.start(tx, "order", None).id)
    with ExitStack() as stack:
        first = stack.enter_context(worker_process(tmp_path, "first", "shop:app", **settings))
        await until(lambda: "first" in steps(app, id))
        if is_lost:
            await cut_off(pair)
        (tmp_path / "alone").touch()
        await until(lambda: "hold" in did.read_text())
        assert set(steps(app, id)) == {"first", "plain", "atomic"}
        if is_lost:
            first.send_signal(signal.SIGKILL)
            await asyncio.to_thread(first.wait)
        await asyncio.to_thread(pair.fail_over)
        promoted = stack.enter_context(closing(Holdfast(pair.url, open_types=True)))
        kept = {"first"} if is_lost else {"first", "plain", "atomic"}
        assert set(steps(promoted, id)) == kept
        (tmp_path / "go").touch()
        if is_lost:
            stack.enter_context(worker_process(tmp_path, "second", "shop:app", **settings))
        await until(lambda: promoted.jobs.get(id).state == "completed")
        assert promoted.jobs.get(id).output == 5
        assert set(steps(promoted, id)) == {"first", "plain", "atomic", "hold"}
        with psycopg.connect(pair.standby.url, autocommit=True) as server:
            assert server.execute("select number from reserved").fetchall() == [(3,)]
    again = ["plain", "atomic", "hold"] if is_lost else []
    assert did.read_text().split() == ["plain", "plain", "atomic", "hold", *again]
