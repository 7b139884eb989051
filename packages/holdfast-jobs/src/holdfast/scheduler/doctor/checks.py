"""Checks the settings, then the schema, the fleet and the database, and fixes what is safe to fix automatically."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from holdfast.commands.retention import ages_of, read_progress
from holdfast.core.cycle import CycleSpec
from holdfast.core.duration import format_span, pluralize
from holdfast.core.errors import ConfigError, HoldfastError
from holdfast.core.lease import Lease
from holdfast.core.registry import JobType
from holdfast.core.statistics import RetentionProgress
from holdfast.extensions import import_name, merge, rows
from holdfast.notify.base import Notifier
from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.scheduler.doctor.declared_schema import newest_version
from holdfast.scheduler.doctor.fleet import check_fleet, read_fleet
from holdfast.scheduler.doctor.limit_checks import check_limits, read_limit_state
from holdfast.scheduler.doctor.sqlite import check_sqlite
from holdfast.settings import (
    Settings,
    check_leases,
    effective_options,
    timings_under,
    unknown_variables,
)
from holdfast.storage.database import Database
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.reaper import reap_once

READ_TIMEOUT_MS = 10_000

Owners = Sequence[JobType | CycleSpec]

MANY_OLD = 10_000
"""Fewer old jobs than this may be waiting for the next pass of retention, or be kept for a reason."""

DECLARED = frozenset({"indexes", "table_options"})
"""The checks that compare with the migrations of this version."""

FIXABLE = frozenset({"schema", "expired_leases"})
"""The checks whose problems `fix_problems` fixes."""


class ServerFacts(NamedTuple):
    """What the database says of itself and of its roles, as documents, and what an extension knows of its hosts."""

    document: str
    replication: Any
    privileges: str = "{}"


CheckServer: TypeAlias = Callable[[ServerFacts, Settings, bool, int], list[Finding]]
"""Checks what a server says of itself; given whether a pooler is before it, and how many workers live."""


async def read_server(database: Database) -> ServerFacts:
    """Ask the database and its hosts about themselves."""
    stats = database.store.server_stats
    document = await database.read_async(stats.document(), READ_TIMEOUT_MS)
    privileges = await database.read_async(stats.privileges(), READ_TIMEOUT_MS)
    ask = merge("replication").get(database.store.dialect)
    replication = None if ask is None else await import_name(ask)(database)
    return ServerFacts(document, replication, privileges)


async def run_checks(
    database: Database, settings: Settings, owners: Owners = (), server: ServerFacts | None = None
) -> list[Finding]:
    """Check everything; what cannot be read becomes a finding. Nothing is written.

    `owners` are the application's, if it is given. Leases are theirs, and those that the live workers say their types
    have. The server is asked about itself, unless its answers are given.
    """
    schema, is_newer = await _check_schema(database)
    about_database = [schema]
    known: Mapping[str, Lease] = {}
    if schema.verdict == "ok":
        try:
            fleet = await database.read_async(read_fleet(database.store), READ_TIMEOUT_MS)
            known = fleet.leases_in_code
            about_database += check_fleet(fleet, settings.outbox.reaper_interval_ms)
            limits = await database.read_async(read_limit_state(database.store), READ_TIMEOUT_MS)
            about_database += check_limits(limits, fleet.workers)
            progress = await database.read_async(
                read_progress(database.store, ages_of(settings)), READ_TIMEOUT_MS
            )
            about_database.append(check_backlog(progress))
            for check in rows("checks"):
                about_database += await _run_check(database, check)
            server = server or await read_server(database)
            found = await _check_database(database, server, settings, len(fleet.workers))
            # A newer version may have replaced what this one declares.
            about_database += [each for each in found if not is_newer or each.check not in DECLARED]
        except HoldfastError as error:
            text = "the check itself failed"
            about_database.append(problem("database", error.message, text, error.help))
    types = [each for each in owners if isinstance(each, JobType)]
    own = {each.name: each.lease for each in types if each.lease is not None}
    return [*check_configuration(settings, {**known, **own}, owners), *about_database]


async def _run_check(
    database: Database, check: Callable[[Store], Op[list[Finding]]]
) -> list[Finding]:
    """Run a check of an extension; what it raises is a finding, too."""
    try:
        return await database.read_async(check(database.store), READ_TIMEOUT_MS)
    except HoldfastError:
        raise
    except Exception as error:
        name = f"{check.__module__}.{check.__name__}"
        return [problem(name, f"{type(error).__name__}: {error}", *_CHECK_FAILED)]


_CHECK_FAILED = ("the check itself failed", "upgrade the extension, or tell its authors")


async def _check_schema(database: Database) -> tuple[Finding, bool]:
    """Check the version of the schema; return whether it is newer than this code, too."""
    try:
        applied = await database.check_async()
    except HoldfastError as error:
        return problem("schema", error.message, "nothing else can be checked", error.help), False
    version = max(each.version for each in applied)
    is_newer = version > newest_version(database.store.dialect)
    return ok("schema", f"version {version} at {database.url}"), is_newer


async def _check_database(
    database: Database, server: ServerFacts, settings: Settings, workers: int
) -> list[Finding]:
    if database.store.dialect == "sqlite":
        return check_sqlite(server.document, database.url.removeprefix("sqlite:///"))
    target = merge("server_checks").get(database.store.dialect)
    if target is None:
        return [warning("server", "not checked", *_NO_SERVER_CHECKS)]
    check: CheckServer = import_name(target)
    # What fixes something names the schema that was looked at, which the application may have instead of the settings.
    own = replace(settings, holdfast=replace(settings.holdfast, schema=database.schema))
    return check(server, own, await database.is_pooled(), workers)


_NO_SERVER_CHECKS = (
    "its checks are a package of their own",
    'pip install "holdfast-jobs[postgres]"',
)


async def fix_problems(
    database: Database,
    settings: Settings,
    findings: Sequence[Finding],
    notifier: Notifier,
    on_wait: Callable[[float], None] = lambda seconds: None,
) -> list[str]:
    """Fix what is safe to fix, hint workers about jobs that are due again, and return what was done."""
    wrong = {each.check for each in findings if each.verdict != "ok"} & FIXABLE
    done: list[str] = []
    if "schema" in wrong:
        applied = await asyncio.to_thread(database.migrate)
        done.append(f"applied {pluralize(len(applied), 'migration')}")
    if "expired_leases" in wrong:
        count = await reap_once(
            database, settings, lambda report: notifier.send(report.hints()), on_wait
        )
        done.append(f"recovered {pluralize(count, 'job')} from expired leases")
    return done


def check_configuration(
    settings: Settings, leases: Mapping[str, Lease], owners: Owners = ()
) -> list[Finding]:
    """Check the settings against each other, and against the job types and cycles of an application."""
    return [
        _check_names(settings, owners),
        _check_timing(settings, leases),
        _check_retention(settings),
        _check_runners(settings, [each.name for each in owners if isinstance(each, CycleSpec)]),
    ]


def _check_names(settings: Settings, owners: Owners) -> Finding:
    warnings = unknown_variables(settings)
    unknown = [each.message.split()[0] for each in warnings]
    if not unknown:
        used = [f"{each.name}={each.value} ({each.origin})" for each in effective_options(owners)]
        return ok("variables", "; ".join([f"{len(settings.given)} set, all known", *used]))
    return warning(
        "variables",
        f"unknown: {', '.join(unknown)}",
        "a misspelled name leaves its setting at the default",
        "; ".join(f"{each.message.split()[0]}: {each.help}" for each in warnings),
    )


def _check_timing(settings: Settings, leases: Mapping[str, Lease]) -> Finding:
    all_ms = {"default": settings.outbox.lease_duration_ms}
    all_ms |= {f"of {name}": lease.duration_ms for name, lease in leases.items()}
    whose, smallest_ms = min(all_ms.items(), key=lambda each: each[1])
    heartbeat, shutdown, reaper = timings_under(settings, smallest_ms)
    measured = (
        f"smallest lease {smallest_ms} ms ({whose}); under it heartbeat {heartbeat.ms} ms, "
        f"shutdown {shutdown.ms} ms, reaper every {reaper.ms} ms"
    )
    try:
        check_leases(settings, leases)
    except ConfigError as error:
        return problem("timing", measured, error.message, error.help)
    return ok("timing", measured)


def _check_retention(settings: Settings) -> Finding:
    days = settings.holdfast.retention_days
    if days:
        return ok("retention", f"finished chains are kept for {days} days")
    return warning(
        "retention",
        "finished chains are kept forever",
        "tables grow without limit, and backups with them",
        "set HOLDFAST_RETENTION_DAYS=30",
    )


def check_backlog(progress: RetentionProgress | None) -> Finding:
    """Check how much retention has left to remove."""
    if progress is None:
        return ok("retention_backlog", "retention removes no chains here")
    left_s, jobs = progress.seconds_left, f"about {progress.backlog:,} jobs"
    if progress.backlog < MANY_OLD:
        return ok("retention_backlog", f"{jobs} to be removed")
    if left_s is not None:
        rate = f"{progress.per_second:,.0f} per second"
        return ok(
            "retention_backlog",
            f"{jobs} to be removed, {rate}: {format_span(int(left_s * 1e6))} left",
        )
    return warning(
        "retention_backlog",
        f"{jobs} past their retention, none removed in ten minutes",
        "no worker runs retention, or what is old is still needed by other jobs",
        "start a worker with retention among its runners: holdfast worker APP; holdfast config show",
    )


_WITHOUT = {
    "outbox": "these workers run no jobs",
    "retention": "unless other workers remove them, finished chains stay and tables grow without limit",
}


def _check_runners(settings: Settings, cycles: Sequence[str]) -> Finding:
    names = settings.worker.tick_runners
    if names is None:
        return ok("runners", "outbox, every cycle, retention")
    missing = [name for name in (*_WITHOUT, *cycles) if name not in names]
    if not missing:
        return ok("runners", ", ".join(names))
    return warning(
        "runners",
        f"WORKER_TICK_RUNNERS={','.join(names)} leaves out {' and '.join(missing)}",
        "; ".join(_WITHOUT.get(name, f"{name} does not run here") for name in missing),
        f"set WORKER_TICK_RUNNERS={','.join([*names, *missing])}, or unset it",
    )
