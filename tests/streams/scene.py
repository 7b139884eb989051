"""An application with consumers, what they write, and workers to run them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.events import Event
from holdfast.settings import load_settings
from holdfast_streams import Streams, add_streams
from holdfast_streams.reader_store import READERS, LineRecord, ParkedEvent
from tests.support.until import until

CREATE = """create table if not exists taken (
  n integer not null, key text, place bigint, line integer, at_process integer)"""


ON_EVERY_SERVER = pytest.mark.parametrize(
    "url", ["postgres", "sqlite", "other_postgres"], indirect=True
)
"""SQLite, and both versions of PostgreSQL: for what rests on their locks and on the order of their commits."""


class Scene:
    """One application on a database; `taken` is what its consumers wrote, in the order of writing."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.events: list[Event] = []
        self.app = Holdfast(url, **options)
        self.app.observe(self)
        self.streams: Streams = add_streams(self.app)
        self.is_postgres = url.startswith("postgres")
        with self.app.transaction() as tx:
            tx.execute(CREATE)

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def told(self, name: str) -> list[dict[str, Any]]:
        """The fields of the events of a name."""
        return [each.fields for each in self.events if each.name == name]

    def insert(self, tx: Any, event: Any) -> None:
        """Write down that a consumer took an event."""
        tx.execute(self.write, (event.data["n"], event.key, event.place))

    @property
    def write(self) -> str:
        sign = "%s" if self.is_postgres else "?"
        return f"insert into taken (n, key, place) values ({sign}, {sign}, {sign})"  # noqa: S608

    def publish(self, *numbers: int, key: str | None = None, event: str = "order.paid") -> None:
        """Publish events, each in a transaction of its own."""
        for n in numbers:
            with self.app.transaction() as tx:
                self.app.publish(tx, event, {"n": n}, key=key)

    def taken(self) -> list[int]:
        """The numbers that consumers wrote."""
        rows: list[Any]
        # On a connection of its own: a read must wait for no consumer.
        if self.is_postgres:
            with psycopg.connect(self.url) as connection:
                rows = connection.execute("select n from taken").fetchall()
        else:
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file:
                rows = file.execute("select n from taken order by rowid").fetchall()
        return [row[0] for row in rows]

    def lines(self, reader: str) -> list[LineRecord]:
        """How far a reader is."""
        return [each for each in self.app.database.read(READERS.lines()) if each.reader == reader]

    def parked_events(self, reader: str) -> list[ParkedEvent]:
        """What a reader parked."""
        return self.app.database.read(READERS.parked_events(reader, None, 1000))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Have a worker at work."""
        async with self.app.worker(load_settings({}), enabled=True):
            yield
        await self.app.aclose()

    async def until_taken(self, *numbers: int) -> None:
        """Wait until consumers have written just these numbers, in any order."""
        await until(lambda: sorted(self.taken()) == sorted(numbers))


@contextmanager
def planted(statements: dict[str, Any], name: str, change: Callable[[str], str]) -> Iterator[None]:
    """Change a statement for a while."""
    before = statements[name]
    statements[name] = change(before)
    try:
        yield
    finally:
        statements[name] = before
