"""Every variable of dispatch and receipts has its effect, or is refused with its name."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from apps.tenders.local.push_server import OUTAGE, PushServer, slow
from apps.tenders.tests import pushing as shared
from apps.tenders.tests.conftest import run_command
from apps.tenders.tests.pushing import NOON, Pushing, add_deliveries, add_tender, delivery
from tests.support.until import until

from holdfast.errors import ConfigError
from tenders.models import DeliveryStatus
from tenders.settings import read_settings

pushing = shared.pushing


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EXPO_TIMEOUT", "soon"),
        ("EXPO_TIMEOUT", "0s"),
        ("PUSH_LEASE", "900ms"),
        ("PUSH_PAUSE", "0s"),
        ("RECEIPT_LEAST_AGE", "-1s"),
        ("RECEIPT_GIVE_UP", "15m"),
        ("EXPO_URL", "htps://exp.host"),
        ("EXPO_URL", "https://exp.host:99999"),
        ("TENDERS_API_URL", "api.mercadopublico.cl"),
        ("TENDERS_PAGES_URL", "https://"),
        ("ARCHIVE_BUCKET", "s4://tenders/archive"),
        ("ARCHIVE_ENDPOINT", "minio:9000"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name):
        read_settings()


async def test_intervals_and_budgets_are_taken_from_the_environment(
    sqlite_url: str, tmp_path: Path
) -> None:
    given = {
        "DISPATCH_INTERVAL_MINUTES": "3",
        "DISPATCH_MAX_ITEMS": "70",
        "RECEIPT_INTERVAL_MINUTES": "90s",
        "RECEIPT_MAX_ITEMS": "80",
    }
    command = ("holdfast", "config", "show", "tenders.worker:jobs", "--origin", "-o", "json")
    code, out, err = await run_command(tmp_path, sqlite_url, *command, **given)
    assert code == 0, err
    shown = {each["name"]: each for each in json.loads(out)}
    for name, value in given.items():
        assert str(shown[name]["value"]) == value
        assert shown[name]["origin"].startswith("env")


async def test_the_address_the_token_and_the_time_limit_of_the_service_are_those_given(
    pushing: Pushing, server: PushServer
) -> None:
    server.access_token = "a secret of the tests"
    server.faults.append(slow(30))
    pushing.set("EXPO_ACCESS_TOKEN", "a secret of the tests")
    pushing.set("EXPO_TIMEOUT", "200ms")
    await add_deliveries(await add_tender())
    await pushing.dispatch()
    assert (await delivery()).last_error_code == "Timeout"
    await until(
        lambda: not server.faults
    )  # a busy machine may have kept the request from the service until now
    pushing.clock.advance(timedelta(minutes=1))
    pushing.set("EXPO_TIMEOUT", "10s")
    await pushing.dispatch()
    assert (await delivery()).status is DeliveryStatus.SENT


async def test_a_service_that_failed_is_left_alone_for_as_long_as_given(
    pushing: Pushing, server: PushServer
) -> None:
    pushing.set("PUSH_PAUSE", "5m")
    await add_deliveries(await add_tender(), 110)
    server.faults.append(OUTAGE)
    assert await pushing.dispatch() == {"retryable": 100}
    pushing.clock.advance(timedelta(minutes=4))
    assert await pushing.dispatch() == {}
    pushing.clock.advance(timedelta(minutes=1))
    assert (await pushing.dispatch())["sent"] == 110


async def test_the_lease_of_a_ticket_is_as_long_as_given(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    await pushing.dispatch()
    pushing.clock.advance(timedelta(minutes=15))
    pushing.set("PUSH_LEASE", "7m")
    held: list[object] = []
    loop = asyncio.get_running_loop()

    async def look() -> None:
        held.append((await delivery()).locked_until)

    server.on_arrival = lambda: asyncio.run_coroutine_threadsafe(look(), loop).result()
    await pushing.receipt()
    assert held == [NOON + timedelta(minutes=22)]


async def test_the_lease_of_a_push_is_as_long_as_given(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(
        "from tenders.worker import jobs\nprint(jobs.registry.get('push.send').lease.duration_ms)\n"
    )
    for given, expected in (({}, "60000"), ({"PUSH_LEASE": "7m"}, "420000")):
        code, out, err = await run_command(tmp_path, sqlite_url, "look", **given)
        assert (code, out.strip()) == (0, expected), err
