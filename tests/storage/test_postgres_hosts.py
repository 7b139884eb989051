"""A URL with several hosts, of which the first swallows packets: everything is alive soon, and sooner the next time."""

import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from holdfast.notify.base import Hint
from holdfast.notify.postgres import postgres_notifier
from holdfast.storage.postgres.connection import url_without_password
from holdfast.storage.postgres.database import PostgresDatabase
from tests.support.until import PATIENCE_S, SLOWNESS

ALIVE_S = 5.0 * SLOWNESS


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which nothing is answered: its queue is full, so the system drops what else comes."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = []
        for _ in range(3):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
            waiting.append(client)
        yield int(listening.getsockname()[1])
        for client in waiting:
            client.close()


@pytest.fixture
def url(postgres_url: str, silent_port: int) -> str:
    """The silent host first, then the server."""
    parts = urlsplit(postgres_url)
    hosts = f"127.0.0.1:{silent_port},127.0.0.1:{parts.port}"
    account = f"{parts.username}:{parts.password}@"
    return parts._replace(netloc=account + hosts, query="target_session_attrs=read-write").geturl()


async def test_links_locks_and_pools_pass_by_a_silent_host_and_remember_the_other(url: str) -> None:
    database = PostgresDatabase(url)
    clock = database.store.schema.clock
    began = time.monotonic()
    lock = database.singleton("worker:scheduler:cleanup")
    assert await lock.acquire()
    assert time.monotonic() - began < ALIVE_S
    await lock.release()
    # From now on the host that answered comes first.
    began = time.monotonic()
    link = database.link("claim")
    assert await link.run(clock())
    assert await database.read_async(clock())
    assert database.read(clock())
    assert time.monotonic() - began < 2 * SLOWNESS
    await link.close()
    await database.close_async()


def test_hints_are_heard_past_a_silent_host(url: str) -> None:
    notifier = postgres_notifier(url, "holdfast")
    heard = threading.Event()

    def on_hint(hint: Hint) -> None:
        heard.set()

    listener = notifier.listen(on_hint)
    began = time.monotonic()
    while not heard.wait(0.2) and time.monotonic() - began < PATIENCE_S:
        notifier.send([Hint("due", "work")])
    assert time.monotonic() - began < ALIVE_S
    listener.close()
    notifier.close()


def test_the_hosts_of_a_url_are_shown_with_their_ports() -> None:
    url = "postgresql://me:secret@a:5432,b:5433/shop?target_session_attrs=read-write"
    assert url_without_password(url) == "postgresql://me@a:5432,b:5433/shop"
    assert url_without_password("postgresql://a,b:5433/shop") == "postgresql://a,b:5433/shop"
