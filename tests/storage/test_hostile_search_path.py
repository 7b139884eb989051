"""Whatever the search path has before pg_catalog, our statements call nothing of it."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from holdfast import Holdfast, Job
from holdfast.storage.postgres.qualify import qualify
from holdfast.storage.postgres.store import PACKAGE
from holdfast.storage.sql_loader import (
    DEFAULT_SCHEMA,
    compile_statement,
    load_statements,
    place_schema,
)
from holdfast.worker.options import WorkerOptions
from tests.storage.hostile import plant

STATEMENTS = load_statements(PACKAGE)
NOT_IN_A_FUNCTION = {"sweep"}
"""VACUUM names only tables of ours."""
PLANNED_OTHERWISE = {"privileges"}
"""It reads a few rows of the catalogue, which can be grouped in either of two ways."""
PROBED = """
with used as (
  select refclassid, refobjid from pg_depend
   where classid = 'pg_proc'::regclass and objid = 'public.probe'::regproc)
select p.proname from used d join pg_proc p on p.oid = d.refobjid and d.refclassid = 'pg_proc'::regclass
 where p.pronamespace = 'hostile'::regnamespace
union all
select o.oprname from used d join pg_operator o on o.oid = d.refobjid and d.refclassid = 'pg_operator'::regclass
 where o.oprnamespace = 'hostile'::regnamespace
union all
select t.typname from used d join pg_type t on t.oid = d.refobjid and d.refclassid = 'pg_type'::regclass
 where t.typnamespace = 'hostile'::regnamespace
union all
select c.relname from used d join pg_class c on c.oid = d.refobjid and d.refclassid = 'pg_class'::regclass
 where c.relnamespace = 'hostile'::regnamespace
"""


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection[Any]]:
    """A session of the owner, in a database with the hostile schema."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        plant(connection)
        yield connection


@pytest.fixture
async def app(postgres_url: str, connection: Connection[Any]) -> AsyncIterator[Holdfast]:
    """An application in whose database everything hostile comes first."""
    name = sql.Identifier(connection.info.dbname)
    connection.execute(
        sql.SQL("alter database {} set search_path = hostile, pg_catalog, public").format(name)
    )
    app = Holdfast(postgres_url)
    yield app
    await app.aclose()
    connection.execute(sql.SQL("alter database {} reset search_path").format(name))


def called(connection: Connection[Any], text: str) -> list[str]:
    """Return what of the hostile schema a statement would use, as the server's own records tell of a function of it."""
    compiled = compile_statement(place_schema(text, DEFAULT_SCHEMA), "dollar")
    types = ", ".join(["pg_catalog.text"] * len(compiled.order))
    body = compiled.text.rstrip().rstrip(";")
    connection.execute("set search_path = hostile, pg_catalog")
    connection.execute(
        f"create function public.probe({types}) returns void language sql begin atomic {body}; end".encode()
    )
    connection.execute("set search_path = pg_catalog")
    # A statement that is prepared keeps the number of the first function of that name.
    found = connection.execute(PROBED.encode(), prepare=False).fetchall()
    connection.execute("drop function public.probe")
    return [row[0] for row in found]


def test_no_statement_uses_anything_hostile(connection: Connection[Any]) -> None:
    bad = {
        name: found
        for name, text in STATEMENTS.items()
        if name not in NOT_IN_A_FUNCTION and (found := called(connection, qualify(text)))
    }
    assert bad == {}


def test_every_type_of_the_catalogue_is_qualified() -> None:
    for name, text in STATEMENTS.items():
        code = re.sub(r"'(?:[^']|'')*'|--[^\n]*", "", qualify(text))
        bare = re.findall(
            r"(?:::|\w )(?:text|uuid|jsonb?|timestamptz|oid|regclass)\b(?=\s*[,)\[])", code
        )
        assert not bare, name


def test_without_qualification_they_would(connection: Connection[Any]) -> None:
    assert {"to_json", "pg_notify"} <= set(called(connection, STATEMENTS["job_insert_new"]))


def test_a_qualified_statement_has_the_plan_it_had(connection: Connection[Any]) -> None:
    if connection.info.server_version < 160_000:
        return  # no plan is shown without values; the tests' own server is newer

    def plan(text: str) -> list[Any]:
        compiled = compile_statement(place_schema(text, DEFAULT_SCHEMA), "dollar").text
        explain = f"explain (verbose, costs off, generic_plan) {compiled}"
        return connection.execute(explain.encode()).fetchall()

    for name, text in STATEMENTS.items():
        if name not in NOT_IN_A_FUNCTION | PLANNED_OTHERWISE:
            assert plan(qualify(text)) == plan(text), name


async def test_producers_and_workers_call_nothing_hostile(app: Holdfast, postgres_url: str) -> None:
    ran: list[int] = []

    @app.job("charge")
    def charge(job: Job[int]) -> None:
        ran.append(job.input)

    @app.job("close", atomic=True)
    def close(job: Job[int]) -> None:
        ran.append(job.input)

    @app.on("placed")
    def mail(job: Job[int]) -> None:
        ran.append(job.input)

    @app.cycle("hourly", every="1h")
    def hourly(run: object) -> None: ...

    app.migrate()
    with psycopg.connect(postgres_url) as own:
        app.start(own, charge, 1)
        app.start(own, charge, 2, key="two", after="0s")
        app.start_many(own, close, [3, 4])
        app.publish(own, "placed", 5)
    with app.transaction() as tx:
        app.start(tx, charge, 6)
    async with app.transaction() as async_tx:
        await app.start(async_tx, charge, 7, after="0s")
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    assert sorted(ran) == [1, 2, 3, 4, 5, 6, 7]
    assert [each.state for each in app.jobs.list()] == ["completed"] * 7


@pytest.mark.parametrize(
    ("text", "qualified"),
    [
        ("a + b * c = d", "((a {+} (b {*} c)) {=} d)"),
        ("a = b and not c <> d or e", "(a {=} b) and not (c {<>} d) or e"),
        (
            "update t set a = b + 1, c = d = e where f = g",
            "update t set a = (b {+} 1), c = (d {=} e) where (f {=} g)",
        ),
        ("select *, t.*, count(*) from t", "select *, t.*, pg_catalog.count(*) from t"),
        (
            "a in (1, 2) and b not in (select c)",
            "(a {=} any (array[1, 2])) and (b {<>} all (select c))",
        ),
        ("a between b and c + 1", "((a {>=} b) and (a {<=} (c {+} 1)))"),
        ("a not like 'x%'", "(a {!~~} 'x%')"),
        ("- a - -1", "({-}  a {-} -1)"),
        ("case when a = b then c end || d", "(case when (a {=} b) then c end {||} d)"),
        ("x::text[] || :y::uuid", "(x::pg_catalog.text[] {||} :y::pg_catalog.uuid)"),
        ("unnest(a), unnest(a, b)", "pg_catalog.unnest(a), unnest(a, b)"),
        ("'a = b' = \"c = d\" -- e = f", "('a = b' {=} \"c = d\") -- e = f"),
        ("row_number() over (order by a) = 1", "(pg_catalog.row_number() over (order by a) {=} 1)"),
    ],
)
def test_what_is_sent_for_what_is_written(text: str, qualified: str) -> None:
    expected = re.sub(r"\{([^}]+)\}", r"operator(pg_catalog.\1)", qualified)
    assert qualify(text) == expected
