"""The doctor on real databases: a healthy one, a neglected one, one without a schema, one that does not answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from holdfast.core.cycle import NewCycle, NewRun
from holdfast.core.records import Claim, LeaseClass, NewJob, Probe
from holdfast.core.subscriptions import Subscription
from holdfast.core.worker_presence import WorkerSign
from holdfast.notify.local import NullNotifier
from holdfast.scheduler.doctor import Finding
from holdfast.scheduler.doctor.checks import fix_problems, run_checks
from holdfast.scheduler.runner import TICK
from holdfast.settings import read_settings
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import load_migrations
from holdfast.storage.operation import Op
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
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


async def _start(database: Database, type: str, **fields: Any) -> None:
    job_id = new_id()
    job = NewJob(job_id, job_id, type, "{}")
    await database.run_async(database.store.jobs.insert([job], **fields))


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


async def test_jobs_without_a_worker_or_with_the_wrong_one_are_problems(
    database: Database,
) -> None:
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
