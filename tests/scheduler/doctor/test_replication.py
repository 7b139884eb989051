"""The doctor on servers with real standbys: who takes writes, who follows, and what a failover now would lose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.scheduler.doctor import Finding
from holdfast.scheduler.doctor.checks import read_server, run_checks
from holdfast.settings import read_settings
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast_postgres.failover import check_replication
from holdfast_postgres.replication import HostStatus, Replication, StandbyStatus, with_failover_loss
from tests.support.installation import embedded_binaries
from tests.support.postgres import StartPostgres
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess
from tests.support.until import until

SETTINGS = read_settings({})
STREAMING = "select count(*) from pg_stat_replication where state = 'streaming'"
SYNCHRONOUS = "select count(*) from pg_stat_replication where sync_state = 'sync'"
PRIMARY = HostStatus("a:5432", "primary", 1)


class Servers:
    """A primary and a standby, and the address that names both."""

    def __init__(self, primary: PostgresProcess, standby: PostgresProcess) -> None:
        self.primary = primary
        self.standby = standby
        own, other = urlsplit(primary.url), urlsplit(standby.url)
        hosts = f"postgres:{own.password}@127.0.0.1:{other.port},127.0.0.1:{own.port}"
        self.url = own._replace(netloc=hosts, query="target_session_attrs=read-write").geturl()

    def ask(self, query: str) -> Any:
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            row = cursor.fetchone() if cursor.description else None
            return row and row[0]

    def await_standby(self, names: str) -> None:
        self.ask(f"alter system set synchronous_standby_names = '{names}'")
        self.ask("select pg_reload_conf()")


@pytest.fixture
def servers(private_postgres: StartPostgres) -> Iterator[Servers]:
    primary = private_postgres()
    with PostgresProcess(embedded_binaries(), None, QUICK_LOGIN_ROUNDS, primary) as standby:
        yield Servers(primary, standby)


async def found(url: str, **environ: str) -> dict[str, Finding]:
    database = PostgresDatabase(url)
    findings = await run_checks(database, read_settings(environ))
    await database.close_async()
    return {each.check: each for each in findings}


async def test_a_standby_that_follows_and_then_is_awaited_and_then_is_gone(
    servers: Servers,
) -> None:
    await until(lambda: servers.ask(STREAMING) == 1)
    findings = await found(servers.url)
    hosts, replication = findings["hosts"], findings["replication"]
    assert (hosts.verdict, replication.verdict) == ("ok", "ok")
    assert hosts.measured.count("timeline 1") == 2
    assert "standby, timeline 1; " in hosts.measured
    assert "walreceiver async" in replication.measured
    assert "Acknowledged starts and outcomes that no standby has yet" in replication.measured

    servers.await_standby("*")
    await until(lambda: servers.ask(SYNCHRONOUS) == 1)
    replication = (await found(servers.url))["replication"]
    assert replication.verdict == "ok"
    assert "Nothing acknowledged: commits wait for walreceiver." in replication.measured
    lazy = (await found(servers.url, HOLDFAST_CLAIMS="lazy"))["replication"]
    assert (lazy.verdict, lazy.fix) == ("warning", "unset HOLDFAST_CLAIMS")

    servers.standby.stop("immediate")
    await until(lambda: servers.ask(STREAMING) == 0)
    findings = await found(servers.url)
    assert findings["hosts"].verdict == "warning"
    assert "no response" in findings["hosts"].measured
    assert findings["replication"].verdict == "problem"
    assert "synchronous_standby_names=*" in findings["replication"].measured
    assert "bring the standby back" in findings["replication"].fix


async def test_two_hosts_that_take_writes_are_a_problem(servers: Servers) -> None:
    with psycopg.connect(servers.standby.url, autocommit=True) as connection:
        connection.execute("select pg_promote()")
    hosts = (await found(servers.url))["hosts"]
    assert hosts.verdict == "problem"
    assert "timeline 2" in hosts.measured


async def test_a_role_that_may_not_see_standbys_is_told_what_to_grant(servers: Servers) -> None:
    await until(lambda: servers.ask(STREAMING) == 1)
    servers.ask("create role plain login password 'secret'")
    servers.ask("grant usage on schema holdfast to plain")
    servers.ask("grant select on all tables in schema holdfast to plain")
    place = urlsplit(servers.primary.url)
    url = place._replace(netloc=f"plain:secret@127.0.0.1:{place.port}").geturl()
    replication = (await found(url))["replication"]
    assert (replication.verdict, replication.fix) == (
        "warning",
        "grant pg_monitor to the role of HOLDFAST_URL;",
    )
    servers.ask("grant pg_monitor to plain")
    assert (await found(url))["replication"].verdict == "ok"


async def test_the_service_shows_hosts_and_standbys(servers: Servers) -> None:
    await until(lambda: servers.ask(STREAMING) == 1)
    app = Holdfast(servers.url)
    replication = (await read_server(app.database)).replication
    await app.aclose()
    assert [each.role for each in replication.hosts] == ["standby", "primary"]
    assert [each.state for each in replication.standbys] == ["streaming"]


async def test_a_server_without_standby_says_what_losing_it_costs(sqlite_url: str) -> None:
    alone = with_failover_loss(Replication([PRIMARY]))
    (_, replication) = check_replication(alone, SETTINGS)
    assert replication.verdict == "ok"
    assert "Everything since the last backup" in replication.measured
    app = Holdfast(sqlite_url)
    assert (await read_server(app.database)).replication is None
    await app.aclose()


@pytest.mark.parametrize(
    ("state", "check", "verdict"),
    [
        (Replication([PRIMARY, HostStatus("b:5432", "standby", 2)]), "hosts", "warning"),
        (Replication([HostStatus("b:5432", "standby", 1)]), "hosts", "ok"),
        (
            Replication([PRIMARY], [StandbyStatus("b", "streaming", "async", 10**9, 40_000)]),
            "replication",
            "warning",
        ),
        (
            Replication(
                [PRIMARY], [StandbyStatus("b", "streaming", "sync", 0, None)], "b", "local"
            ),
            "replication",
            "warning",
        ),
        (
            Replication([PRIMARY], [StandbyStatus("b", "streaming", "quorum", 0, None)], "b", "on"),
            "replication",
            "ok",
        ),
    ],
)
def test_what_hosts_report_is_judged(state: Replication, check: str, verdict: str) -> None:
    findings = check_replication(with_failover_loss(state), SETTINGS)
    assert {each.check: each.verdict for each in findings}[check] == verdict
