"""Servers and workers that are killed on the way: each message counts once, and every 2xx is in the database."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import nats
import psycopg
import pytest

from tests.streams.inbox_brokers import CROSSED_PAIRS, KINDS, NatsBroker, RedisBroker
from tests.streams.inbox_scene import InboxScene, signed
from tests.streams.scene import ON_EVERY_SERVER
from tests.support.until import PATIENCE_S, until
from tests.support.warm_python import LIBRARIES, WarmProcess

APPLICATION = """
import os, socket, sys

from holdfast import Holdfast
from holdfast_streams import JetStream, Message, RedisStream, add_streams, hmac_signature

app = Holdfast()
app.declare("ship")
streams = add_streams(app)
sign = "%s" if os.environ["HOLDFAST_URL"].startswith("postgres") else "?"
WRITE = f"insert into taken (n, key, at_process) values ({sign}, {sign}, {sign})"
verify = hmac_signature("sesame", header="X-Signature")

@streams.inbox.http("shop", verify=verify, id=lambda request: request.json["id"])
def shop(message: Message, tx) -> None:
    tx.execute(WRITE, (message.data["n"], message.id, os.getpid()))

broker = os.environ.get("BROKER", "")
if broker.startswith("nats"):
    source = JetStream(broker, stream="PAYMENTS", durable="shop")
else:
    source = RedisStream(broker, stream="payments", group="shop")

if os.environ.get("POISON"):
    import signal
    from holdfast.core.retry import Retry

    @streams.inbox(source, name="paid", retry=Retry(base="20ms", max_attempts=1))
    def poisoned(message: Message, tx) -> None:
        if message.data["n"] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        tx.execute(WRITE, (message.data["n"], message.id, os.getpid()))
elif broker:
    @streams.inbox(source, name="paid", batch=int(os.environ.get("BATCH", "20")))
    def paid(messages: list[Message], tx) -> None:
        app.start_many(tx, "ship", [each.data for each in messages])

if __name__ == "__main__":
    import uvicorn
    from starlette.applications import Starlette
    from holdfast_streams import inbox_routes

    given = socket.socket(fileno=sys.stdin.fileno())
    served = uvicorn.Config(Starlette(routes=[*inbox_routes(app)]), log_level="warning", lifespan="off")
    uvicorn.Server(served).run(sockets=[given])
"""


class Killed:
    """A process that is killed and started again until the block ends."""

    def __init__(self, folder: Path, scene: InboxScene, *words: str, **more: str) -> None:
        (folder / "shop.py").write_text(APPLICATION)
        self._folder = folder
        self._words = words
        self._env = os.environ | {"HOLDFAST_URL": scene.url, **more}
        self._stdin: int | None = None
        self.kills = -1
        self._process: WarmProcess | None = None

    def pass_fd(self, fd: int) -> None:
        """Give it a socket as its standard input."""
        self._stdin = fd

    def restart(self) -> None:
        """Kill it, and start the next one."""
        self.stop()
        self.kills += 1
        with (self._folder / "log").open("ab") as log:
            self._process = LIBRARIES.start(
                self._words, self._folder, self._env, log, stdin=self._stdin
            )

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def running(process: Killed) -> Iterator[Killed]:
    """Have the process run; it does not outlive the block."""
    process.restart()
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def serving(folder: Path, scene: InboxScene) -> Iterator[tuple[Killed, str]]:
    """Serve webhooks on a socket that outlives the server, so that clients find the next one."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(256)
        process = Killed(folder, scene, "shop.py")
        process.pass_fd(listening.fileno())
        with running(process):
            yield process, f"http://127.0.0.1:{listening.getsockname()[1]}"


async def post_thrice_each(folder: Path, scene: InboxScene, posts: int, kill_after: int) -> int:
    """Send each message three times, as a sender does that repeats what was not answered; return the kills."""
    answered: list[int] = []
    with serving(folder, scene) as (server, address):
        room = asyncio.Semaphore(16)

        async def send(client: httpx.AsyncClient, n: int) -> None:
            async with room:
                while True:
                    with suppress(httpx.TransportError):
                        answer = await client.post(
                            "/inbox/shop", **signed({"id": f"evt_{n}", "n": n})
                        )
                        if answer.status_code == 200:
                            break
                answered.append(n)
                if len(answered) % kill_after == 0:
                    await asyncio.to_thread(server.restart)

        limits = httpx.Limits(max_keepalive_connections=0)
        async with (
            httpx.AsyncClient(base_url=address, timeout=PATIENCE_S, limits=limits) as client,
            asyncio.TaskGroup() as group,
        ):
            for n in [n % posts for n in range(3 * posts)]:
                group.create_task(send(client, n))
        kills = server.kills
    assert len(answered) == 3 * posts
    assert sorted(scene.taken()) == sorted(set(answered)) == list(range(posts))
    return kills


@ON_EVERY_SERVER
async def test_webhooks_sent_three_times_each_to_a_server_that_is_killed_count_once(
    inbox: InboxScene, tmp_path: Path
) -> None:
    assert await post_thrice_each(tmp_path, inbox, 100, kill_after=70) >= 3
    await inbox.app.aclose()


@pytest.mark.lasting
@pytest.mark.timeout(1800)
async def test_a_thousand_webhooks_sent_three_times_each(inbox: InboxScene, tmp_path: Path) -> None:
    assert await post_thrice_each(tmp_path, inbox, 1_000, kill_after=250) >= 10
    await inbox.app.aclose()


def jobs_of(scene: InboxScene) -> list[str]:
    """The inputs of all jobs that were started."""
    table = "holdfast.job" if scene.is_postgres else "holdfast_job"
    with scene.app.transaction() as tx:
        rows = tx.execute(f"select input from {table} where type = 'ship'").fetchall()  # noqa: S608
        return [str(row[0]) for row in rows]


def has_started(scene: InboxScene, least: int) -> bool:
    return len(jobs_of(scene)) >= least


@asynccontextmanager
async def sent(broker: NatsBroker | RedisBroker, count: int) -> AsyncIterator[None]:
    """A broker with so many messages."""
    await broker.make_stream()
    await broker.send(*({"n": n} for n in range(count)))
    try:
        yield
    finally:
        broker.server.close()


WORKER = ("-m", "holdfast", "worker", "shop:app")


@CROSSED_PAIRS
async def test_a_worker_that_is_killed_on_the_way_starts_each_message_s_job_once(
    inbox: InboxScene, tmp_path: Path, broker_kind: str
) -> None:
    broker, count = KINDS[broker_kind](), 400
    fast = {"HOLDFAST_STREAMS_TAKEOVER_MS": "1000", "BROKER": broker.url}
    async with sent(broker, count):
        with running(Killed(tmp_path, inbox, *WORKER, **fast)) as worker:
            for least in (60, 160, 260):
                await until(partial(has_started, inbox, least))
                worker.restart()

            async def is_done() -> bool:
                return has_started(inbox, count) and await broker.open_messages() == 0

            await until(is_done)
    found = jobs_of(inbox)
    assert len(found) == len(set(found)) == count
    await inbox.app.aclose()


@pytest.mark.timeout(180)
@CROSSED_PAIRS
async def test_a_message_that_kills_its_process_is_parked_after_some_tries(
    inbox: InboxScene, tmp_path: Path, broker_kind: str
) -> None:
    broker = KINDS[broker_kind]()
    await broker.make_stream()
    await broker.send({"n": 1}, {"n": -1}, {"n": 2})
    fast = {"HOLDFAST_STREAMS_TAKEOVER_MS": "1000", "BROKER": broker.url, "POISON": "1"}
    with running(Killed(tmp_path, inbox, *WORKER, **fast)) as worker:
        while not inbox.parked():
            await until(lambda: worker.has_ended() or inbox.parked())
            if not inbox.parked():
                worker.restart()
        await inbox.until_taken(1, 2)
    (parked,) = inbox.parked()
    # Four tries are allowed where a message may fail once.
    assert "delivered 5 times without an answer" in (parked.error or "")
    broker.server.close()
    await inbox.app.aclose()


@pytest.mark.lasting
@pytest.mark.timeout(1800)
async def test_a_hundred_thousand_messages_with_a_worker_killed_every_three_seconds(
    postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, broker, count = InboxScene(postgres_url), NatsBroker(), 100_000
    await broker.make_stream()
    client = await nats.connect(broker.url)
    for begin in range(0, count, 1_000):
        publishes = [
            client.jetstream().publish("payments.paid", b'{"n": %d}' % n)
            for n in range(begin, begin + 1_000)
        ]
        await asyncio.gather(*publishes)
    await client.close()
    fast = {"HOLDFAST_STREAMS_TAKEOVER_MS": "2000", "BROKER": broker.url, "BATCH": "1000"}
    took = 0.0

    def total() -> int:
        with psycopg.connect(postgres_url) as connection:
            row = connection.execute("select count(*) from holdfast.job").fetchone()
            return 0 if row is None else int(row[0])

    with running(Killed(tmp_path, scene, *WORKER, **fast)) as worker:
        done = 0
        while done < count:
            await until(lambda before=done: total() > before)  # type: ignore[misc]
            began, end = time.monotonic(), time.monotonic() + 3
            while done < count and time.monotonic() < end:
                await asyncio.sleep(0.1)
                done = await asyncio.to_thread(total)
            took += time.monotonic() - began
            worker.restart()
        found = jobs_of(scene)
        kills = worker.kills
    broker.server.close()
    assert len(found) == len(set(found)) == count
    with capsys.disabled():
        print(f"\ninbox: {count} messages, {kills} kills, {count / took:,.0f} messages/s")
    await scene.app.aclose()
