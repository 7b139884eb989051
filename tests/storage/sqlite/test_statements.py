"""Every statement: the counterpart of PostgreSQL's, begun by its verb, and finding its rows by an index."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast.storage.sql_loader import dialect_statements
from holdfast.storage.sqlite.migrations import migration_sql
from holdfast.storage.sqlite.store import sqlite_statements
from holdfast_verify.laws import LAWS

STATEMENTS = sqlite_statements()
# What PostgreSQL does in one statement begins with these here.
FIRST_STEPS = {
    "event_publish": "subscription_list",
    "job_claim": "job_claim_poll",
    "job_claim_queues": "job_claim_poll",
    "job_complete": "job_finish_end",
    "job_complete_limited": "limit_signal_leaving",
    "job_complete_one": "job_finish_end",
    "job_drop": "job_finish_held",
    "job_finish": "job_finish_end",
    "job_insert_limited": "limit_insert_queue",
    "job_insert_new": "job_insert_alike",
    "job_insert_one": "job_insert_alike",
    "job_park": "step_may_go_on",
    "limit_claim": "limit_signals",
    "limit_claim_by_cost": "limit_cost_room",
    "line_read_dense": "line_read",
    "revision_settle": "revision_newest",
    "signal_route": "signal_wake",
    "step_append": "step_record",
}
# They walk along a key and stop at a limit.
WALKS = {
    *("figure_finished", "figure_timeouts", "job_ids_like", "keep_oldest"),
    *("signal_list", "signal_unwanted", "signal_waits", "step_waiting"),
    # Asked once, when a clock was set back.
    "step_heal",
    # They are asked of a whole database.
    *(
        each.statement
        for each in LAWS
        if each.name not in ("readers-within-the-log", "limits-hold")
    ),
}
# A file has no dead rows to remove.
ONLY_POSTGRESQL = {"replication", "sweep"}

_PARAMETER = re.compile(r":([a-z_]+)")
_SCAN = re.compile(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX \w+)?$")
_GROWING = re.compile(
    r"(holdfast_(?:job|queue|outcome|attempt|blocker|chain_key|step|signal))\b(?: (\w+))?"
)
_WRITES = re.compile(r"\b(insert|update|delete)\b")


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    """A database with its tables, to explain statements on."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.executescript(migration_sql())
        yield made


def test_every_statement_of_postgresql_has_its_counterpart() -> None:
    names = dialect_statements("postgres").keys() - ONLY_POSTGRESQL
    assert {each for each in names if FIRST_STEPS.get(each, each) not in STATEMENTS} == set()


def test_no_statement_reads_a_growing_table_as_a_whole(connection: sqlite3.Connection) -> None:
    found = {name: read_as_a_whole(connection, text) for name, text in STATEMENTS.items()}
    assert {name for name, tables in found.items() if tables} == WALKS


def test_a_growing_table_that_is_read_as_a_whole_is_found(connection: sqlite3.Connection) -> None:
    assert read_as_a_whole(connection, "select * from holdfast_job") == {"holdfast_job"}


def read_as_a_whole(connection: sqlite3.Connection, statement: str) -> set[str]:
    """Return the growing tables that a statement reads from end to end."""
    params = dict.fromkeys(_PARAMETER.findall(statement), "[]")
    plan = connection.execute("explain query plan " + statement, params)
    scanned = {match[1] for row in plan if (match := _SCAN.match(row[3]))}
    views = connection.execute("select sql from sqlite_master where type = 'view'")
    text = "\n".join([statement, *(sql for (sql,) in views if "job_state" in statement)])
    return scanned & {each for names in _GROWING.findall(text) for each in names}


def test_every_write_begins_with_its_verb() -> None:
    # Python's driver opens a transaction by itself only then.
    first = {name: text.split(maxsplit=1)[0] for name, text in STATEMENTS.items()}
    assert set(first.values()) <= {"select", "insert", "update", "delete", "with"}
    reading = [name for name, word in first.items() if word in {"select", "with"}]
    assert [name for name in reading if _WRITES.search(STATEMENTS[name])] == []
