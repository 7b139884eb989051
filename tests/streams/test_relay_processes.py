"""Relays in processes that are killed and stopped, and brokers whose nodes die: each event is in the stream once."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

from holdfast import Holdfast
from holdfast_streams import JetStream, RedisStream
from holdfast_streams.reader_store import EARLIEST, READERS
from tests.notify.servers import LeashedServer
from tests.streams.broker_servers import JetCluster, jetstream_server, redis_server
from tests.streams.relay_scene import check_each_once, reading, stored
from tests.streams.scene import ON_EVERY_SERVER, Scene
from tests.support.absent import skip_because_absent
from tests.support.frozen_process import freeze
from tests.support.installation import embedded_binaries, other_binaries
from tests.support.process import PostgresProcess
from tests.support.until import PATIENCE_S, until
from tests.support.warm_python import WarmProcess
from tests.support.worker_process import worker_process

APPLICATION = """
import os, time
from pathlib import Path

from holdfast import Holdfast
from holdfast_streams import JetStream, RedisStream, add_streams

def encode(event):
    if os.environ.get("HOLD"):
        Path(f"began-{os.getpid()}").touch()
        while not Path("go").exists():
            time.sleep(0.01)
    return b'{"n": %d}' % event.data["n"]

url = os.environ["TO"]
kind = RedisStream if url.startswith("redis") else JetStream
app = Holdfast()
add_streams(app).relay(
    "order.*",
    to=kind(url, stream="ORDERS"),
    name="feed",
    since="earliest",
    encode=encode,
    batch=int(os.environ["BATCH"]),
)
"""

LEASE_MS = 1_500


@contextmanager
def relaying(
    folder: Path,
    url: str,
    to: JetStream | RedisStream,
    name: str,
    hold: bool = False,
    batch: int = 50,
) -> Iterator[WarmProcess]:
    """Have a worker relay; it does not outlive the block, stopped or not."""
    (folder / "feed.py").write_text(APPLICATION)
    variables = {
        "HOLDFAST_URL": url,
        "HOLDFAST_STREAMS_TAKEOVER_MS": str(LEASE_MS),
        "TO": to.url,
        "BATCH": str(batch),
    }
    if hold:
        variables["HOLD"] = "1"
    with worker_process(folder, name, "feed:app", **variables) as process:
        yield process


def publish(app: Holdfast, total: int, keys: int, a_time: int = 20) -> None:
    """Publish numbered events, some in each transaction."""
    for start in range(0, total, a_time):
        with app.transaction() as tx:
            for n in range(start, min(total, start + a_time)):
                app.publish(tx, "order.paid", {"n": n}, key=f"k{n % keys}")


def is_done(app: Holdfast) -> bool:
    lines = [each for each in app.database.read(READERS.lines()) if each.reader == "feed"]
    return all(each.lag == 0 for each in lines)


def moved(app: Holdfast) -> int:
    """How far the relay is, in all lines together."""
    lines = app.database.read(READERS.lines())
    return sum(each.position for each in lines if each.reader == "feed")


class Broker(NamedTuple):
    """A stream, and its servers in the order in which they die."""

    to: JetStream | RedisStream
    servers: Sequence[LeashedServer]


@contextmanager
def _jetstream() -> Iterator[Broker]:
    with JetCluster() as cluster:
        yield Broker(JetStream(cluster.url, stream="ORDERS"), cluster.nodes[:2])


@contextmanager
def _redis(keeps: bool) -> Iterator[Broker]:
    with redis_server(keeps) as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        yield Broker(RedisStream(url, stream="ORDERS"), [server, server])


BROKERS: dict[str, Callable[[], AbstractContextManager[Broker]]] = {
    "jetstream": _jetstream,
    "redis": partial(_redis, True),
    # Without a file, each kill of Redis loses all streams, which are sent again from the log.
    "forgetful redis": partial(_redis, False),
}


def on(url: str, broker: str, *marks: pytest.MarkDecorator) -> ParameterSet:
    return pytest.param(url, broker, marks=marks, id=f"{url}-{broker}")


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        on("postgres", "jetstream"),
        on("other_postgres", "jetstream", pytest.mark.lasting),
        on("sqlite", "jetstream", pytest.mark.lasting),
        on("postgres", "redis"),
        on("other_postgres", "redis"),
        on("sqlite", "redis", pytest.mark.lasting),
        on("postgres", "forgetful redis", pytest.mark.lasting),
        on("sqlite", "forgetful redis"),
    ],
    indirect=["url"],
)
async def test_killed_relays_and_killed_servers_leave_each_event_once_and_in_order(
    scene: Scene, tmp_path: Path, broker: str
) -> None:
    scene.app.database.run(READERS.register("feed", "relay", ["order.*"], EARLIEST))
    total = 1_000
    with BROKERS[broker]() as (to, servers):
        publishing = asyncio.create_task(asyncio.to_thread(publish, scene.app, total, 40))
        for turn, server in enumerate(servers):
            with (
                relaying(tmp_path, scene.url, to, f"left{turn}"),
                relaying(tmp_path, scene.url, to, f"right{turn}"),
            ):
                before = moved(scene.app)
                await until(
                    lambda before=before: (  # type: ignore[misc]
                        moved(scene.app) > before or (publishing.done() and is_done(scene.app))
                    )
                )
                server.stop()
                # Leaving the block kills both relays, whatever they are doing.
            server.start()
        await publishing
        with relaying(tmp_path, scene.url, to, "last"):
            # Until then a cluster may be without a leader. A Redis that forgot may yet be sent more.
            await until(lambda: is_done(scene.app))
            async with reading(to) as sink:

                async def is_whole() -> bool:
                    return is_done(scene.app) and len(await stored(sink)) >= total

                await until(is_whole)
        await check_each_once(to, total)
        if isinstance(to, JetStream):
            async with reading(to) as sink:
                info = await sink._ask("STREAM.INFO.ORDERS")  # type: ignore[attr-defined]
                assert info["config"]["num_replicas"] == 3
    scene.app.close()


@ON_EVERY_SERVER
async def test_a_relay_that_was_stopped_past_its_lease_is_refused_by_the_stream(
    scene: Scene, tmp_path: Path
) -> None:
    scene.app.database.run(READERS.register("feed", "relay", ["order.*"], EARLIEST))
    scene.publish(*range(40), key="a")
    log = tmp_path / "first"
    with jetstream_server() as server:
        to = JetStream(f"nats://127.0.0.1:{server.port}", stream="ORDERS")
        with relaying(tmp_path, scene.url, to, "first", hold=True) as first:
            await until(lambda: list(tmp_path.glob("began-*")))
            freeze(first, Path(scene.url.removeprefix("sqlite:///")))
            with relaying(tmp_path, scene.url, to, "second") as second:
                async with reading(to) as sink:
                    await until(lambda: is_done(scene.app))
                    assert len(await stored(sink)) == 40
                (tmp_path / "go").touch()
                first.send_signal(signal.SIGCONT)
                await until(lambda: re.search("stream_refused", log.read_text()))
                for process in (first, second):
                    process.send_signal(signal.SIGTERM)
                    await asyncio.to_thread(process.wait, PATIENCE_S)
        await check_each_once(to, 40)
    scene.app.close()


async def make_stream(to: JetStream) -> None:
    """Make the stream before its relay does, so that it forgets after a second what it was sent."""
    wanted = {
        "name": to.stream,
        "subjects": [f"{to.stream}.>"],
        "storage": "file",
        "num_replicas": 3,
        "allow_atomic": True,
        "duplicate_window": 1_000_000_000,
    }
    async with reading(to) as sink:
        made = await sink._ask(f"STREAM.UPDATE.{to.stream}", wanted)  # type: ignore[attr-defined]
    assert made["config"]["duplicate_window"] == 1_000_000_000, made


@pytest.mark.lasting
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["ours", "other"])
async def test_the_full_storm(
    tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """200,000 events of 1,000 keys: relays killed every 3 s, nodes killed and restarted, PostgreSQL restarted.

    `HOLDFAST_RELAY_EVENTS` says how many, if not 200,000.
    """
    total = int(os.environ.get("HOLDFAST_RELAY_EVENTS", "200000"))
    binaries = embedded_binaries() if version == "ours" else other_binaries()
    if binaries is None:
        skip_because_absent(
            "a second version of PostgreSQL", "On Debian or Ubuntu: apt-get install postgresql"
        )
    with PostgresProcess(binaries) as postgres, JetCluster() as cluster:
        app = Holdfast(postgres.url, hints=False)
        app.migrate()
        app.database.run(READERS.register("feed", "relay", ["order.*"], EARLIEST))
        to = JetStream(cluster.url, stream="ORDERS")
        await make_stream(to)
        await asyncio.to_thread(publish, app, total, 1_000, 500)
        deadline, turn = time.monotonic() + 1_200, 0
        kills: Counter[str] = Counter()
        while not is_done(app):
            assert time.monotonic() < deadline
            node = cluster.nodes[turn % 3]
            with (
                relaying(tmp_path, postgres.url, to, f"left{turn}", batch=500),
                relaying(tmp_path, postgres.url, to, f"right{turn}", batch=500),
            ):
                before = moved(app)
                await until(lambda before=before: moved(app) > before or is_done(app))  # type: ignore[misc]
                await asyncio.sleep(3)
                if turn % 2 == 0:
                    node.stop()
                    kills["nodes"] += 1
                    await asyncio.sleep(1)
                    node.start()
                else:
                    await asyncio.to_thread(postgres.restart, "immediate")
                    kills["restarts of PostgreSQL"] += 1
                await asyncio.sleep(1)
            kills["relays"] += 2
            turn += 1
        await check_each_once(to, total)
        assert turn > 1
        with capsys.disabled():
            print(f"\nstorm: {total} events, {dict(kills)}")
        app.close()
