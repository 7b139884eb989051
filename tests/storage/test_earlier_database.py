"""A database made by the version before the fold is migrated with everything in it, and its jobs run on."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import load_migrations
from holdfast.storage.postgres import migrations as postgres_migrations
from holdfast.storage.sqlite import migrations as sqlite_migrations

APP = """
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("mail.send")
def send(job: Job[str]) -> str:
    return f"sent {job.input}"

@app.job("mail.count")
def count(job: Job[str]) -> list[object]:
    return [each.output for each in job.blockers]

@app.on("order.placed", name="mail")
def placed(job: Job[int]) -> int:
    return job.input
"""

STEPS = {"holdfast.storage.postgres": 5, "holdfast.storage.sqlite": 3}
"""The migrations of that version."""


@dataclass(frozen=True)
class Dialect:
    """How the rows of that version are written."""

    prefix: str
    long_ago: str
    never: str
    ids: Callable[[str], str]


DIALECTS = {
    "postgres_url": Dialect(
        "earlier.", "now() - interval '1 hour'", "'infinity'", lambda id: f"array['{id}'::uuid]"
    ),
    "absent_sqlite_url": Dialect(
        "holdfast_",
        "(select now from holdfast_clock) - 3600000000",
        "9223372036854775807",
        lambda id: f"'[\"{id}\"]'",
    ),
}


class Earlier:
    """A database of that version with one job in each state, and the commands of today."""

    def __init__(self, url: str, dialect: Dialect, folder: Path) -> None:
        self.app = Holdfast(url, schema="earlier", open_types=True)
        self._folder = folder
        self._url = url
        self._write = dialect
        self._environment = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_SCHEMA": "earlier"}

    def fill(self) -> dict[str, str]:
        """Write the rows as that version did; return the ids of the jobs."""
        ids = {name: new_id() for name in ("waiting", "lost", "blocked", "failed", "done")}
        at, token = self._write.long_ago, new_id()
        with self._connect() as tx:
            for name, id in ids.items():
                type = "mail.count" if name == "blocked" else "mail.send"
                blockers = int(name == "blocked")
                values = f"'{id}', '{id}', 0, '{type}', '\"{name}\"', 5, {blockers}, {at}"
                columns = "id, chain_id, chain_index, type, input, priority, blockers, created_at"
                self._insert(tx, "job", columns, values)
            queue = "job_id, type, priority, available_at, attempt, token, awaited"
            for name, rest in {
                "waiting": f"{at}, 0, null, {self._true}",
                "lost": f"{at}, 1, '{token}', {self._false}",
                "blocked": f"{self._write.never}, 0, null, {self._false}",
            }.items():
                type = "mail.count" if name == "blocked" else "mail.send"
                self._insert(tx, "queue", queue, f"'{ids[name]}', '{type}', 5, {rest}")
            self._insert(
                tx,
                "lease",
                "token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms,"
                " backoff_cap_ms, job_ids",
                f"'{token}', 'w-1', {at}, {at}, 60000, 25, 1, 1, {self._write.ids(ids['lost'])}",
            )
            edge = f"'{ids['blocked']}', 0, '{ids['waiting']}', {self._true}"
            self._insert(tx, "blocker", "job_id, position, chain_id, open", edge)
            outcome = "job_id, type, state, output, error, attempts, crashes, fence, finished_at"
            for name, result in {
                "failed": "'failed', null, 'SMTPError: mailbox full'",
                "done": "'completed', '\"sent done\"', null",
            }.items():
                values = f"'{ids[name]}', 'mail.send', {result}, 1, 0, 1, {at}"
                self._insert(tx, "outcome", outcome, values)
            attempt = f"'{ids['failed']}', 1, 1, 'fail', 'w-1', {at}, 'SMTPError: mailbox full'"
            columns = "job_id, fence, attempt, kind, worker, ended_at, error"
            self._insert(tx, "attempt", columns, attempt)
            key = f"'mail.send', 'order:7', '{ids['waiting']}'"
            self._insert(tx, "chain_key", "type, key, chain_id", key)
            subscription = f"'order.placed', 'mail', {at}"
            self._insert(tx, "subscription", "event, handler, created_at", subscription)
        return ids

    def run(self, *words: str) -> str:
        """Run a command of today in the application's folder."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _insert(self, tx: Any, table: str, columns: str, values: str) -> None:
        text = f"insert into {self._write.prefix}{table} ({columns}) values ({values})"  # noqa: S608
        tx.execute(text)

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """A plain connection: the application refuses a schema that is too old."""
        if self._url.startswith("sqlite"):
            with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"))) as file, file:
                yield file
            return
        with psycopg.connect(self._url) as connection:
            yield connection

    @property
    def _true(self) -> str:
        return "true" if self._write.prefix == "earlier." else "1"

    @property
    def _false(self) -> str:
        return "false" if self._write.prefix == "earlier." else "0"


@pytest.fixture(params=DIALECTS)
def earlier(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Earlier]:
    url: str = request.getfixturevalue(request.param)
    for module in (postgres_migrations, sqlite_migrations):
        monkeypatch.setattr(
            module, "load_migrations", lambda name: load_migrations(name)[: STEPS[name]]
        )
    if request.param == "postgres_url":
        make_postgres(url)
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(sqlite_migrations.migration_sql())
    monkeypatch.undo()
    (tmp_path / "app.py").write_text(APP)
    found = Earlier(url, DIALECTS[request.param], tmp_path)
    yield found
    if request.param == "postgres_url":
        with found.app.transaction() as tx:
            tx.execute("drop schema earlier cascade")
    found.app.close()


def make_postgres(url: str) -> None:
    """Make the schema of that version, a statement at a time."""
    script = postgres_migrations.migration_sql("earlier")
    with psycopg.connect(url, autocommit=True) as connection:
        for each in postgres_migrations.statements_of(script):
            connection.execute(each.encode())


def test_a_database_of_the_version_before_is_migrated_and_its_jobs_run_on(earlier: Earlier) -> None:
    ids = earlier.fill()
    assert "up to date" not in earlier.run("migrate", "--app", "app:app")
    earlier.run("reap")
    earlier.run("worker", "app:app", "--drain")

    jobs = {name: earlier.app.jobs.get(id) for name, id in ids.items()}
    assert {name: job.state for name, job in jobs.items()} == {
        "waiting": "completed",
        "lost": "completed",
        "blocked": "completed",
        "failed": "failed",
        "done": "completed",
    }
    assert (jobs["waiting"].output, jobs["waiting"].version) == ("sent waiting", 1)
    assert (jobs["lost"].output, jobs["lost"].crashes) == ("sent lost", 1)
    assert jobs["blocked"].output == ["sent waiting"]
    assert jobs["done"].output == "sent done"

    (dead,) = earlier.app.dead_letters.list().items
    assert (str(dead.id), dead.error) == (ids["failed"], "SMTPError: mailbox full")
    with earlier.app.transaction() as tx:
        earlier.app.dead_letters.redrive(tx, dead.id)
        (delivery,) = earlier.app.publish(tx, "order.placed", 7)
        again = earlier.app.start(tx, "mail.send", "again", key="order:7")
    assert delivery.type == "order.placed/mail"
    assert not again.deduplicated  # its chain has completed
    earlier.run("worker", "app:app", "--drain")
    assert earlier.app.chains.get(dead.id).output == "sent failed"
    assert earlier.app.chains.get(delivery.id).output == 7


def test_a_key_of_the_version_before_still_deduplicates(earlier: Earlier) -> None:
    ids = earlier.fill()
    earlier.run("migrate", "--app", "app:app")
    with earlier.app.transaction() as tx:
        again = earlier.app.start(tx, "mail.send", "again", key="order:7")
    assert (str(again.id), again.deduplicated) == (ids["waiting"], True)
