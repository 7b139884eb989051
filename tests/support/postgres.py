"""A database for each test, copied from a template that is prepared once per server."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from holdfast.storage.postgres.database import PostgresDatabase
from tests.support.installation import embedded_binaries
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess
from tests.support.reuse import business_tables, dismiss, emptied, shape_of

URL_VARIABLE = "HOLDFAST_TEST_URL"


def prepare_template(url: str) -> None:
    """Bring the empty database at this address to the state in which every test finds its own."""
    database = PostgresDatabase(url)
    database.migrate()
    # A copy of the template is a database of its own, not a restored one.
    with database.transaction() as transaction:
        transaction.connection.execute("delete from holdfast.identity")
    database.close()


class StartPostgres(Protocol):
    """Starts a server of the test's own, with settings added to the usual ones."""

    def __call__(self, settings: Mapping[str, str] | None = None) -> PostgresProcess: ...


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server, ours or one named by HOLDFAST_TEST_URL, with its prepared template."""

    url: str
    version: int
    template: str
    shape: str
    is_lasting: bool
    tables: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the address of a database like the template: a used one that was emptied, or a fresh copy."""
        name = self.idle.pop() if self.idle else self._copy()
        url = with_database(self.url, name)
        try:
            yield url
        finally:
            if emptied(url, self.shape, self.tables):
                self.idle.append(name)
            else:
                self.drop(name)

    @contextmanager
    def with_tables(self, make: Callable[[str], object]) -> Iterator["PostgresServer"]:
        """Yield the same server with more tables in the template of its databases."""
        name = self._copy()
        url = with_database(self.url, name)
        make(url)
        with psycopg.connect(url) as connection:
            shape, tables = shape_of(connection), business_tables(connection)
        more = replace(self, template=name, shape=shape, tables=tables, idle=[])
        try:
            yield more
        finally:
            more.leave()
            if self.is_lasting:
                self.drop(name)

    def _copy(self) -> str:
        name = f"holdfast_test_{uuid4().hex}"
        self._execute(
            sql.SQL("create database {} template {}").format(
                sql.Identifier(name), sql.Identifier(self.template)
            )
        )
        return name

    @contextmanager
    def used(self) -> Iterator["PostgresServer"]:
        """Yield the server, which others started, and end our use of it."""
        try:
            yield self
        finally:
            self.leave()

    def drop_idle(self) -> None:
        """Drop the databases that wait for another test."""
        while self.idle:
            self.drop(self.idle.pop())

    def leave(self) -> None:
        """End the use of the server: one that outlives the tests keeps nothing of them."""
        for name in self.idle:
            dismiss(with_database(self.url, name))
        if self.is_lasting:
            self.drop_idle()

    def drop(self, name: str) -> None:
        """Drop a database and end whoever is still connected to it."""
        dismiss(with_database(self.url, name))
        self._execute(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        )

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def serve_for_tests() -> Iterator[PostgresServer]:
    """Yield the server the tests run on: HOLDFAST_TEST_URL's, else the embedded one."""
    with ExitStack() as stack:
        url = os.environ.get(URL_VARIABLE)
        if url:
            yield stack.enter_context(templated(url, is_lasting=True))
        else:
            yield stack.enter_context(serve_installed(embedded_binaries()))


@contextmanager
def serve_installed(binaries: Path) -> Iterator[PostgresServer]:
    """Yield a server run from programs found on the machine."""
    process = PostgresProcess(binaries, login_rounds=QUICK_LOGIN_ROUNDS)
    with process, templated(process.url) as server:
        yield server


@contextmanager
def templated(url: str, is_lasting: bool = False) -> Iterator[PostgresServer]:
    """Make the template on a running server; on one that outlives the tests, drop it afterwards."""
    template = f"holdfast_template_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("create database {} template template0").format(sql.Identifier(template))
        )
        version = connection.info.server_version // 10_000
    template_url = with_database(url, template)
    prepare_template(template_url)
    with psycopg.connect(template_url, autocommit=True) as connection:
        shape = shape_of(connection)
    server = PostgresServer(url, version, template, shape, is_lasting)
    try:
        yield server
    finally:
        server.leave()
        if is_lasting:
            server.drop(template)


def with_database(url: str, name: str) -> str:
    """Return the address of another database on the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()
