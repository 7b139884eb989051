"""The shop's own tables, in the same database as its jobs, and its own connection to them.

Nothing here prevents a second payment: that is up to Holdfast, and the ledger checks it. Statements are written with
psycopg's parameters and converted for SQLite.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.client.url import parse_url
from holdfast.storage.operation import SyncExecutor

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "sqlite3.Connection | psycopg.Connection[Any]"

SCHEMA = "holdfast_demo"
"""The queue's schema on PostgreSQL, apart from everything else in the database."""

PLACE = """
insert into shop_order (id, item, amount, placed_at)
select coalesce(max(id), 0) + 1, %(item)s, %(amount)s, %(at)s from shop_order
returning id
"""
RESERVE = "insert into shop_reservation (order_id, at) values (%(order)s, %(at)s)"
BEGIN_PAYMENT = """
insert into shop_payment_begun (order_id, attempt, at) values (%(order)s, %(attempt)s, %(at)s)
"""
PAY = """
insert into shop_payment (order_id, amount, attempt, worker, at)
values (%(order)s, %(amount)s, %(attempt)s, %(worker)s, %(at)s)
"""
SHIP = "update shop_order set shipped_at = %(at)s where id = %(order)s"
MAIL = """
insert into shop_mail (message_key, order_id, at) values (%(key)s, %(order)s, %(at)s)
on conflict (message_key) do nothing
"""
GATEWAY_IS_DOWN = "select is_on from shop_switch where name = 'gateway is down'"
SET_GATEWAY = "update shop_switch set is_on = %(is_on)s where name = 'gateway is down'"
LEDGER = """
select (select count(*) from shop_order),
       (select count(distinct order_id) from shop_payment),
       (select count(*) from (select order_id from shop_payment group by order_id having count(*) > 1) twice),
       (select count(*) from shop_order o
         where not exists (select 1 from shop_payment p where p.order_id = o.id)),
       (select count(distinct b.order_id) from shop_payment_begun b
         where not exists (select 1 from shop_payment p where p.order_id = b.order_id)),
       (select count(*) from shop_order where shipped_at is not null),
       (select count(*) from shop_mail),
       (select count(*) from shop_payment where at > %(since)s)
"""

_TABLES = (
    """
    create table if not exists shop_order (
      id integer primary key, item text not null, amount integer not null,
      placed_at double precision not null, shipped_at double precision)
    """,
    """
    create table if not exists shop_reservation (
      order_id integer not null, at double precision not null)
    """,
    """
    create table if not exists shop_payment_begun (
      order_id integer not null, attempt integer not null, at double precision not null)
    """,
    """
    create table if not exists shop_payment (
      order_id integer not null, amount integer not null, attempt integer not null,
      worker text not null, at double precision not null)
    """,
    "create index if not exists shop_payment_order on shop_payment (order_id)",
    """
    create table if not exists shop_mail (
      message_key text primary key, order_id integer not null, at double precision not null)
    """,
    "create table if not exists shop_switch (name text primary key, is_on integer not null)",
    """
    insert into shop_switch (name, is_on) values ('gateway is down', 0)
    on conflict (name) do update set is_on = 0
    """,
)
_DROPPED = (
    "drop table if exists shop_order",
    "drop table if exists shop_reservation",
    "drop table if exists shop_payment_begun",
    "drop table if exists shop_payment",
    "drop table if exists shop_mail",
    "drop table if exists shop_switch",
    "drop schema if exists holdfast_demo cascade",
)
_PARAMETER = re.compile(r"%\((\w+)\)s")


def with_dialect_params(statement: str, dialect: str) -> str:
    """Return a statement with the parameter style of a dialect's driver."""
    return _PARAMETER.sub(r":\1", statement) if dialect == "sqlite" else statement


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """Open the shop's own connection, as any application does; outside of `transaction` it autocommits.

    Raises: DatabaseUnreachable, WrongDatabase.
    """
    address = parse_url(url)
    if address.dialect == "sqlite":
        with closing(_file(address.path)) as file:
            yield file
        return
    import psycopg

    from holdfast.storage.postgres.connection import unreachable

    try:
        connection = psycopg.connect(address.url, autocommit=True)
    except psycopg.OperationalError as error:
        raise unreachable(address.url, error) from error
    with connection:
        yield connection


def _file(path: str) -> sqlite3.Connection:
    from holdfast.storage.sqlite.connection import translate

    try:
        file = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            file.execute("pragma journal_mode = wal")
        except sqlite3.Error:
            file.close()
            raise
    except sqlite3.Error as error:
        raise translate(error) or error from None
    return file


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Run the block in one transaction."""
    if not isinstance(connection, sqlite3.Connection):
        with connection.transaction():
            yield
        return
    connection.execute("begin immediate")
    try:
        yield
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


@contextmanager
def snapshot(connection: Connection) -> Iterator[SyncExecutor]:
    """Read everything in the block from one snapshot; yields an executor for the queue's own tables."""
    if isinstance(connection, sqlite3.Connection):
        from holdfast.storage.sqlite.transaction import SqliteExecutor

        connection.execute("begin")
        try:
            yield SqliteExecutor(connection)
        finally:
            connection.execute("rollback")
        return
    from psycopg import IsolationLevel

    from holdfast.storage.postgres.connection import PsycopgExecutor

    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    with connection.transaction():
        yield PsycopgExecutor(connection, SCHEMA)


def execute(connection: Connection, statement: str, **values: Any) -> tuple[Any, ...] | None:
    """Run one statement and return its first row."""
    if isinstance(connection, sqlite3.Connection):
        row: tuple[Any, ...] | None = connection.execute(
            with_dialect_params(statement, "sqlite"), values
        ).fetchone()
        return row
    cursor = connection.execute(statement.encode(), values)
    return cursor.fetchone() if cursor.description else None


def open_shop(connection: Connection) -> None:
    """Create missing tables; the gateway works."""
    with transaction(connection):
        for statement in _TABLES:
            execute(connection, statement)


def close_shop(url: str) -> None:
    """Drop the shop's tables and its queue from a PostgreSQL database."""
    with connect(url) as connection, transaction(connection):
        for statement in _DROPPED:
            execute(connection, statement)
