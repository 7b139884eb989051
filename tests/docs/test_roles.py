"""The printed roles suffice for what each is meant to do, and for nothing else, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from holdfast import Holdfast, Job, errors
from holdfast.settings import read_settings
from holdfast.worker.options import worker_options
from holdfast_postgres.grants import grants_sql
from tests.docs.newcomer import run
from tests.docs.snippets import blocks
from tests.support.postgres import PostgresServer

ROLES = ("owner", "producer", "worker", "operator", "readonly")


def printed(file: str) -> str:
    """The SQL of the page under this name."""
    (text,) = [
        each.text for each in blocks("docs/run/security.md") if each.text.startswith(f"-- {file}\n")
    ]
    return text


@dataclass(frozen=True, slots=True)
class Cast:
    """The roles of one test's database, under names that no other test has."""

    url: str
    prefix: str
    password: str

    def named(self, role: str) -> str:
        return f"{self.prefix}_{role}"

    def of(self, role: str) -> str:
        """The URL under which a role connects."""
        parts = urlsplit(self.url)
        address = f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""
        return urlunsplit(parts._replace(netloc=f"{self.named(role)}:{self.password}@{address}"))

    def text(self, file: str) -> str:
        """A printed SQL file, for this database and these names."""
        name = urlsplit(self.url).path.lstrip("/")
        roles = re.sub(
            r"\bholdfast_(?=owner|producer|worker|operator|readonly)",
            f"{self.prefix}_",
            printed(file),
        )
        return roles.replace("database shop", f'database "{name}"')

    def grants(self) -> str:
        """What the page has printed by a command, for these names."""
        return grants_sql("holdfast", {role: self.named(role) for role in ROLES})

    def app(self, role: str) -> Holdfast:
        """An application that connects as a role."""
        app = Holdfast(self.of(role))

        @app.job("order.charge")
        def charge(job: Job[int]) -> int:
            return job.input

        @app.on("order.placed")
        def mail(job: Job[int]) -> None: ...

        @app.job("order.close", atomic=True)
        def close(job: Job[int]) -> list[int]:
            return [int(each.output) for each in job.blockers]

        @app.cycle("hourly", every="1h")
        def hourly(run: object) -> None: ...

        return app


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database for all tests here, because making the roles takes longer than trying them."""
    with postgres_server.database() as found:
        yield found


@contextmanager
def printed_roles(url: str) -> Iterator[Cast]:
    """The printed roles on a database without tables."""
    found = Cast(url, f"h{secrets.token_hex(4)}", secrets.token_hex(8))
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("drop schema if exists holdfast cascade")
        admin.execute(found.text("roles.sql").encode())
        for role in ROLES:
            name = sql.Identifier(found.named(role))
            admin.execute(sql.SQL("alter role {} password {}").format(name, found.password))
        yield found
        for role in ROLES:
            name = sql.Identifier(found.named(role))
            admin.execute(sql.SQL("drop owned by {} cascade").format(name))
            admin.execute(sql.SQL("drop role {}").format(name))


@pytest.fixture(scope="module")
def cast(url: str) -> Iterator[Cast]:
    """The printed roles on that database, migrated by its owner."""
    with printed_roles(url) as found:
        owner = found.app("owner")
        owner.migrate()
        owner.close()
        with psycopg.connect(found.of("owner"), autocommit=True) as connection:
            connection.execute(found.grants().encode())
        yield found


def place(app: Holdfast) -> str:
    """Use everything a producer may: keys, events, blockers, delays."""
    with app.transaction() as tx:
        parts = app.start_many(tx, "order.charge", [1, 2], keys=["a", "b"])
        app.start(tx, "order.charge", 1, key="a")
        app.publish(tx, "order.placed", 1)
        whole = app.start(tx, "order.close", 1, blockers=parts)
        app.start(tx, "order.charge", 3, after="1h")
        for input in (4, 5):
            app.start(tx, "order.charge", input, key="quiet", debounce="1h")
    return str(whole.id)


def work(app: Holdfast) -> None:
    """Do all that a worker and a tick do."""

    async def both() -> None:
        options = worker_options(read_settings({}))
        await app.make_worker(replace(options, stop_when_idle=True)).run()
        tick = app.assembly(read_settings({})).tick()
        summary = await tick.run()
        await tick.close()
        await app.aclose()
        assert summary.failed_runners == []

    asyncio.run(both())


def refused(cast: Cast, role: str, statement: LiteralString) -> None:
    """Expect that a role may not do this."""
    with (
        psycopg.connect(cast.of(role)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)


def test_a_producer_starts_and_a_worker_runs_it(cast: Cast) -> None:
    producer = cast.app("producer")
    whole = place(producer)
    assert producer.chains.get(whole).state == "blocked"
    work(cast.app("worker"))
    assert producer.chains.wait(whole, timeout="10s").output == [1, 2]
    assert {each.type for each in producer.jobs.list("state:completed")} == {
        "order.charge",
        "order.close",
        "order.placed/mail",
    }
    producer.close()


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("producer", "update holdfast.queue set token = gen_random_uuid()"),
        ("producer", "delete from holdfast.job"),
        ("producer", "insert into holdfast.outcome default values"),
        ("producer", "select 1 from holdfast.api_token"),
        ("worker", "create table holdfast.mine (id integer)"),
        ("worker", "insert into holdfast.api_token default values"),
        ("worker", "update holdfast.type_setting set paused = false"),
        ("worker", "select 1 from holdfast.audit"),
        ("operator", "delete from holdfast.audit"),
        ("operator", "alter table holdfast.job add column mine integer"),
        ("readonly", "select 1 from holdfast.api_token"),
        ("readonly", "delete from holdfast.queue"),
    ],
)
def test_a_role_may_not_do_what_is_not_its_business(
    cast: Cast, role: str, statement: LiteralString
) -> None:
    refused(cast, role, statement)


def test_an_operator_sets_types_and_makes_tokens(cast: Cast, tmp_path: Path) -> None:
    producer = cast.app("producer")
    place(producer)
    producer.close()
    for line in (
        "types set order.charge --concurrency 2 --yes --reason slow",
        "types pause order.charge --yes",
        "types resume order.charge --yes",
        "token create --role viewer --name grafana",
        "jobs cancel type:order.charge --yes",
    ):
        run(tmp_path, "holdfast", *line.split(), HOLDFAST_URL=cast.of("operator"))


def test_a_reader_reads_and_starts_nothing(cast: Cast, tmp_path: Path) -> None:
    reader = cast.app("readonly")
    reader.jobs.list()
    with pytest.raises(errors.RoleRefused), reader.transaction() as tx:
        reader.start(tx, "order.charge", 1)
    reader.close()
    run(tmp_path, "holdfast", "status", HOLDFAST_URL=cast.of("readonly"))
    with psycopg.connect(cast.of("readonly")) as connection:
        connection.execute("select * from holdfast.jobs, holdfast.outbox")
