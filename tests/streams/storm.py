"""A storm of publishers that roll back, prepare, die and commit in any order, and readers that go through it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import msgspec
import psycopg

from holdfast import Holdfast
from holdfast.storage.operation import Statement
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.worker.clock import SystemClock
from holdfast_streams.line_reader import HeldLine, LineReader
from holdfast_streams.reader_store import EARLIEST, READERS, LineToken
from tests.support.until import wait_until

KEYS = 40
LINES = 16
FATES = ("committed", "rolled back", "killed", "prepared")
"""What becomes of transactions."""

LEAST = 5
"""How many of each there are in a storm."""


class Storm:
    """Publishers in threads; each event of a key says the number that its row had."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url, hints=False)
        self.counts: Counter[str] = Counter()
        self._stop = threading.Event()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table numbers (key text primary key, n int not null)")
            connection.execute(
                "insert into numbers select 'k' || g, 0 from generate_series(0, %s) g", [KEYS - 1]
            )
        self.app.database.run(READERS.register("storm", "consumer", ["storm.*"], EARLIEST))

    def blow(self, seconds: float, publishers: int = 8) -> None:
        """Publish for so long, and until there were some of every kind."""
        self._stop.clear()
        threads = [threading.Thread(target=self._publish, args=(i,)) for i in range(publishers)]
        for each in threads:
            each.start()
        time.sleep(seconds)
        try:
            wait_until(lambda: all(self.counts[each] >= LEAST for each in FATES))
        finally:
            self._stop.set()
        for each in threads:
            each.join()

    def _publish(self, seed: int) -> None:
        rnd, connection = random.Random(seed), None
        while not self._stop.is_set():
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(self.url, autocommit=True)
                self._transact(connection, rnd)
            except psycopg.Error as error:
                self.counts[type(error).__name__] += 1
                if connection is not None:
                    connection.close()
        if connection is not None:
            connection.close()

    def _transact(self, connection: psycopg.Connection[Any], rnd: random.Random) -> None:
        connection.execute("begin")
        for turn in range(rnd.choice((1, 1, 2, 3))):
            if turn == 0 and rnd.random() < 0.7:
                key = f"k{rnd.randrange(KEYS)}"
                row = connection.execute(
                    "update numbers set n = n + 1 where key = %s returning n", [key]
                ).fetchone()
                assert row is not None
                self._append(connection, key, row[0])
            else:
                self._append(connection, f"free {rnd.random()}", 0)
            if rnd.random() < 0.15:
                connection.execute("savepoint s")
                self._append(connection, f"free {rnd.random()}", 0)
                connection.execute("rollback to s")
            time.sleep(rnd.random() * (0.3 if rnd.random() < 0.05 else 0.01))
        self._end(connection, rnd)

    def _append(self, connection: psycopg.Connection[Any], key: str, n: int) -> None:
        self.app.publish(connection, "storm.event", {"n": n}, key=key)

    def _end(self, connection: psycopg.Connection[Any], rnd: random.Random) -> None:
        fate = rnd.random()
        if fate < 0.15:
            connection.execute("rollback")
            self.counts["rolled back"] += 1
        elif fate < 0.18:
            self.counts["killed"] += 1
            with psycopg.connect(self.url, autocommit=True) as other:
                other.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
            connection.execute("commit")
        elif fate < 0.3:
            name = uuid4().hex
            connection.execute(f"prepare transaction '{name}'".encode())
            time.sleep(rnd.random() * 0.1)
            verb = "commit" if rnd.random() < 0.7 else "rollback"
            connection.execute(f"{verb} prepared '{name}'".encode())
            self.counts["prepared"] += 1
        else:
            connection.execute("commit")
            self.counts["committed"] += 1

    def truth(self) -> set[str]:
        """The ids of all events that were committed."""
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("select id::text from holdfast.log").fetchall()
            return {row[0] for row in rows}


class Watcher:
    """Reads all lines as a process does, and keeps what it read."""

    def __init__(
        self, url: str, kind: type[LineReader] = LineReader, poll_s: float = 0.002
    ) -> None:
        self._database = PostgresDatabase(url)
        self._poll_s = poll_s
        self._link = self._database.link("streams read")
        self._reader = kind(self._link, SystemClock())
        self.seen: list[tuple[int, list[Any]]] = []
        self.held = [HeldLine(LineToken("storm", n, "-"), 0, 1) for n in range(LINES)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Watcher:
        rows = await self._link.run(_positions())
        for line, position in rows:
            self.held[line].move(position)
        self._tasks = [asyncio.create_task(self._read(each)) for each in self.held]
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.held:
            each.ended.set()
        await asyncio.gather(*self._tasks)
        await self._link.close()
        await self._database.close_async()

    async def _read(self, held: HeldLine) -> None:
        while not held.ended.is_set():
            found = await self._reader.read(held, 200)
            if found is None or found.upto is None:
                await asyncio.sleep(self._poll_s)
                continue
            events = msgspec.json.decode(found.text) if found.text else []
            self.seen += [(held.line, each) for each in events]
            held.move(found.upto)

    @property
    def ids(self) -> list[str]:
        return [event[5] for _, event in self.seen]

    def order_breaks(self) -> int:
        """How often an event of a key came after a later one, or a place after a later one of its line."""
        numbers: dict[str, int] = defaultdict(int)
        places: dict[int, int] = defaultdict(int)
        broken = 0
        for line, (place, _, key, data, *_rest) in self.seen:
            broken += place <= places[line]
            places[line] = place
            if key.startswith("k"):
                broken += data["n"] <= numbers[key]
                numbers[key] = data["n"]
        return broken


def _positions() -> Any:
    rows: Iterable[Any] = yield Statement("reader_lines", {"now": None})
    return [(row[1], row[2]) for row in rows]


class Hasty(LineReader):
    """A planted defect: it takes every gap for a rollback at once."""

    async def _settle(self, held: HeldLine, seen: int) -> None:
        self._settled[held.line] = seen
