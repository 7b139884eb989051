"""Every variable of dispatch and receipts has its effect, or is refused with its name."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from apps.tenders.local.push_server import PushServer, slow
from apps.tenders.tests import pushing as shared
from apps.tenders.tests.conftest import run_command
from apps.tenders.tests.pushing import NOON, Pushing, add_deliveries, add_tender, delivery
from tests.support.until import until

from holdfast.errors import ConfigError
from tenders.deliveries import Work
from tenders.dispatch import send_due
from tenders.expo import ExpoPush
from tenders.models import DeliveryStatus
from tenders.push import PushMessage, SendOutcome
from tenders.settings import read_settings

pushing = shared.pushing


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EXPO_TIMEOUT", "soon"),
        ("EXPO_TIMEOUT", "0s"),
        ("PUSH_LEASE", "900ms"),
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
    pushing: Pushing, server: PushServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.access_token = "a secret of the tests"
    server.faults.append(slow(30))
    for name, value in (
        ("EXPO_URL", pushing.url),
        ("EXPO_ACCESS_TOKEN", "a secret of the tests"),
        ("EXPO_TIMEOUT", "200ms"),
    ):
        monkeypatch.setenv(name, value)
    await add_deliveries(await add_tender())
    settings = read_settings()
    expo = ExpoPush.of(settings)
    work = Work(shared.make_run("dispatch", "w-1"), settings, pushing.clock)
    await send_due(work, expo)
    assert (await delivery()).last_error_code == "Timeout"
    await until(
        lambda: not server.faults
    )  # a busy machine may have kept the request from the service until now
    pushing.clock.advance(timedelta(minutes=1))
    monkeypatch.setenv("EXPO_TIMEOUT", "10s")
    patient = ExpoPush.of(read_settings())
    await send_due(work, patient)
    assert (await delivery()).status is DeliveryStatus.SENT
    await expo.aclose()
    await patient.aclose()


async def test_the_lease_is_as_long_as_given(pushing: Pushing, server: PushServer) -> None:
    await add_deliveries(await add_tender())
    pushing.set(push_lease=timedelta(minutes=7))
    held: list[object] = []

    class Looking(ExpoPush):
        async def send(self, messages: Sequence[PushMessage]) -> list[SendOutcome]:
            held.append((await delivery()).locked_until)
            return await super().send(messages)

    expo = Looking(pushing.url)
    await pushing.dispatch(provider=expo)
    await expo.aclose()
    assert held == [NOON + timedelta(minutes=7)]
