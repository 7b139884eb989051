"""A URL with several hosts, of which the first swallows packets: everything is alive soon, and sooner the next time."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from psycopg import Connection, OperationalError
from psycopg.conninfo import conninfo_to_dict

from holdfast.cli.serving_process import free_port
from holdfast.core.errors import DatabaseUnreachable
from holdfast.notify.base import Hint
from holdfast.notify.postgres import postgres_notifier
from holdfast.storage.postgres import pool
from holdfast.storage.postgres.connection import connection_string, url_without_password
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.hosts import STAGGER_S, Race, connect
from holdfast_chaos.proxy import FaultyProxy
from tests.support.reuse import CLEANER
from tests.support.silent_port import silent_port
from tests.support.until import PATIENCE_S, SLOWNESS, wait_until

ALIVE_S = 5.0 * SLOWNESS


@pytest.fixture
def swallowing() -> Iterator[int]:
    """A port on which nothing is answered."""
    with silent_port() as port:
        yield port


@pytest.fixture
def url(postgres_url: str, swallowing: int) -> str:
    """The silent host first, then the server."""
    parts = urlsplit(postgres_url)
    hosts = f"127.0.0.1:{swallowing},127.0.0.1:{parts.port}"
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
    ports = conninfo_to_dict(connection_string(url, "claim", 1_000))["port"]
    assert str(ports).split(",")[0] == str(urlsplit(url).netloc.rpartition(":")[2])
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


async def test_an_error_says_what_each_host_answered(
    url: str, swallowing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "WAIT_S", 0.1)
    port = free_port()
    hosts = f"127.0.0.1:{swallowing},127.0.0.1:{port}"
    database = PostgresDatabase(urlsplit(url)._replace(netloc=f"nobody:x@{hosts}").geturl())
    clock = database.store.schema.clock
    with pytest.raises(DatabaseUnreachable) as from_thread:
        await asyncio.to_thread(database.run, clock())
    with pytest.raises(DatabaseUnreachable) as from_task:
        await database.run_async(clock())
    for error in (from_thread.value, from_task.value):
        assert f"postgresql://nobody@{hosts}/" in error.message
        silent, refusing = error.details
        assert silent.startswith(f"127.0.0.1:{swallowing}: ")
        assert "timeout" in silent
        assert refusing.startswith(f"127.0.0.1:{port}: ")
        assert "refused" in refusing
    await database.close_async()


def race_of_two(limit_s: float = 2.0) -> Race:
    return Race(["a:1", "b:2"], ["host=a", "host=b"], limit_s, now=0.0)


def test_a_host_is_asked_when_the_one_before_it_is_silent_or_refuses() -> None:
    race = race_of_two()
    assert race.begin(0.0) == [(0, "host=a")]
    assert race.pause(0.0) == STAGGER_S
    assert race.begin(STAGGER_S) == [(1, "host=b")]
    race = race_of_two()
    race.begin(0.0)
    race.fail(0, OSError("refused"), 0.01)
    assert race.begin(0.01) == [(1, "host=b")]


def test_a_host_that_refuses_is_asked_again_while_another_is_silent() -> None:
    race = race_of_two(limit_s=1.0)
    race.begin(0.0)
    asked = []
    for now in (0.25, 0.5, 0.75, 1.0, 1.25):
        begun = race.begin(now)
        if begun:
            asked.append(now)
            race.fail(1, OSError("it is a standby"), now)
    assert asked == [0.25, 0.5, 0.75]
    with pytest.raises(OperationalError, match="b:2: it is a standby") as caught:
        race.fail(0, OSError("timeout"), 2.0)
    assert "a:1: timeout" in str(caught.value)


def test_what_is_no_answer_of_a_host_ends_the_race() -> None:
    race = race_of_two()
    race.begin(0.0)
    with pytest.raises(ValueError, match="not a host's"):
        race.fail(0, ValueError("not a host's"), 0.1)


def test_where_another_host_can_take_over_a_silent_one_is_given_up_sooner() -> None:
    several = conninfo_to_dict(connection_string("postgresql://a,b/shop", "claim", 100))
    assert several["target_session_attrs"] == "read-write"
    one = conninfo_to_dict(connection_string("postgresql://a/shop", "claim", 100))
    assert "target_session_attrs" not in one
    for name in ("connect_timeout", "keepalives_idle", "tcp_user_timeout"):
        assert int(str(several[name])) < int(str(one[name]))
    url = "postgresql://a,b/shop?target_session_attrs=any&connect_timeout=7&tcp_user_timeout=9"
    own = conninfo_to_dict(connection_string(url, "claim", 100))
    given = [own[name] for name in ("target_session_attrs", "connect_timeout", "tcp_user_timeout")]
    assert list(map(str, given)) == ["any", "7", "9"]


def test_a_connection_that_comes_after_the_race_is_closed(postgres_url: str) -> None:
    """The first host answers so late that the second one has won; what it opened is not left to the server."""
    parts = urlsplit(postgres_url)
    with FaultyProxy(postgres_url) as slow:
        hosts = f"127.0.0.1:{urlsplit(slow.url).port},127.0.0.1:{parts.port}"
        account = f"{parts.username}:{parts.password}@"
        text = parts._replace(netloc=account + hosts, query="connect_timeout=5").geturl()
        slow.mute()
        with connect(Connection[Any], text, autocommit=True) as connection:
            assert connection.info.port == parts.port
            slow.pass_all()
            count = (
                "select count(*) from pg_stat_activity"
                " where datname = current_database() and application_name <> %s"
            )
            wait_until(lambda: connection.execute(count, [CLEANER]).fetchall() == [(1,)])


def test_the_hosts_of_a_url_are_shown_with_their_ports() -> None:
    url = "postgresql://me:secret@a:5432,b:5433/shop?target_session_attrs=read-write"
    assert url_without_password(url) == "postgresql://me@a:5432,b:5433/shop"
    assert url_without_password("postgresql://a,b:5433/shop") == "postgresql://a,b:5433/shop"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me@[::1]:5433/shop", "postgresql://me@[::1]:5433/shop"),
        ("postgresql://me@/shop?host=/run/pg", "postgresql://me@%2Frun%2Fpg/shop"),
        ("postgresql://a%40b:x@h/50%25%2F%3F", "postgresql://a%40b@h/50%25%2F%3F"),
        ("postgresql://?service=shop", "postgresql://?service=shop"),
        ("postgresql://me:x@/own?service=shop", "postgresql://me@/own?service=shop"),
    ],
)
def test_what_is_shown_is_a_url_of_the_same_database(url: str, shown: str) -> None:
    assert url_without_password(url) == shown
    assert url_without_password(shown) == shown
