"""The doctor on real databases: a healthy one, a neglected one, one without a schema, one that does not answer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast.commands.signals import make_signal
from holdfast.core.cycle import NewCycle, NewRun
from holdfast.core.records import Claim, Ending, Finish, FinishKind, LeaseClass, NewJob, Probe
from holdfast.core.statistics import RetentionProgress
from holdfast.core.subscriptions import Subscription
from holdfast.core.worker_presence import WorkerSign
from holdfast.notify.local import NullNotifier
from holdfast.scheduler.doctor import Finding
from holdfast.scheduler.doctor.checks import check_backlog, fix_problems, run_checks
from holdfast.scheduler.runner import TICK
from holdfast.settings import read_settings
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import load_migrations
from holdfast.storage.operation import Op
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.cli.scene import Scene
from tests.support.durable import DurableScene
from tests.support.until import until

SETTINGS = read_settings({})
SILENT = NullNotifier()
FIRST = "00000000-0000-0000-0000-000000000000"


async def _found(database: Database) -> dict[str, Finding]:
    return {each.check: each for each in await run_checks(database, SETTINGS)}


async def _work(database: Database, version: str, *types: str) -> None:
    listed = msgspec.json.encode(types).decode()
    sign = WorkerSign(f"w-{version}", "w", "host", 1, version, 10, listed, "{}", None)
    await database.run_async(database.store.workers.sign(sign))


async def _start(database: Database, type: str, **fields: Any) -> str:
    job_id = new_id()
    job = NewJob(job_id, job_id, type, "{}")
    await database.run_async(database.store.jobs.insert([job], **fields))
    return job_id


async def test_a_healthy_database_has_only_good_findings_that_can_be_printed_as_json(
    database: Database,
) -> None:
    await _work(database, "0.1", "mail")
    findings = await run_checks(database, SETTINGS)
    assert [each for each in findings if each.verdict == "problem"] == []
    assert {"schema", "workers", "expired_leases", "timing"} <= {each.check for each in findings}
    assert json.loads(msgspec.json.encode(findings))[0]["check"] == "variables"


async def test_a_subscription_that_no_live_worker_handles_is_named_with_what_removes_it(
    database: Database,
) -> None:
    kept, gone = Subscription("order.placed", "charge"), Subscription("order.placed", "mail")
    await database.run_async(database.store.events.subscribe([kept, gone]))
    assert (await _found(database))["subscriptions"].verdict == "ok"
    await _work(database, "0.1", kept.job_type)
    found = (await _found(database))["subscriptions"]
    assert (found.verdict, found.measured) == ("warning", "order.placed/mail")
    assert "holdfast events unsubscribe order.placed mail" in found.fix
    await _work(database, "0.2", gone.job_type)
    assert (await _found(database))["subscriptions"].verdict == "ok"


async def test_jobs_without_a_worker_or_with_the_wrong_one_are_problems(database: Database) -> None:
    await _start(database, "mail")
    assert (await _found(database))["workers"].verdict == "problem"
    await _work(database, "0.1", "pdf")
    found = await _found(database)
    assert found["workers"].verdict == "ok"
    assert (found["unhandled_types"].verdict, found["unhandled_types"].measured) == (
        "problem",
        "mail",
    )
    await _work(database, "0.2", "mail")
    found = await _found(database)
    assert found["unhandled_types"].verdict == "ok"
    assert (found["versions"].verdict, found["versions"].measured) == ("warning", "0.1, 0.2")


async def test_leases_that_no_reaper_recovers_are_a_problem_that_can_be_fixed(
    database: Database,
) -> None:
    long_ago = await database.run_async(database.store.schema.clock()) - 3_600_000_000
    await _start(database, "mail", now=long_ago)
    token = new_id()
    probe = Probe("mail", 5, token, 10, 0, FIRST)
    claim = Claim("w-dead", 10, (probe,), (LeaseClass(token, 60_000, 25, 1_000, 5_000),))
    assert await database.run_async(database.store.jobs.claim(claim, long_ago))
    findings = await run_checks(database, SETTINGS)
    expired = next(each for each in findings if each.check == "expired_leases")
    assert (expired.verdict, expired.fix) == ("problem", "holdfast reap")
    done = await fix_problems(database, SETTINGS, findings, SILENT)
    assert done == ["recovered 1 job from expired leases"]
    assert (await _found(database))["expired_leases"].verdict == "ok"
    assert (
        await fix_problems(database, SETTINGS, await run_checks(database, SETTINGS), SILENT) == []
    )


async def test_an_expired_lease_that_holds_no_job_is_no_problem(database: Database) -> None:
    long_ago = await database.run_async(database.store.schema.clock()) - 3_600_000_000
    job_id = await _start(database, "mail", now=long_ago)
    token = new_id()
    lease = LeaseClass(token, 60_000, 25, 1_000, 5_000)
    claim = Claim("w-dead", 10, (Probe("mail", 5, token, 10, 0, FIRST),), (lease,))
    assert await database.run_async(database.store.jobs.claim(claim, long_ago))
    await database.run_async(database.store.jobs.end([Ending(job_id, "cancelled")]))
    found = (await _found(database))["expired_leases"]
    assert (found.verdict, found.measured[:27]) == ("ok", "0 jobs under expired leases")


async def test_a_database_without_a_schema_can_be_fixed(tmp_path: Any) -> None:
    database = SqliteDatabase(tmp_path / "new.db")
    findings = await run_checks(database, SETTINGS)
    assert findings[-1].check == "schema"
    assert findings[-1].verdict == "problem"
    assert await fix_problems(database, SETTINGS, findings, SILENT) == [
        f"applied {len(load_migrations('holdfast.storage.sqlite'))} migrations"
    ]
    assert (await _found(database))["schema"].verdict == "ok"
    await database.close_async()


async def test_a_server_that_does_not_answer_is_a_finding() -> None:
    database = PostgresDatabase("postgresql://nobody@127.0.0.1:1/nothing")
    findings = await run_checks(database, SETTINGS)
    assert (findings[-1].check, findings[-1].verdict) == ("schema", "problem")


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_direct_connection_is_not_taken_for_a_pooled_one(database: Database) -> None:
    assert (await _found(database))["pooler"].measured == "connected directly"


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_the_oldest_transaction_is_measured(database: Database) -> None:
    async with database.transaction_async() as tx:
        await tx.connection.execute("select pg_current_xact_id()")

        async def is_oldest() -> bool:
            """Transactions of others on the same server, begun before, end some time."""
            document = await database.read_async(database.store.server_stats.document())
            oldest = json.loads(document)["oldest"]
            return (oldest["who"], oldest["state"]) == ("holdfast client", "idle in transaction")

        await until(is_oldest)


async def test_a_cycle_whose_last_run_failed_is_named_however_many_ticks_ran_since(
    database: Database,
) -> None:
    store = database.store

    def fail_then_tick() -> Op[None]:
        yield from store.cycles.register([NewCycle("billing", "daily", "UTC", True, "last")])
        failed = NewRun(new_id(), "billing", "w-1", "2025-01-01")
        yield from store.runs.begin(failed)
        yield from store.runs.finish(failed.id, "failed", "{}", "ValueError: no")
        for _ in range(210):
            tick = NewRun(new_id(), TICK, "w-1")
            yield from store.runs.begin(tick)
            yield from store.runs.finish(tick.id, "completed", "{}")

    await database.run_async(fail_then_tick())
    found = (await _found(database))["cycles"]
    assert (found.verdict, found.measured) == ("warning", "billing: failed")
    assert "holdfast cycles run-now billing" in found.fix


Execute = Callable[[str], None]


@pytest.fixture
def execute(database: Database, request: pytest.FixtureRequest) -> Execute:
    """Execute statements as a person with the database's own tool would, one by one."""
    if isinstance(database, SqliteDatabase):
        path = database.path
        assert path is not None

        def execute(statements: str) -> None:
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript(statements)
    else:
        url: str = request.getfixturevalue("postgres_url")

        def execute(statements: str) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                for each in filter(None, map(str.strip, statements.split(";"))):
                    connection.execute(each.encode())

    return execute


async def test_a_dropped_index_is_a_problem_with_the_statements_that_build_it_again(
    database: Database, execute: Execute
) -> None:
    prefix = "holdfast_" if isinstance(database, SqliteDatabase) else "holdfast."
    names = [f"{prefix}{each}" for each in ("job_chain", "outcome_not_completed_id")]
    execute("".join(f"drop index {each};" for each in names))
    found = (await _found(database))["indexes"]
    execute(found.fix)
    shown = [each.removeprefix("holdfast.") for each in names]
    assert (found.verdict, found.measured) == ("problem", f"missing or invalid: {', '.join(shown)}")
    assert (await _found(database))["indexes"].verdict == "ok"


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("change", "measured"),
    [
        ("queue set (fillfactor = 100)", "queue: fillfactor=100"),
        ("lease reset (vacuum_truncate)", "lease: vacuum_truncate=unset"),
        ("outcome set (autovacuum_vacuum_scale_factor = 0.2)", "scale_factor=0.2"),
    ],
)
async def test_a_changed_table_option_is_named_with_what_sets_it_back(
    database: Database, execute: Execute, change: str, measured: str
) -> None:
    assert (await _found(database))["table_options"].verdict == "ok"
    execute(f"alter table holdfast.{change}")
    found = (await _found(database))["table_options"]
    execute(found.fix)
    assert found.verdict == "warning"
    assert measured in found.measured
    assert (await _found(database))["table_options"].verdict == "ok"


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("no", ["false", "off", "no", "0"])
async def test_autovacuum_that_is_off_for_a_table_is_found_however_it_was_written(
    database: Database, execute: Execute, no: str
) -> None:
    execute(f"alter table holdfast.queue set (autovacuum_enabled = {no})")
    found = (await _found(database))["autovacuum"]
    execute(found.fix or "alter table holdfast.queue reset (autovacuum_enabled)")
    assert (found.verdict, found.measured) == ("problem", "off for queue")
    assert (await _found(database))["autovacuum"].verdict == "ok"


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_what_fixes_something_names_the_schema_that_the_application_has(
    database: Database, postgres_url: str, execute: Execute
) -> None:
    own = PostgresDatabase(postgres_url, schema="jobs")
    own.migrate()
    execute("alter table jobs.queue set (autovacuum_enabled = false)")
    found = (await _found(own))["autovacuum"]
    assert found.fix == 'alter table "jobs".queue reset (autovacuum_enabled);'
    execute(found.fix)
    assert (await _found(own))["autovacuum"].verdict == "ok"
    await own.close_async()


async def _finish(
    database: Database, type: str, kind: FinishKind, error: str | None = None
) -> None:
    token = new_id()
    probe = Probe(type, 5, token, 1, 0, FIRST)
    claim = Claim("w", 1, (probe,), (LeaseClass(token, 60_000, 25, 1_000, 5_000),))
    (job,) = await database.run_async(database.store.jobs.claim(claim))
    finish = Finish(job.id, job.token, kind, "w", job.chain_id, error=error, delay_ms=60_000)
    await database.run_async(database.store.jobs.finish([finish]))


async def test_a_type_whose_attempts_keep_timing_out_is_named_with_what_gives_them_longer(
    database: Database,
) -> None:
    timed_out = "TimedOut: the attempt was stopped after 180 s"
    kinds: list[tuple[FinishKind, str]] = [
        ("fail", timed_out),
        ("retry", timed_out),
        ("fail", "ValueError: TimedOut: no"),
    ]
    for kind, error in kinds:
        await _start(database, "pdf")
        await _finish(database, "pdf", kind, error)
    assert (await _found(database))["type_timeouts"].verdict == "ok"
    await _start(database, "pdf")
    await _finish(database, "pdf", "fail", timed_out)
    found = (await _found(database))["type_timeouts"]
    assert (found.verdict, found.measured) == ("warning", "pdf: 3 attempts")
    assert "holdfast types set pdf --timeout 15m" in found.fix


async def test_due_jobs_that_live_workers_do_not_claim_are_a_problem(database: Database) -> None:
    now = await database.run_async(database.store.schema.clock())
    await _start(database, "mail", now=now - 180_000_000)
    await _start(database, "pdf")
    await _work(database, "0.1", "mail", "pdf")
    found = (await _found(database))["claims"]
    assert (found.verdict, found.measured) == ("problem", "mail")
    await database.run_async(database.store.workers.set_type("mail", paused=True))
    assert (await _found(database))["claims"].verdict == "ok"
    await database.run_async(database.store.workers.set_type("mail", paused=False))
    await _start(database, "mail")
    await _finish(database, "mail", "complete")
    assert (await _found(database))["claims"].verdict == "ok", "one of them was just done"


@pytest.mark.parametrize(
    ("progress", "verdict", "measured"),
    [
        (None, "ok", "retention removes no chains here"),
        (RetentionProgress(9_999, 0), "ok", "about 9,999 jobs to be removed"),
        (
            RetentionProgress(120_000, 1_000),
            "ok",
            "about 120,000 jobs to be removed, 1,000 per second: 2 min left",
        ),
        (
            RetentionProgress(120_000, 0),
            "warning",
            "about 120,000 jobs past their retention, none removed in ten minutes",
        ),
    ],
)
def test_the_backlog_of_retention_is_told_with_its_rate_and_its_end(
    progress: RetentionProgress | None, verdict: str, measured: str
) -> None:
    found = check_backlog(progress)
    assert (found.verdict, found.measured) == (verdict, measured)


async def test_the_backlog_of_retention_is_among_the_findings(database: Database) -> None:
    assert (await _found(database))["retention_backlog"].measured == "about 0 jobs to be removed"


async def test_functions_that_nothing_wakes_and_signals_that_nobody_wants_are_named(
    database: Database,
) -> None:
    scene = DurableScene(Scene(database))
    waiting = await asyncio.to_thread(scene.waiting, None)
    found = await _found(database)
    assert (found["functions"].verdict, found["signals"].verdict) == ("ok", "ok")
    job = await asyncio.to_thread(scene.begin)
    await asyncio.to_thread(scene.record, job, "charge")
    await asyncio.to_thread(scene.park, job)
    now = await database.run_async(database.store.schema.clock())
    for name, key, age_h in (("approved", 7, 30), ("approved", 8, 30), ("paid", None, 1)):
        sent = [make_signal(name, key, keep="30d")]
        append = database.store.signals.append(sent, now=now - age_h * 3_600_000_000)
        await database.run_async(append)
    found = await _found(database)
    stranded, unwanted = found["functions"], found["signals"]
    assert stranded.verdict == "problem"
    assert stranded.measured == f"1 function, the first is job {job.id} of order"
    assert f"holdfast jobs steps {job.id}" in stranded.fix
    assert waiting not in stranded.measured
    assert (unwanted.verdict, unwanted.measured) == ("warning", "1 signal: approved 8")
    assert "holdfast jobs list waiting:approved" in unwanted.fix
