"""A primary with a synchronous standby: a commit is acknowledged when both have it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import Holdfast
from tests.support.installation import embedded_binaries
from tests.support.postgres import StartPostgres
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess
from tests.support.until import until

FOLLOWERS = "select sync_state from pg_stat_replication"
WAITING = (
    "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = any (%s)"
)


class Pair:
    """A primary and its synchronous standby."""

    def __init__(self, primary: PostgresProcess, standby: PostgresProcess) -> None:
        self.primary = primary
        self.standby = standby

    @property
    def url(self) -> str:
        """The address of whichever of the two is the primary; the first one comes first."""
        parts = urlsplit(self.primary.url)
        other = urlsplit(self.standby.url)
        account = parts.netloc.rpartition("@")[0]
        hosts = f"{parts.hostname}:{parts.port},{other.hostname}:{other.port}"
        return parts._replace(netloc=f"{account}@{hosts}").geturl()

    def ask(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask the primary."""
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            return connection.execute(query, parameters or None).fetchall()

    async def follow(self) -> None:
        """Wait until commits wait for the standby, and it is there."""
        await until(lambda: self.ask(FOLLOWERS) == [("sync",)])

    async def waits(self, *purposes: str) -> int:
        """Wait for a session of ours that waits for the standby; return its process."""
        names = [f"holdfast {each}" for each in purposes]
        await until(lambda: self.ask(WAITING, names))
        return int(self.ask(WAITING, names)[0][0])

    def fail_over(self) -> None:
        """The primary is gone for good, and the standby takes its place."""
        self.primary.stop("kill")
        self.standby.restart()
        self.promote()

    def promote(self) -> None:
        """Have the standby accept writes."""
        with psycopg.connect(self.standby.url, autocommit=True) as connection:
            assert connection.execute("select pg_promote()").fetchone() == (True,)
            connection.execute("alter system set synchronous_standby_names = ''")
            connection.execute("select pg_reload_conf()")


@pytest.fixture
async def pair(private_postgres: StartPostgres) -> AsyncIterator[Pair]:
    """A server whose commits wait for its standby."""
    primary = private_postgres()
    standby = PostgresProcess(embedded_binaries(), None, QUICK_LOGIN_ROUNDS, primary)
    with standby, psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("alter system set synchronous_standby_names = '*'")
        connection.execute("select pg_reload_conf()")
        servers = Pair(primary, standby)
        await servers.follow()
        yield servers


@pytest.fixture
def app(pair: Pair) -> Iterator[Holdfast]:
    made = Holdfast(pair.primary.url, open_types=True)
    made.migrate()
    yield made
    made.close()
