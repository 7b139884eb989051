"""Checks of a PostgreSQL server: what holds back vacuum, what endangers durability, and whether connections suffice."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.runtime.doctor.finding import Finding, ok, problem, warning
from holdfast.settings import Settings
from holdfast.worker.parts import COMPANIONS_LINKS, OWN_LINKS

OLD_TRANSACTION_S = 300
VERY_OLD_TRANSACTION_S = 3_600
FEW_DEAD = 10_000
PURPOSES = (*OWN_LINKS, *COMPANIONS_LINKS, "tick", "singleton", "hint sender", "hint listener")
"""Connections that a worker process may have open beside its pool."""

_HOT_TABLES = ("queue", "lease", "worker")


class Session(msgspec.Struct, frozen=True):
    """A session with an open transaction."""

    pid: int
    who: str | None
    state: str
    seconds: int


class TableVitals(msgspec.Struct, frozen=True):
    """One of our tables."""

    name: str
    live: int
    dead: int
    bytes: int
    autovacuum: bool


class PostgresVitals(msgspec.Struct, frozen=True):
    """What the server says of itself."""

    settings: dict[str, str]
    connections: int
    own: dict[str, int]
    oldest: Session | None
    prepared: int
    replication_slots: list[str]
    tables: list[TableVitals]
    may_vacuum: bool = True


def check_postgres(document: str, settings: Settings, is_pooled: bool) -> list[Finding]:
    """Judge the server's own document."""
    vitals = msgspec.json.decode(document, type=PostgresVitals)
    schema = settings.holdfast.schema
    return [
        _old_transaction(vitals.oldest),
        _horizon(vitals),
        _dead_tuples(vitals.tables, schema),
        _autovacuum(vitals, schema),
        _sweeping(vitals.may_vacuum, schema),
        _durability(vitals.settings),
        _connections(vitals, settings),
        _pooler(settings, is_pooled),
    ]


def _old_transaction(oldest: Session | None) -> Finding:
    if oldest is None or oldest.seconds < OLD_TRANSACTION_S:
        return ok("old_transactions", f"oldest {oldest.seconds if oldest else 0} s")
    measured = f"pid {oldest.pid} ({oldest.who}, {oldest.state}) for {oldest.seconds} s"
    text = "an old transaction keeps vacuum from removing dead rows, so every table grows"
    fix = f"select pg_terminate_backend({oldest.pid});"
    if oldest.seconds < VERY_OLD_TRANSACTION_S:
        return warning("old_transactions", measured, text, fix)
    return problem("old_transactions", measured, text, fix)


def _horizon(vitals: PostgresVitals) -> Finding:
    """What holds back vacuum without being a session."""
    if vitals.prepared:
        return warning(
            "vacuum_horizon",
            f"{vitals.prepared} prepared transactions older than 5 minutes",
            "prepared transactions hold back vacuum until they are ended",
            "select gid from pg_prepared_xacts; then: rollback prepared 'GID';",
        )
    if vitals.replication_slots:
        name = vitals.replication_slots[0]
        return warning(
            "vacuum_horizon",
            f"inactive replication slots: {', '.join(vitals.replication_slots)}",
            "a slot that nobody reads holds back vacuum and keeps WAL",
            f"select pg_drop_replication_slot('{name}');",
        )
    return ok("vacuum_horizon", "no prepared transactions, no inactive replication slots")


def _dead_tuples(tables: Sequence[TableVitals], schema: str) -> Finding:
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
        "claims walk over dead rows until vacuum removes them",
        " ".join(f'vacuum (analyze) "{schema}".{each.name};' for each in bloated),
    )


def _sweeping(may_vacuum: bool, schema: str) -> Finding:
    if may_vacuum:
        return ok("sweeping", "workers may vacuum")
    return warning(
        "sweeping",
        "this role may not vacuum",
        "workers cannot remove dead rows themselves, and the server does so once a minute at best",
        f'grant maintain on all tables in schema "{schema}" to the role of your workers;'
        " before PostgreSQL 17 let them connect as the owner of the tables",
    )


def _autovacuum(vitals: PostgresVitals, schema: str) -> Finding:
    if vitals.settings.get("autovacuum") == "off":
        return problem(
            "autovacuum",
            "off",
            "without it the queue's table grows and claims get slower",
            "alter system set autovacuum = on; select pg_reload_conf();",
        )
    without = [each.name for each in vitals.tables if not each.autovacuum]
    if without:
        return problem(
            "autovacuum",
            f"off for {', '.join(without)}",
            "without it these tables only grow",
            f'alter table "{schema}".{without[0]} reset (autovacuum_enabled);',
        )
    return ok("autovacuum", "on")


def _durability(settings: dict[str, str]) -> Finding:
    off = [
        name
        for name in ("fsync", "full_page_writes", "synchronous_commit")
        if settings.get(name) == "off"
    ]
    if not off:
        return ok("durability", f"synchronous_commit={settings.get('synchronous_commit')}")
    fix = f"alter system set {off[0]} = on; select pg_reload_conf();"
    if off == ["synchronous_commit"]:
        text = "a crash of the server may lose commits of the last moments, started jobs among them"
        return warning("durability", "synchronous_commit=off", text, fix)
    measured = ", ".join(f"{name}=off" for name in off)
    return problem("durability", measured, "a crash may corrupt the database", fix)


def _connections(vitals: PostgresVitals, settings: Settings) -> Finding:
    reserved = int(vitals.settings.get("superuser_reserved_connections", "3"))
    room = int(vitals.settings["max_connections"]) - reserved
    need = settings.holdfast.processes * (settings.holdfast.connections + len(PURPOSES))
    own = sum(vitals.own.values())
    measured = (
        f"{vitals.connections} of {room} in use, {own} by Holdfast; another worker may open {need}"
    )
    if vitals.connections + need <= room:
        return ok("connections", measured)
    return warning(
        "connections",
        measured,
        "another worker of this configuration may find no connection left",
        "lower HOLDFAST_CONNECTIONS or HOLDFAST_PROCESSES, or raise max_connections",
    )


def _pooler(settings: Settings, is_pooled: bool) -> Finding:
    if not is_pooled:
        return ok("pooler", "connected directly")
    if settings.holdfast.listen_url is not None or settings.holdfast.notifier is not None:
        return ok("pooler", "behind a pooler, hints take another way")
    return warning(
        "pooler",
        "behind a pooler, with LISTEN through it",
        "in a pooler's transaction mode hints are lost, and jobs are found by polling only",
        "set HOLDFAST_LISTEN_URL to the server's own address, and run `holdfast migrate` there",
    )
