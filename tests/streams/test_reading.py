"""Nothing is skipped and nothing is read before its turn, on every PostgreSQL that we test with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.streams.storm import FATES, LEAST, Hasty, Storm, Watcher
from tests.support.absent import skip_because_absent
from tests.support.installation import embedded_binaries, other_binaries
from tests.support.postgres import PostgresServer, templated
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess
from tests.support.until import until

STORM_S = 1.5
PUBLISHER_OPEN_S, UNRELATED_OPEN_S = 30.0, 600.0


@pytest.fixture(scope="module", params=["ours", "other"])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server of each version that takes prepared transactions."""
    binaries = embedded_binaries() if request.param == "ours" else other_binaries()
    if binaries is None:
        skip_because_absent(
            "a second version of PostgreSQL", "On Debian or Ubuntu: apt-get install postgresql"
        )
    settings = {"max_prepared_transactions": "50"}
    process = PostgresProcess(binaries, settings, QUICK_LOGIN_ROUNDS)
    with process, templated(process.url) as found:
        yield found


@pytest.fixture
def database_url(server: PostgresServer) -> Iterator[str]:
    with server.database() as url:
        yield url


def holders(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select virtualtransaction from pg_locks where locktype = 'relation'"
            " and relation = 'holdfast.log_line_3'::regclass and mode = 'RowExclusiveLock'"
        ).fetchall()
        return [row[0] for row in rows]


def test_nextval_locks_its_sequence_until_the_transaction_ends_whatever_is_undone_on_the_way(
    database_url: str,
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("begin")
        connection.execute("savepoint s")
        connection.execute("select nextval('holdfast.log_line_3')")
        connection.execute("rollback to s")
        (session,) = holders(database_url)
        connection.execute("prepare transaction 'pinned'")
    # Most versions keep its name; those that do not name it by its number.
    (prepared,) = holders(database_url)
    assert prepared == session or prepared.startswith("-1/")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("rollback prepared 'pinned'")
    assert holders(database_url) == []


async def test_a_storm_is_read_without_gaps_and_in_order(database_url: str) -> None:
    storm = Storm(database_url)
    async with Watcher(database_url) as watcher:
        await asyncio.to_thread(storm.blow, STORM_S)
        truth = storm.truth()
        await until(lambda: truth <= set(watcher.ids))
    storm.app.close()
    for each in FATES:
        assert storm.counts[each] >= LEAST, storm.counts
    assert len(watcher.ids) == len(truth)
    assert set(watcher.ids) == truth
    assert watcher.order_breaks() == 0


async def test_planted_a_reader_that_takes_gaps_for_rollbacks_skips_events(
    database_url: str,
) -> None:
    storm = Storm(database_url)
    async with Watcher(database_url, Hasty) as watcher:

        async def skipped() -> set[str]:
            await asyncio.to_thread(storm.blow, STORM_S)
            await asyncio.sleep(0.5)
            return storm.truth() - set(watcher.ids)

        await until(skipped)
    storm.app.close()


async def test_commits_in_the_reverse_order_of_their_inserts_are_read_in_that_of_the_inserts(
    database_url: str,
) -> None:
    storm = Storm(database_url)
    connections = [psycopg.connect(database_url, autocommit=True) for _ in range(5)]
    async with Watcher(database_url) as watcher:
        for n, each in enumerate(connections, 1):
            each.execute("begin")
            storm.app.publish(each, "storm.event", {"n": n}, key="k1")
        for each in reversed(connections[1:]):
            each.execute("commit")
        await asyncio.sleep(0.3)
        assert watcher.ids == []
        connections[0].execute("commit")
        await until(lambda: len(watcher.ids) == 5)
    assert watcher.order_breaks() == 0
    for each in connections:
        each.close()
    storm.app.close()


async def test_an_open_transaction_delays_nothing_but_the_lines_that_it_has_published_to(
    database_url: str,
) -> None:
    storm = Storm(database_url)
    unrelated = psycopg.connect(database_url, autocommit=True)
    unrelated.execute("begin")
    unrelated.execute("insert into numbers values ('other', 0)")
    publisher = psycopg.connect(database_url, autocommit=True)
    publisher.execute("begin")
    storm.app.publish(publisher, "storm.event", {"n": 0}, key="held")
    async with Watcher(database_url) as watcher:
        with storm.app.transaction() as tx:
            for n in range(100):
                storm.app.publish(tx, "storm.event", {"n": n}, key=f"free {n}")
            storm.app.publish(tx, "storm.event", {"n": 1}, key="held")

        def keys() -> set[str]:
            return {event[2] for _, event in watcher.seen}

        # A line in sixteen waits, so some of the hundred keys do.
        await until(lambda: len(keys()) > 80)
        assert "held" not in keys()
        waiting = 101 - len(watcher.ids)
        assert 0 < waiting < 20
        publisher.execute("rollback")
        await until(lambda: len(watcher.ids) == 101)
    for each in (unrelated, publisher):
        each.close()
    storm.app.close()


@pytest.mark.lasting
async def test_a_transaction_that_is_open_for_ten_minutes_delays_nobody_else(
    database_url: str,
) -> None:
    storm = Storm(database_url)
    unrelated, publisher = (psycopg.connect(database_url, autocommit=True) for _ in range(2))
    unrelated.execute("begin")
    unrelated.execute("insert into numbers values ('other', 0)")
    publisher.execute("begin")
    storm.app.publish(publisher, "storm.event", {"n": 1}, key="held")
    began, count, held, latest_s = time.monotonic(), 0, 0, 0.0
    async with Watcher(database_url, poll_s=0.05) as watcher:
        while (passed := time.monotonic() - began) < UNRELATED_OPEN_S:
            if passed > PUBLISHER_OPEN_S and not held:
                publisher.execute("commit")
                held = 1
            count += 1
            with storm.app.transaction() as tx:
                storm.app.publish(tx, "storm.event", {"n": count}, key="free")
            at, seen = time.monotonic(), count + held
            await until(lambda seen=seen: len(watcher.ids) == seen)  # type: ignore[misc]
            latest_s = max(latest_s, time.monotonic() - at)
            await asyncio.sleep(0.5)
    print(f"{count} events, the latest read after {latest_s:.2f} s")
    assert watcher.order_breaks() == 0
    assert latest_s < 5
    for each in (unrelated, publisher):
        each.close()
    storm.app.close()


@pytest.mark.parametrize("is_open", [False, True])
async def test_more_missing_places_than_a_block_has_hide_nothing_behind_them(
    database_url: str, is_open: bool
) -> None:
    storm = Storm(database_url)
    other = psycopg.connect(database_url, autocommit=True)
    other.execute("begin")
    other.execute(
        "select nextval(('holdfast.log_line_' || line)::regclass)"
        " from generate_series(0, 15) line, generate_series(1, 3000)"
    )
    if not is_open:
        other.execute("rollback")
    async with Watcher(database_url) as watcher:
        with storm.app.transaction() as tx:
            storm.app.publish(tx, "storm.event", {"n": 1}, key="behind")
        if is_open:
            await asyncio.sleep(0.3)
            assert watcher.ids == []
            other.execute("rollback")
        await until(lambda: len(watcher.ids) == 1)
        with storm.app.transaction() as tx:
            storm.app.publish(tx, "storm.event", {"n": 2}, key="behind")
        await until(lambda: len(watcher.ids) == 2)
    assert watcher.order_breaks() == 0
    other.close()
    storm.app.close()
