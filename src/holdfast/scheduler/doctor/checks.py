"""Runs all checks that apply, and fixes what is safe to fix automatically."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from holdfast.core.errors import HoldfastError
from holdfast.core.lease import Lease
from holdfast.notify.base import Notifier
from holdfast.scheduler.doctor.configuration import Owners, check_configuration
from holdfast.scheduler.doctor.finding import Finding, ok, problem
from holdfast.scheduler.doctor.fleet import Fleet, check_fleet, read_fleet
from holdfast.scheduler.doctor.postgres import check_postgres
from holdfast.scheduler.doctor.sqlite import check_sqlite
from holdfast.settings import Settings
from holdfast.storage.database import Database
from holdfast.worker.reaper import reap_all

READ_TIMEOUT_MS = 10_000

FIXABLE = frozenset({"schema", "expired_leases"})
"""The checks whose problems `fix_problems` fixes."""


async def run_checks(
    database: Database,
    settings: Settings,
    leases: Mapping[str, Lease] | None = None,
    owners: Owners = (),
) -> list[Finding]:
    """Check everything; what cannot be read becomes a finding. Nothing is written."""
    findings = check_configuration(settings, leases or {}, owners)
    schema = await asyncio.to_thread(_check_schema, database)
    findings.append(schema)
    if schema.verdict != "ok":
        return findings
    try:
        fleet = await _read_fleet(database, settings)
        findings += check_fleet(fleet, settings.outbox.reaper_interval_ms)
        findings += await _check_database(database, settings, len(fleet.workers))
    except HoldfastError as error:
        findings.append(problem("database", error.message, "it could not be checked", error.help))
    return findings


def _check_schema(database: Database) -> Finding:
    try:
        applied = database.check()
    except HoldfastError as error:
        return problem("schema", error.message, "nothing else can be checked", error.help)
    return ok("schema", f"version {max(each.version for each in applied)} at {database.url}")


async def _read_fleet(database: Database, settings: Settings) -> Fleet:
    grace_ms = settings.outbox.lease_duration_ms
    return await database.read_async(read_fleet(database.store, grace_ms), READ_TIMEOUT_MS)


async def _check_database(database: Database, settings: Settings, workers: int) -> list[Finding]:
    document = await database.read_async(database.store.server_stats.document(), READ_TIMEOUT_MS)
    if database.store.dialect == "sqlite":
        return check_sqlite(document, database.url.removeprefix("sqlite:///"))
    is_pooled = await asyncio.to_thread(database.is_pooled)
    return check_postgres(document, settings, is_pooled, workers)


async def fix_problems(
    database: Database, settings: Settings, findings: Sequence[Finding], notifier: Notifier
) -> list[str]:
    """Fix what is safe to fix, hint workers about jobs that are due again, and return what was done."""
    wrong = {each.check for each in findings if each.verdict != "ok"} & FIXABLE
    done: list[str] = []
    if "schema" in wrong:
        applied = await asyncio.to_thread(database.migrate)
        done.append(f"applied {len(applied)} migrations")
    if "expired_leases" in wrong:
        own = settings.holdfast
        count = await reap_all(
            database.run_async,
            database.store,
            own.reaper_batch,
            own.poison_limit,
            lambda report: notifier.send(report.hints()),
        )
        done.append(f"recovered {count} jobs from expired leases")
    return done
