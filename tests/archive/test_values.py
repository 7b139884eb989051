"""Whatever a table holds comes back bit for bit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.archive.conftest import NOW, Place, place_at

OCTOBER = datetime(2026, 10, 20, tzinfo=UTC)

EVERYTHING = """
create type mood as enum ('sad', 'happy', 'it''s "odd", really');
create domain positive as integer check (value > 0);
create table everything (
  id uuid primary key,
  at timestamptz not null,
  small smallint, whole integer, large bigint, single real, double_ double precision,
  truth boolean, words text, padded character(6), short varchar(10), raw bytea,
  day date, clock time, clock_zone timetz, local timestamp, moment timestamptz, span interval,
  exact numeric, money_ money, doc json, docb jsonb, numbers integer[], names text[][], feeling mood, plus positive,
  net inet, ranged int4range, bits bit varying(9), made integer generated always as (small * 2) stored,
  counted bigint generated always as identity
)"""

# One row a line, by column; what is left out is null.
ROWS = (
    {"small": "32767", "whole": "-2147483648", "large": "9223372036854775807", "truth": "true"},
    {"single": "'NaN'", "double_": "'-0'", "words": "''", "padded": "'ab'", "raw": "'\\x00ff'"},
    {
        "single": "1.1754944e-38",
        "double_": "5e-324",
        "words": "'tab\tnew\nline\\ é 🐟'",
        "raw": "''",
    },
    {
        "single": "'-Infinity'",
        "double_": "'Infinity'",
        "day": "'infinity'",
        "moment": "'-infinity'",
    },
    {"day": "'0044-03-15 BC'", "local": "'4713-01-01 12:34:56.789012 BC'", "moment": "'infinity'"},
    {"day": "'5874897-12-31'", "local": "'294276-12-31 23:59:59.999999'", "clock": "'24:00'"},
    {"span": "'1 year -2 mons 3 days -04:05:06.789'", "clock_zone": "'12:34:56.789+05:30'"},
    {"exact": "'NaN'", "money_": "-1234.56", "doc": '\'{"b": 1,  "a": [null]}\''},
    {"exact": "123456789012345678901234567890.00100", "docb": '\'{"b": 1,  "a": "\\u00e9"}\''},
    {"numbers": "'{1,NULL,3}'", "names": '\'{{"a,",NULL},{"","\\"q"}}\'', "feeling": "'sad'"},
    {"feeling": "'it''s \"odd\", really'", "plus": "7", "net": "'::1/64'", "ranged": "'[1,5)'"},
    {"bits": "'101'", "short": "'NULL'", "words": "'NULL'", "moment": "'2026-01-01 00:00:00.1+09'"},
)


@pytest.fixture
def postgres(postgres_url: str, tmp_path: Path) -> Any:
    """A place on PostgreSQL."""
    place = place_at(postgres_url, tmp_path / "archive")
    yield place
    place.app.close()


@pytest.fixture
def sqlite(sqlite_url: str, tmp_path: Path) -> Any:
    """A place on SQLite."""
    place = place_at(sqlite_url, tmp_path / "archive")
    yield place
    place.app.close()


def _there_and_back(place: Place, table: str) -> None:
    """Archive a table's October, drop it, restore it: every row is as it was."""
    before = place.rows(table)
    report = place.archive.run(table)
    assert report.errors == []
    place.later(days=31)
    place.archive.run(table)
    assert place.rows(table) == []
    place.archive.restore(f"{table}/2026-10")
    assert place.rows(table) == before
    place.archive.restore(f"{table}/2026-10")
    assert place.rows(table) == before


def test_every_type_of_postgresql_comes_back(postgres: Place) -> None:
    for each in EVERYTHING.split(";"):
        postgres.execute(each)
    for row in ROWS:
        columns, values = ", ".join(row), ", ".join(row.values())
        text = "insert into everything (id, at, #c) values (gen_random_uuid(), '2026-10-20', #v)"
        with psycopg.connect(postgres.url) as connection:
            connection.execute(text.replace("#c", columns).replace("#v", values).encode())
    postgres.archive.table("everything", key="id", at="at")
    _there_and_back(postgres, "everything")


def test_mixed_types_of_sqlite_come_back(sqlite: Place) -> None:
    sqlite.execute(
        "", "create table bag (id integer primary key, at integer, a, b text, c real, d blob)"
    )
    at = int(OCTOBER.timestamp() * 1_000_000)
    values: list[tuple[Any, ...]] = [
        (1, "text", 1.5, b"\x00"),
        (-0.0, "", 2, "not a blob"),
        (b"blob", "nul \x00 inside", -1e300, None),
        (None, "é🐟", 5e-324, 12),
        ("1", None, None, 1.0),
        (2**63 - 1, "x", float("inf"), b""),
    ]
    for number, row in enumerate(values):
        sqlite.execute("", "insert into bag values (?, ?, ?, ?, ?, ?)", (number, at, *row))
    sqlite.execute(
        "",
        "insert into bag values (99, ?, cast(x'ff00fe' as text), cast(x'c328' as text), 1, 1)",
        (at,),
    )
    sqlite.archive.table("bag", key="id", at="at")
    _there_and_back(sqlite, "bag")


@pytest.mark.parametrize("at", ["'2026-10-20 10:11:12'", "'2026-10-20T10:11:12.345Z'"])
def test_times_as_text_are_understood_on_sqlite(sqlite: Place, at: str) -> None:
    sqlite.execute("", "create table logs (id text primary key, at text)")
    sqlite.execute("", f"insert into logs values ('a', {at})")  # noqa: S608
    sqlite.archive.table("logs", key="id", at="at")
    _there_and_back(sqlite, "logs")


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_as_numbers_have_a_unit(place: Place, unit: Any) -> None:
    place.execute("create table logs (id bigint primary key, at bigint)")
    scale = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    place.execute("insert into logs values (1, ?)", params=(int(OCTOBER.timestamp()) * scale,))
    place.archive.table("logs", key="id", at="at", unit=unit)
    _there_and_back(place, "logs")


@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_times_without_a_zone_are_those_of_the_source(postgres: Place, kind: str) -> None:
    postgres.execute(f"create table logs (id bigint primary key, at {kind})")
    postgres.execute("insert into logs values (1, '2026-10-31'), (2, '2026-11-01')")
    postgres.archive.table("logs", key="id", at="at", zone="America/Santiago")
    postgres.archive.run()
    assert postgres.archive.show("logs/2026-10").rows == 1


def test_partitions_by_month_and_a_composite_key(postgres: Place) -> None:
    postgres.execute("create schema tender")
    postgres.execute(
        "create table tender.notices (code text, published_at timestamptz, title text,"
        " primary key (code, published_at)) partition by range (published_at)"
    )
    for month in (9, 10, 11):
        postgres.execute(
            f"create table tender.notices_{month} partition of tender.notices"
            f" for values from ('2026-{month}-01') to ('2026-{month + 1}-01')"
        )
    for month in (9, 10, 11):
        postgres.execute(
            "insert into tender.notices values ('a:1%', ?, 'one'), ('b', ?, null)",
            params=(f"2026-{month}-02", f"2026-{month}-03"),
        )
    before = postgres.rows("tender.notices")
    postgres.archive.table(
        "tender.notices", key=("code", "published_at"), at="published_at", where="code like '%'"
    )
    postgres.archive.run()
    postgres.later(days=31)
    postgres.archive.run()
    assert len(postgres.rows("tender.notices")) == 2
    for name in ("09", "10"):
        postgres.archive.restore(f"tender.notices/2026-{name}")
    assert postgres.rows("tender.notices") == before


def test_duckdb_reads_the_files_as_they_are(place: Place) -> None:
    place.archive.table("deliveries", key="id", at="completed_at")
    place.fill([(1, "one", OCTOBER), (2, "two", OCTOBER)])
    place.archive.run()
    found = duckdb.read_parquet(f"{place.root}/deliveries/*/*.parquet")
    assert sorted(found.project("id, note").fetchall()) == [(1, "one"), (2, "two")]


def test_duckdb_sees_times_as_times(postgres: Place) -> None:
    postgres.archive.table("deliveries", key="id", at="completed_at")
    postgres.fill([(1, "one", OCTOBER)])
    postgres.archive.run()
    path = postgres.object_path(postgres.archive.show("deliveries/2026-10"))
    found = duckdb.read_parquet(str(path)).project("epoch_us(completed_at)").fetchall()
    assert found == [(int(OCTOBER.timestamp() * 1_000_000),)]


_texts = some.text(
    some.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20
)
_values = some.none() | some.integers(-(2**63), 2**63 - 1) | some.floats(allow_nan=False)
_numbers = count(1)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=some.lists(some.tuples(_values | _texts | some.binary(max_size=20), _texts), max_size=20)
)
def test_any_values_of_sqlite_come_back(sqlite: Place, rows: list[tuple[Any, str]]) -> None:
    table = f"any_{next(_numbers)}"
    at = int(OCTOBER.timestamp() * 1_000_000)
    with closing(sqlite3.connect(sqlite.url.removeprefix("sqlite:///"))) as file:
        file.execute(f"create table {table} (id integer primary key, at integer, a, b text)")
        text = "insert into #t values (?, ?, ?, ?)".replace("#t", table)
        file.executemany(text, [(n, at, *row) for n, row in enumerate(rows)])
        file.commit()
    if rows:
        sqlite.now = NOW
        sqlite.archive.table(table, key="id", at="at")
        _there_and_back(sqlite, table)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=some.lists(
        some.tuples(
            some.none() | some.integers(-(2**63), 2**63 - 1),
            some.none() | some.floats(),
            some.none() | some.floats(width=32),
            some.none() | _texts,
            some.none() | some.binary(max_size=20),
            some.none() | some.datetimes(),
            some.none() | some.decimals(allow_nan=False, allow_infinity=False),
            some.none() | some.lists(_texts, max_size=3),
        ),
        min_size=1,
        max_size=15,
    )
)
def test_any_values_of_postgresql_come_back(postgres: Place, rows: list[tuple[Any, ...]]) -> None:
    table = f"any_{next(_numbers)}"
    with psycopg.connect(postgres.url) as connection:
        connection.execute(
            f"create table {table} (id bigint primary key, at timestamptz, a bigint, b double precision,"
            " c real, d text, e bytea, f timestamp, g numeric, h text[])".encode()
        )
        text = "insert into #t values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)".replace("#t", table)
        with connection.cursor() as cursor:
            cursor.executemany(text.encode(), [(n, OCTOBER, *row) for n, row in enumerate(rows)])
    postgres.now = NOW
    postgres.archive.table(table, key="id", at="at")
    _there_and_back(postgres, table)
