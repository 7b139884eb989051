"""Checks of a PostgreSQL server: what holds back vacuum, what endangers durability, and whether connections suffice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

import msgspec

from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.scheduler.doctor.checks import ServerFacts
from holdfast.scheduler.doctor.declared_schema import check_indexes, parse_options, read_declared
from holdfast.settings import Settings
from holdfast.storage.postgres.psycopg_internals import MISSING
from holdfast.storage.postgres.store import JIT_ABOVE_COST, OLDEST_VERSION, TESTED_VERSION
from holdfast.worker.worker import BACKGROUND_LINKS, LOOP_LINKS
from holdfast_postgres.failover import check_replication
from holdfast_postgres.grants import missing_grants

OLD_TRANSACTION_S = 300
VERY_OLD_TRANSACTION_S = 3_600
FEW_DEAD = 10_000
PURPOSES = (*LOOP_LINKS, *BACKGROUND_LINKS, "tick", "singleton", "hint sender", "hint listener")
"""Connections that a worker process may open in addition to its pool."""

LEAST = 2
"""Without so many connections, a worker runs no handler that needs a transaction."""

RESERVE = 5
"""Sessions to leave for commands, the dashboard and people."""

SHORT_IDLE_MS = 60_000
"""A handler's transaction may well be idle for less than this, while it calls other services."""

_HOT_TABLES = ("queue", "lease", "worker")


class LongTransaction(msgspec.Struct, frozen=True):
    """The oldest transaction that is open in a session."""

    pid: int
    who: str | None
    state: str
    seconds: int


class TableStats(msgspec.Struct, frozen=True):
    """Statistics of one of our tables."""

    name: str
    live: int
    dead: int
    bytes: int
    autovacuum: bool
    options: list[str]


class ServerSetting(msgspec.Struct, frozen=True):
    """A setting of the server, the database or the role."""

    name: str
    value: str
    source: str


class ServerStats(msgspec.Struct, frozen=True):
    """What the server reports about itself."""

    settings: dict[str, str]
    connections: int
    own: dict[str, int]
    oldest: LongTransaction | None
    prepared: int
    replication_slots: list[str]
    tables: list[TableStats]
    role: str
    database: str
    replica: bool
    jit: bool
    switched_off: list[ServerSetting]
    limits: list[ServerSetting]
    indexes: list[str]
    may_vacuum: bool = True
    timeline: int = 0


def check_server(
    server: ServerFacts, settings: Settings, is_pooled: bool, workers: int
) -> list[Finding]:
    """See `scheduler.doctor.checks.CheckServer`."""
    found = check_postgres(server.document, settings, is_pooled, workers)
    found.append(check_privileges(server.privileges))
    if server.replication is not None:
        found += check_replication(server.replication, settings)
    return found


def check_postgres(
    document: str, settings: Settings, is_pooled: bool, workers: int = 0
) -> list[Finding]:
    """Check what the server reported."""
    stats = msgspec.json.decode(document, type=ServerStats)
    schema = settings.holdfast.schema
    return [
        _check_version(stats.settings),
        _check_replica(stats),
        _check_jit(stats),
        _check_planner(stats),
        _check_limits(stats),
        _check_old_transaction(stats.oldest),
        _check_horizon(stats),
        _check_dead_tuples(stats.tables, schema),
        _check_autovacuum(stats, schema),
        _check_options("postgresql", {each.name: each.options for each in stats.tables}, schema),
        check_indexes("postgresql", stats.indexes, schema),
        _may_vacuum(stats.may_vacuum, schema),
        _check_durability(stats.settings),
        _check_fences(stats),
        _check_connections(stats, settings, 0 if is_pooled else workers),
        _check_pooler(settings, is_pooled),
        *check_driver(MISSING),
    ]


def check_privileges(document: str) -> Finding:
    """Check what roles were granted against what this version needs."""
    missing = missing_grants(document)
    if not missing:
        return ok("privileges", "no role lacks what this version needs")
    names = " ".join(f"{each.kind}={each.role}" for each in missing)
    return problem(
        "privileges",
        "; ".join(f"{each.role} ({each.kind}) lacks {each}" for each in missing),
        "what these roles run is rejected (HF046), for example the recovery of crashed workers' jobs",
        f"run `holdfast migrate` as the owner, or what `holdfast grants {names}` prints",
    )


def _check_version(settings: dict[str, str]) -> Finding:
    major = int(settings["server_version_num"]) // 10_000
    if OLDEST_VERSION <= major <= TESTED_VERSION:
        return ok("postgresql_version", settings["server_version"])
    text = f"Holdfast is tested on PostgreSQL {OLDEST_VERSION} to {TESTED_VERSION}"
    if major > TESTED_VERSION:
        return warning(
            "postgresql_version", settings["server_version"], text, "check for a newer Holdfast"
        )
    fix = f"upgrade the server to PostgreSQL {OLDEST_VERSION} or newer"
    return problem("postgresql_version", settings["server_version"], text, fix)


def check_driver(missing: Sequence[str]) -> list[Finding]:
    """Warn of a psycopg that lacks parts we would use, and is therefore used in a slower way."""
    if not missing:
        return []
    return [
        warning(
            "driver",
            f"psycopg {version('psycopg')} lacks {', '.join(missing)}",
            "transactions are slower: statements are not prepared, or each opens a connection of its own",
            "install a release that Holdfast is tested with: pip install 'psycopg[binary]<3.4'",
        )
    ]


def _check_replica(stats: ServerStats) -> Finding:
    if not stats.replica:
        return ok("primary", "connected to a primary")
    return problem(
        "primary",
        "connected to a replica (pg_is_in_recovery() is true)",
        "a replica is read-only: nothing can be started, claimed or completed here",
        "set HOLDFAST_URL to the primary; with several hosts add target_session_attrs=read-write",
    )


def _check_jit(stats: ServerStats) -> Finding:
    if not stats.jit:
        return ok("jit", "off on our connections")
    above = stats.settings["jit_above_cost"]
    measured = f"on, jit_above_cost={above}"
    text = "our startup options don't reach the server, so it decides itself which statements to compile"
    if float(above) < JIT_ABOVE_COST:
        text = f"{text}; below {JIT_ABOVE_COST} it may compile our statements on every call"
    return warning("jit", measured, text, f'alter role "{stats.role}" set jit = off;')


def _check_planner(stats: ServerStats) -> Finding:
    if not stats.switched_off:
        return ok("planner", "nothing is turned off")
    return warning(
        "planner",
        ", ".join(f"{each.name}=off ({_origin(each, stats)})" for each in stats.switched_off),
        "without these the server may read whole tables, or compile statements that look expensive",
        " ".join(_reset(each, stats) for each in stats.switched_off),
    )


def _check_limits(stats: ServerStats) -> Finding:
    short = [each for each in stats.limits if _is_short(each)]
    limits = [f"{each.name}={each.value} ({_origin(each, stats)})" for each in stats.limits]
    if not short:
        return ok(
            "timeouts", ", ".join(limits) or "none set for the role, the database or the server"
        )
    return warning(
        "timeouts",
        ", ".join(f"{each.name}={each.value} ({_origin(each, stats)})" for each in short),
        "callers' transactions that start jobs end at these limits, and behind a pooler that drops startup options "
        "so do migrations and the workers' own statements",
        " ".join(_reset(each, stats) for each in short),
    )


def _is_short(limit: ServerSetting) -> bool:
    """A limit on work always counts; one on idle time only if a handler may well be idle that long."""
    ms = _milliseconds(limit.value)
    return 0 < ms < (SHORT_IDLE_MS if limit.name.startswith("idle_") else float("inf"))


def _milliseconds(value: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value)
    if found is None:
        return 0
    unit = {"us": 0.001, "": 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    return float(found[1]) * unit.get(found[2], 1)


def _origin(setting: ServerSetting, stats: ServerStats) -> str:
    return {
        "user": f"role {stats.role}",
        "database": f"database {stats.database}",
        "database user": f"role {stats.role} in database {stats.database}",
    }.get(setting.source, setting.source)


def _reset(setting: ServerSetting, stats: ServerStats) -> str:
    """Return the statement that resets a setting."""
    role, database = f'"{stats.role}"', f'"{stats.database}"'
    return {
        "user": f"alter role {role} reset {setting.name};",
        "database": f"alter database {database} reset {setting.name};",
        "database user": f"alter role {role} in database {database} reset {setting.name};",
        "configuration file": f"alter system reset {setting.name}; select pg_reload_conf();",
    }.get(setting.source, f"remove {setting.name} from the server's {setting.source};")


def _check_old_transaction(oldest: LongTransaction | None) -> Finding:
    if oldest is None or oldest.seconds < OLD_TRANSACTION_S:
        return ok("old_transactions", f"oldest {oldest.seconds if oldest else 0} s")
    measured = f"pid {oldest.pid} ({oldest.who}, {oldest.state}) for {oldest.seconds} s"
    text = "an old transaction keeps vacuum from removing dead rows, so every table grows"
    fix = f"select pg_terminate_backend({oldest.pid});"
    if oldest.seconds < VERY_OLD_TRANSACTION_S:
        return warning("old_transactions", measured, text, fix)
    return problem("old_transactions", measured, text, fix)


def _check_horizon(stats: ServerStats) -> Finding:
    """Check what else holds back vacuum than sessions."""
    if stats.prepared:
        return warning(
            "vacuum_horizon",
            f"{stats.prepared} prepared transactions older than 5 minutes",
            "prepared transactions hold back vacuum until they are ended",
            "select gid from pg_prepared_xacts; then: rollback prepared 'GID';",
        )
    if stats.replication_slots:
        name = stats.replication_slots[0]
        return warning(
            "vacuum_horizon",
            f"inactive replication slots: {', '.join(stats.replication_slots)}",
            "an unused slot holds back vacuum and keeps WAL",
            f"select pg_drop_replication_slot('{name}');",
        )
    return ok("vacuum_horizon", "no prepared transactions, no inactive replication slots")


def _check_dead_tuples(tables: Sequence[TableStats], schema: str) -> Finding:
    bloated = [
        each
        for each in tables
        if each.name in _HOT_TABLES and each.dead > max(FEW_DEAD, 5 * each.live)
    ]
    total = sum(each.bytes for each in tables)
    if not bloated:
        return ok("dead_tuples", f"{len(tables)} tables, {total // 1_048_576} MiB")
    return warning(
        "dead_tuples",
        ", ".join(f"{each.name}: {each.dead} dead, {each.live} live" for each in bloated),
        "claims scan dead rows until vacuum removes them",
        " ".join(f'vacuum (analyze) "{schema}".{each.name};' for each in bloated),
    )


def _may_vacuum(may_vacuum: bool, schema: str) -> Finding:
    if may_vacuum:
        return ok("sweeping", "workers can vacuum")
    return warning(
        "sweeping",
        "this role cannot vacuum",
        "workers cannot remove dead rows themselves, and the server does so at most once a minute",
        f'grant maintain on all tables in schema "{schema}" to the role of your workers;'
        " before PostgreSQL 17, let them connect as the tables' owner",
    )


def _check_autovacuum(stats: ServerStats, schema: str) -> Finding:
    if stats.settings.get("autovacuum") == "off":
        return problem(
            "autovacuum",
            "off",
            "without it the queue's table grows and claims get slower",
            "alter system set autovacuum = on; select pg_reload_conf();",
        )
    without = [each.name for each in stats.tables if not each.autovacuum]
    if without:
        return problem(
            "autovacuum",
            f"off for {', '.join(without)}",
            "without it these tables only grow",
            f'alter table "{schema}".{without[0]} reset (autovacuum_enabled);',
        )
    return ok("autovacuum", "on")


def _check_durability(settings: dict[str, str]) -> Finding:
    off = [
        name
        for name in ("fsync", "full_page_writes", "synchronous_commit")
        if settings.get(name) == "off"
    ]
    if not off:
        return ok("durability", f"synchronous_commit={settings.get('synchronous_commit')}")
    fix = f"alter system set {off[0]} = on; select pg_reload_conf();"
    if off == ["synchronous_commit"]:
        text = "a server crash may lose the latest commits, including started jobs"
        return warning("durability", "synchronous_commit=off", text, fix)
    measured = ", ".join(f"{name}=off" for name in off)
    return problem("durability", measured, "a crash may corrupt the database", fix)


def _check_fences(stats: ServerStats) -> Finding:
    if stats.timeline or stats.replica:
        return ok("fences", f"above timeline {stats.timeline}")
    return warning(
        "fences",
        "the server does not report its timeline",
        "after a failover to a server whose clock is behind, a fence may be lower than one given before",
        "let this role execute pg_current_wal_lsn() and pg_walfile_name(text), "
        "or keep all servers' clocks in sync",
    )


def _check_connections(stats: ServerStats, settings: Settings, workers: int) -> Finding:
    room = int(stats.settings["max_connections"]) - sum(
        int(stats.settings.get(name, "0"))
        for name in ("superuser_reserved_connections", "reserved_connections")
    )
    # Of its own, and one for a handler's transaction at a time; that of steps is opened by the first function.
    each_needs, functions = len(PURPOSES), stats.own.get("steps", 0)
    # Async handlers have a pool, and those in threads have another.
    per_process = 2 * settings.holdfast.connections + len(PURPOSES)
    need = settings.holdfast.processes * per_process
    own = sum(stats.own.values())
    measured = (
        f"{stats.connections} of {room} in use, {own} by Holdfast; another worker may open {need}"
    )
    if workers * each_needs + functions + RESERVE > room:
        return problem(
            "connections",
            f"max_connections leaves {room}; {workers} live workers need {each_needs} each, one of them for a "
            f"handler's transaction, one more where durable functions run ({functions} now), and up to "
            f"{2 * settings.holdfast.connections} for handlers, others {RESERVE}",
            f"workers share connections, which costs throughput; with fewer than {LEAST} each they take turns",
            f"raise max_connections to {_enough_connections(stats, room, workers, per_process)}, or run fewer workers",
        )
    sharing = workers - stats.own.get("claim", 0)
    if sharing > 0:
        return warning(
            "connections",
            f"{measured}; {sharing} of {workers} live workers claim on a shared connection or none",
            "a worker that cannot open all its connections runs with fewer, which costs throughput",
            "raise max_connections, or the limit of the role or the database",
        )
    if stats.connections + need <= room:
        return ok("connections", measured)
    return warning(
        "connections",
        measured,
        "another worker of this configuration may find no connection left",
        "lower HOLDFAST_CONNECTIONS or HOLDFAST_PROCESSES, or raise max_connections",
    )


def _enough_connections(stats: ServerStats, room: int, workers: int, each: int) -> int:
    """Return max_connections, rounded up to ten, that gives every live worker all its connections."""
    reserved = int(stats.settings["max_connections"]) - room
    return -(-(workers * each + RESERVE + reserved) // 10) * 10


def _check_pooler(settings: Settings, is_pooled: bool) -> Finding:
    if not is_pooled:
        return ok("pooler", "connected directly")
    if settings.holdfast.listen_url is not None or settings.holdfast.notifier is not None:
        return ok("pooler", "behind a pooler, which hints bypass")
    return warning(
        "pooler",
        "behind a pooler, with LISTEN through it",
        "in a pooler's transaction mode hints are lost, and jobs are found only by polling",
        "set HOLDFAST_LISTEN_URL to the server's own address",
    )


def _check_options(dialect: str, present: Mapping[str, Iterable[str]], schema: str) -> Finding:
    """Check that tables have the options that the migrations set; others are their owner's own business."""
    changed = [
        (table, name, value, found.get(name))
        for table, wanted in read_declared(dialect).options.items()
        if table in present
        for found in [parse_options(",".join(present[table]))]
        for name, value in wanted.items()
        if not _is_same(value, found.get(name))
    ]
    if not changed:
        return ok("table_options", "as the migrations set them")
    return warning(
        "table_options",
        ", ".join(f"{table}: {name}={found or 'unset'}" for table, name, _, found in changed),
        "fillfactor and autovacuum settings keep the busy tables small and their updates cheap",
        " ".join(
            f'alter table "{schema}".{table} set ({name} = {value});'
            for table, name, value, _ in changed
        ),
    )


def _is_same(wanted: str, found: str | None) -> bool:
    if found is None:
        return False
    try:
        return float(wanted) == float(found)
    except ValueError:
        return wanted.lower() == found.lower()
