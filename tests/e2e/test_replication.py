"""The System page on a server with a standby, seen through a URL of which one host is gone."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from playwright.sync_api import expect

from holdfast.cli.serving_process import free_port
from tests.e2e.tabs import OpenPage
from tests.e2e.test_axe import axe, findings
from tests.e2e.test_pages import check, looks
from tests.support.installation import embedded_binaries
from tests.support.postgres import StartPostgres
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess

__all__ = ["axe"]

AWAIT = "alter system set synchronous_standby_names = '*'"


@pytest.fixture
def url(private_postgres: StartPostgres) -> Any:
    """A primary, a synchronous standby, and a host that does not answer."""
    primary = private_postgres()
    with PostgresProcess(embedded_binaries(), None, QUICK_LOGIN_ROUNDS, primary) as standby:
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute(AWAIT)
            connection.execute("select pg_reload_conf()")
        own = urlsplit(primary.url)
        ports = (own.port, urlsplit(standby.url).port, free_port())
        hosts = ",".join(f"127.0.0.1:{each}" for each in ports)
        account = f"postgres:{own.password}@"
        yield own._replace(netloc=account + hosts, query="target_session_attrs=read-write").geturl()


def test_the_system_page_shows_hosts_standbys_and_what_a_failover_would_lose(
    open_page: OpenPage, axe: Any
) -> None:
    page = open_page("/system")
    section = page.locator("section").filter(has=page.get_by_role("heading", name="Replication"))
    expect(section).to_contain_text("Nothing acknowledged: commits wait for walreceiver.")
    hosts = section.get_by_role("table").first.get_by_role("row")
    expect(hosts).to_have_count(4)
    expect(hosts.nth(1)).to_contain_text("primary")
    expect(hosts.nth(2)).to_contain_text("standby")
    expect(hosts.nth(3)).to_contain_text("no response")
    standbys = section.get_by_role("table").last.get_by_role("row")
    expect(standbys.nth(1)).to_contain_text("streaming")
    expect(page.get_by_role("row").filter(has_text="hosts").first).to_contain_text("warning")
    answer = page.request.get("/api/v1/system").json()["replication"]
    assert [each["role"] for each in answer["hosts"]] == ["primary", "standby", None]
    assert answer["failover_loss"].startswith("Nothing acknowledged")
    for scheme, _ in looks(page):
        check(page, "/system")
        assert findings(axe, page, scheme) == []
