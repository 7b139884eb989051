"""What the doctor makes of what it measured, without a database."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import Limit
from holdfast.commands.limits import LimitFacts
from holdfast.core.codec import TypeCodec
from holdfast.core.declared_limits import encode_declared
from holdfast.core.flow import Flow, flow_of
from holdfast.core.lease import Lease
from holdfast.core.partitions import HeldQueue
from holdfast.core.statistics import QueueTotals
from holdfast.core.worker_presence import WorkerRecord
from holdfast.scheduler.doctor import Finding
from holdfast.scheduler.doctor.checks import check_configuration
from holdfast.scheduler.doctor.declared_schema import read_declared
from holdfast.scheduler.doctor.fleet import Fleet, check_fleet
from holdfast.scheduler.doctor.limit_checks import LimitState, check_limits
from holdfast.scheduler.doctor.sqlite import check_sqlite
from holdfast.settings import read_settings
from holdfast_postgres.server_checks import check_postgres


def _options(table: str) -> list[str]:
    found = read_declared("postgresql").options[table]
    return [f"{name}={value}" for name, value in found.items()]


HEALTHY: dict[str, Any] = {
    "settings": {
        "max_connections": "100",
        "superuser_reserved_connections": "3",
        "synchronous_commit": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "autovacuum": "on",
        "jit_above_cost": "100000",
        "server_version": "17.2",
        "server_version_num": "170002",
    },
    "role": "shop",
    "database": "orders",
    "replica": False,
    "jit": False,
    "switched_off": [],
    "limits": [],
    "connections": 5,
    "own": {"claim": 1},
    "oldest": None,
    "prepared": 0,
    "replication_slots": [],
    "timeline": 1,
    "tables": [
        {
            "name": "queue",
            "live": 10,
            "dead": 100,
            "bytes": 8192,
            "autovacuum": True,
            "options": _options("queue"),
        },
        {
            "name": "job",
            "live": 10,
            "dead": 10**9,
            "bytes": 8192,
            "autovacuum": True,
            "options": _options("job"),
        },
    ],
    "indexes": list(read_declared("postgresql").indexes),
}
FILE: dict[str, Any] = {
    "journal": "wal",
    "synchronous": 2,
    "busy_timeout": 5000,
    "pages": 100,
    "free_pages": 0,
    "page_size": 4096,
    "indexes": list(read_declared("sqlite").indexes),
}


def _postgres(
    is_pooled: bool = False, environ: dict[str, str] | None = None, workers: int = 0, **changes: Any
) -> dict[str, Finding]:
    document = msgspec.json.encode(HEALTHY | changes).decode()
    found = check_postgres(document, read_settings(environ or {}), is_pooled, workers)
    return {each.check: each for each in found}


def _sqlite(**changes: Any) -> dict[str, Finding]:
    found = check_sqlite(msgspec.json.encode(FILE | changes).decode(), "x.db")
    return {each.check: each for each in found}


def _settings(**changes: str) -> dict[str, Any]:
    return {"settings": HEALTHY["settings"] | changes}


def test_a_healthy_server_has_no_findings_worth_a_look() -> None:
    assert {each.verdict for each in _postgres().values()} == {"ok"}


def _session(seconds: int) -> dict[str, Any]:
    return {"oldest": {"pid": 7, "who": "psql", "state": "idle", "seconds": seconds}}


def _elsewhere(kind: str, name: str, value: str) -> dict[str, Any]:
    return {kind: [{"name": name, "value": value, "source": "database"}]}


def _table(**changes: Any) -> dict[str, Any]:
    table = {
        "name": "lease",
        "live": 1,
        "dead": 1,
        "bytes": 1,
        "autovacuum": True,
        "options": _options("lease"),
    }
    return {"tables": [table | changes]}


@pytest.mark.parametrize(
    ("check", "verdict", "changes", "fix"),
    [
        ("old_transactions", "ok", _session(299), ""),
        ("old_transactions", "warning", _session(300), "pg_terminate_backend(7)"),
        ("old_transactions", "problem", _session(9999), "pg_terminate_backend(7)"),
        ("vacuum_horizon", "warning", {"prepared": 2}, "rollback prepared"),
        ("vacuum_horizon", "warning", {"replication_slots": ["old"]}, "slot('old')"),
        ("sweeping", "warning", {"may_vacuum": False}, "grant maintain"),
        ("fences", "warning", {"timeline": 0}, "pg_walfile_name"),
        ("dead_tuples", "warning", _table(dead=10_001), 'vacuum (analyze) "holdfast".lease;'),
        ("autovacuum", "problem", _settings(autovacuum="off"), "set autovacuum = on"),
        ("autovacuum", "problem", _table(autovacuum=False), "reset (autovacuum_enabled)"),
        ("durability", "warning", _settings(synchronous_commit="off"), "synchronous_commit = on"),
        ("durability", "problem", _settings(fsync="off"), "fsync = on"),
        ("connections", "ok", {"connections": 97 - 30}, ""),
        ("connections", "warning", {"connections": 97 - 29}, "HOLDFAST_CONNECTIONS"),
        ("connections", "ok", {"workers": 1}, ""),
        ("connections", "warning", {"workers": 2}, "raise max_connections"),
        ("connections", "ok", {"workers": 8, "own": {"claim": 8}}, ""),
        ("connections", "ok", {"workers": 9, "own": {"claim": 9, "steps": 2}}, ""),
        (
            "connections",
            "problem",
            {"workers": 9, "own": {"claim": 9, "steps": 3}},
            "max_connections to",
        ),
        ("connections", "problem", {"workers": 10, "own": {"claim": 10}}, "max_connections to 310"),
        ("connections", "problem", {"workers": 11, "own": {"claim": 11}}, "max_connections to 340"),
        ("postgresql_version", "problem", _settings(server_version_num="130012"), "upgrade"),
        ("postgresql_version", "warning", _settings(server_version_num="190001"), "newer Holdfast"),
        ("primary", "problem", {"replica": True}, "target_session_attrs=read-write"),
        ("jit", "warning", {"jit": True}, 'alter role "shop" set jit = off;'),
        (
            "planner",
            "warning",
            _elsewhere("switched_off", "enable_indexscan", "off"),
            "alter database",
        ),
        (
            "timeouts",
            "warning",
            _elsewhere("limits", "statement_timeout", "20min"),
            "alter database",
        ),
        (
            "timeouts",
            "warning",
            _elsewhere("limits", "idle_session_timeout", "59s"),
            "alter database",
        ),
        ("timeouts", "ok", _elsewhere("limits", "idle_session_timeout", "1min"), ""),
        ("timeouts", "ok", _elsewhere("limits", "lock_timeout", "0ms"), ""),
    ],
)
def test_what_is_wrong_with_a_server_is_told_with_its_fix(
    check: str, verdict: str, changes: dict[str, Any], fix: str
) -> None:
    found = _postgres(**changes)
    assert found[check].verdict == verdict
    assert fix in found[check].fix
    assert {each.check for each in found.values() if each.verdict != "ok"} <= {check}


def test_a_pooler_needs_a_direct_way_for_hints() -> None:
    assert _postgres(is_pooled=True)["pooler"].verdict == "warning"
    environ = {"HOLDFAST_LISTEN_URL": "postgresql://db/shop"}
    assert _postgres(is_pooled=True, environ=environ)["pooler"].verdict == "ok"


def test_a_healthy_file_has_no_findings_worth_a_look() -> None:
    assert {each.verdict for each in _sqlite().values()} == {"ok"}


@pytest.mark.parametrize(
    ("check", "changes", "fix"),
    [
        ("journal", {"journal": "delete"}, "sqlite3 x.db 'pragma journal_mode = wal'"),
        ("synchronous", {"synchronous": 1}, "HOLDFAST_SYNCHRONOUS=FULL"),
        ("busy_timeout", {"busy_timeout": 0}, "5000 ms"),
        ("space", {"pages": 30_000, "free_pages": 20_000}, "sqlite3 x.db vacuum"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_fix(
    check: str, changes: dict[str, Any], fix: str
) -> None:
    found = _sqlite(**changes)[check]
    assert found.verdict == "warning"
    assert fix in found.fix


def test_the_configuration_is_checked_against_itself_and_the_job_types() -> None:
    good = check_configuration(read_settings({}), {"mail": Lease("30s")})
    assert {each.verdict for each in good} == {"ok"}
    environ = {
        "OUTBOX_LEASE_HEARTBEAT_MS": "9000",
        "OUTBOX_BATCHSIZE": "3",
        "HOLDFAST_RETENTION_DAYS": "0",
    }
    bad = check_configuration(read_settings(environ), {"ping": Lease("20s")})
    assert [(each.check, each.verdict) for each in bad] == [
        ("variables", "warning"),
        ("timing", "problem"),
        ("retention", "warning"),
        ("runners", "ok"),
    ]
    assert "did you mean OUTBOX_BATCH_SIZE?" in bad[0].fix


@pytest.mark.parametrize(
    ("runners", "left_out"),
    [
        ("outbox,invoiceReminders,classesBilling", "retention"),
        ("retention", "outbox"),
        ("classesBilling", "outbox and retention"),
    ],
)
def test_runners_that_leave_out_what_every_fleet_needs_are_told(
    runners: str, left_out: str
) -> None:
    settings = read_settings({"WORKER_TICK_RUNNERS": runners})
    (found,) = [each for each in check_configuration(settings, {}) if each.check == "runners"]
    assert found.verdict == "warning"
    assert f"leaves out {left_out}" in found.measured
    fixed = found.fix.split("=")[1].split(", or")[0]
    mended = check_configuration(read_settings({"WORKER_TICK_RUNNERS": fixed}), {})
    assert {each.verdict for each in mended} == {"ok"}


def test_timings_are_shown_as_they_are_under_the_smallest_lease() -> None:
    def measured(environ: dict[str, str]) -> str:
        leases = {"mail": Lease("4s"), "pdf": Lease("120s")}
        return check_configuration(read_settings(environ), leases)[1].measured

    assert measured({}) == (
        "smallest lease 4000 ms (of mail); under it heartbeat 1200 ms, shutdown 4000 ms, "
        "reaper every 2000 ms"
    )
    assert "heartbeat 1000 ms" in measured({"OUTBOX_LEASE_HEARTBEAT_MS": "1000"})
    assert "lease 3000 ms (default)" in measured({"OUTBOX_LEASE_DURATION_MS": "3000"})


def test_a_count_that_stopped_early_is_not_told_as_the_whole() -> None:
    totals = QueueTotals(3_000, 0, 0, 1_000, 0, 0, 0, 0, 0, bounded=True)
    fleet = Fleet(0, None, [], [], totals, [], [], [], [], [])
    (workers,) = [each for each in check_fleet(fleet, 10_000) if each.check == "workers"]
    assert workers.measured == "0 live, 1000+ jobs due"


def test_a_key_that_is_full_for_long_is_told_with_its_fix() -> None:
    state = LimitState(LATER, [full_key("42", LATER - 700_000_000), full_key("7", LATER)], [])
    limits, full, held = check_limits(state, [])
    assert (limits.verdict, held.verdict) == ("ok", "ok")
    assert (full.verdict, full.measured) == ("warning", "1 key full; mail.send 42 for 11 min")
    assert "holdfast limits set mail.send --key 42" in full.fix


def test_an_ordered_key_that_waits_for_a_dead_letter_is_told_with_its_job() -> None:
    state = LimitState(LATER, [], [HeldQueue("order.apply#7", "J", LATER - 7_200_000_000)])
    _, _, held = check_limits(state, [])
    assert (held.verdict, held.measured) == ("warning", "1 key; order.apply 7 for 2 h")
    assert "holdfast dead redrive J" in held.fix


def test_workers_whose_code_sets_different_limits_are_told() -> None:
    workers = [
        WorkerRecord(
            *("w", "w", "h", 1, "0", 1, ["mail.send"], 0, 0, None, False, {}, None),
            limits=msgspec.json.decode(encode_declared(flows)),
        )
        for flows in ([limited(2)], [limited(5)], [])
    ]
    agreed, *_ = check_limits(LimitState(LATER, [], []), workers[:1])
    assert (agreed.verdict, agreed.measured) == ("ok", "1 job type limited")
    differ, *_ = check_limits(LimitState(LATER, [], []), workers)
    assert differ.verdict == "warning"
    assert differ.measured == "mail.send: 2 per tenant_id or 5 per tenant_id or none"


LATER = 10_000_000_000


def limited(most: int) -> Flow:
    found = flow_of("mail.send", TypeCodec(Any), {"limits": [Limit(most, by="tenant_id")]})
    assert found is not None
    return found


def full_key(key: str, oldest_at: int) -> LimitFacts:
    return LimitFacts(
        "mail.send", key, "key", 2, 2, 0, None, None, 5, oldest_at, None, None, False, LATER
    )
