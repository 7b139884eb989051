"""What a job costs on disk is what the page about capacity says, in the real tables of both stores."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast_testing.kit import Kit
from tests.docs.snippets import DOCS

JOBS = 2_000
INPUT: dict[str, object] = {"order": 123_456, "note": "x" * 174}
"""200 bytes as JSON."""

POSTGRES_BYTES = """
select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'holdfast' and c.relkind = 'r' and c.relname in ('job', 'outcome')
"""


def said(store: str) -> tuple[int, int]:
    """The bytes on the page: of a job that was started, and of its outcome."""
    page = (DOCS / "run" / "capacity.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {store} \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    assert found is not None
    return int(found[1]), int(found[2])


def postgres_bytes(url: str) -> int:
    """The bytes of the tables that keep a finished job, and of their indexes."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum")
        row = connection.execute(POSTGRES_BYTES).fetchone()
    assert row is not None
    return int(row[0])


def sqlite_bytes(url: str) -> int:
    """The same in a file. The queue's pages become free as jobs end."""
    with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")))) as connection:
        rows = connection.execute("select name, pgsize from dbstat").fetchall()
    return sum(size for name, size in rows if "holdfast_job" in name or "holdfast_outcome" in name)


@pytest.mark.parametrize(
    ("store", "address", "size"),
    [("PostgreSQL", "postgres_url", postgres_bytes), ("SQLite", "sqlite_url", sqlite_bytes)],
)
def test_a_job_takes_the_bytes_that_the_page_says(
    store: str, address: str, size: Callable[[str], int], request: pytest.FixtureRequest
) -> None:
    url = str(request.getfixturevalue(address))
    app = Holdfast(url)

    @app.job("order.charge")
    async def charge(job: Job[dict[str, object]]) -> None: ...

    app.migrate()
    empty = size(url)
    with app.transaction() as tx:
        app.start_many(tx, charge, [INPUT] * JOBS)
    started = size(url)
    Kit(app, url).run_until_idle()
    finished = size(url)
    app.close()
    on_start, on_completion = said(store)
    assert (started - empty) / JOBS == pytest.approx(on_start, rel=0.15)
    assert (finished - started) / JOBS == pytest.approx(on_completion, rel=0.15)
