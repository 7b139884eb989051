"""Consumers of the event log beside jobs, and what the log costs those who publish."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from typing import Any

import psycopg

from holdfast.app import Holdfast
from holdfast.core.subscriptions import NewSubscription
from holdfast.settings import load_settings
from holdfast_bench.handwritten import SQL
from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.seeding import reset
from holdfast_bench.subject import WorkerCommand, drain
from holdfast_bench.workload import INPUT, fill
from holdfast_streams import StreamEvent, add_streams
from holdfast_streams.reader_store import EARLIEST, READERS

BATCH = 2_000
LINES = 16
CONSUME_AIM = 150_000
"""Events a second that are aimed at; where 120,000 are read by hand, that is 1.25 of it."""

EVENTS_PER_JOB = 10
"""Events that are read for each job that is drained: both are to take about as long."""


def measure_consume(bench: Bench) -> list[Result]:
    """Measure a consumer that does nothing, in one process, beside a worker that drains jobs that do nothing.

    And beside a program that reads the same blocks in turn, without leases, fences, gaps or handlers.
    """
    jobs = bench.scale.jobs
    events = jobs * EVENTS_PER_JOB
    with bench.server.database() as url:

        def consume() -> float:
            append_by_hand(url, events)
            return asyncio.run(read_all(url, events))

        def drain_jobs() -> float:
            reset(url)
            return drain(WorkerCommand(url, ("noop",)), fill(url, "noop", jobs), jobs).rate

        def read() -> float:
            append_by_hand(url, events)
            return read_by_hand(url, events)

        contest = Contest(
            bench.scale.rounds, {"ours": consume, "baseline": drain_jobs, "by hand": read}
        )
    aim = {"aimed at": CONSUME_AIM}
    return [
        contest.result(
            "consume", "events/s", against="jobs in one process", beside=aim, floor=5.0, goal=6.0
        ),
        contest.result(
            "consume_by_hand",
            "events/s",
            baseline="by hand",
            against="read by hand",
            beside=aim,
            floor=0.9,
            goal=1.25,
        ),
    ]


def append_by_hand(url: str, count: int) -> None:
    """Fill an empty log, a statement for all lines."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL["stream_empty"])
        connection.execute(SQL["stream_fill"], {"count": count})
        connection.execute("analyze holdfast.log")


def read_by_hand(url: str, count: int) -> float:
    """Read the log as a careful program would: the lines in turn, a block and its position in a transaction."""
    seen = 0
    with closing(Holdfast(url, hints=False)) as app:
        app.database.run(READERS.register("bench", "consumer", ["order.*"], EARLIEST))
    with psycopg.connect(url) as connection:
        begun = time.perf_counter()
        places = dict.fromkeys(range(LINES), 0)
        while places:
            for line, place in list(places.items()):
                found = connection.execute(
                    SQL["stream_block"], {"line": line, "place": place, "limit": BATCH}
                ).fetchone()
                if found is None or found[0] is None:
                    del places[line]
                else:
                    places[line], events = found
                    seen += len(events)
                    connection.execute(SQL["stream_move"], {"line": line, "place": found[0]})
                connection.commit()
        took = time.perf_counter() - begun
    if seen != count:
        raise RuntimeError(f"read {seen} of {count} events")
    return count / took


async def read_all(url: str, count: int) -> float:
    """Read the log from its beginning to its end, in one tick; return how many events a second."""
    app, seen = Holdfast(url, hints=False), 0

    @add_streams(app).consumer("order.*", name="bench", batch=BATCH, since="earliest")
    def take(events: list[StreamEvent[Any]], tx: Any) -> None:
        nonlocal seen
        seen += len(events)

    app.database.run(READERS.register("bench", "consumer", ["order.*"], EARLIEST))
    app.database.run(READERS.rewind("bench", EARLIEST))
    tick = app.assembly(load_settings()).tick(("streams",))
    begun = time.perf_counter()
    await tick.run()
    took = time.perf_counter() - begun
    await tick.close()
    await app.aclose()
    if seen != count:
        raise RuntimeError(f"read {seen} of {count} events")
    return count / took


def measure_publish(bench: Bench) -> list[Result]:
    """Measure publishing an event that a handler and a consumer get, beside one that only the handler gets."""
    count = bench.scale.jobs // 10
    with bench.server.database() as url, closing(Holdfast(url, hints=False)) as app:
        run, events = app.database.run, app.database.store.events
        run(events.subscribe([NewSubscription(each, "mail") for each in ("order.paid", "plain")]))
        run(READERS.register("bench", "consumer", ["order.*"], None))
        with psycopg.connect(url) as connection:

            def rate(event: str) -> float:
                begun = time.perf_counter()
                for n in range(count):
                    app.publish(connection, event, INPUT, key=str(n))
                    connection.commit()
                return count / (time.perf_counter() - begun)

            for each in ("order.paid", "plain"):
                rate(each)
            contest = Contest(
                max(5, bench.scale.rounds),
                {"ours": lambda: rate("order.paid"), "baseline": lambda: rate("plain")},
            )
    return [
        contest.result(
            "publish_logged", "events/s", against="without the log", floor=0.85, goal=0.91
        )
    ]
