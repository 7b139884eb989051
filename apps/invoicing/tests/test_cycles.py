"""Reminders and billing: the internal endpoints, and the cycles that call them from real commands."""

import asyncio
import json
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from apps.invoicing.tests.conftest import TODAY, TOKEN, run_command
from sqlalchemy import func, select
from tests.support.serving import authorities

from holdfast import Shard
from holdfast_testing.kit import Kit
from invoicing import api
from invoicing.database import Session
from invoicing.models import (
    BillingRun,
    DeliveryStatus,
    EmailDelivery,
    Enrolment,
    Invoice,
    InvoiceStatus,
    Reminder,
    Tenant,
)
from invoicing.reminders import send_reminders
from invoicing.worker import jobs

REMINDERS = "/internal/invoices/reminders/run"
BILLING = "/internal/classes/billing/runs"
WHOLE = Shard(0, 1)
RUNNERS = "outbox,invoiceReminders,classesBilling"


def headers(key: str = "slot-1", token: str = TOKEN) -> dict[str, str]:
    """Return the headers of a service call."""
    return {"x-service-token": token, "Idempotency-Key": key}


async def call(address: str, path: str, on: date = TODAY, **given: Any) -> httpx.Response:
    """Call an internal endpoint as a cycle would."""
    body = {"on": on.isoformat()} | given.pop("body", {})
    async with httpx.AsyncClient(base_url=address, timeout=60, verify=authorities()) as client:
        return await client.post(path, json=body, headers=headers(**given))


async def overdue(on: date = TODAY) -> int:
    """Count the invoices that should have been paid."""
    late = select(func.count()).where(Invoice.status == InvoiceStatus.OPEN, Invoice.due_on < on)
    async with Session() as session:
        return int((await session.execute(late)).scalar_one())


async def purposes() -> Counter[str]:
    """Count the deliveries by what they are for."""
    async with Session() as session:
        return Counter(await session.scalars(select(EmailDelivery.purpose)))


@pytest.mark.parametrize("path", [REMINDERS, BILLING])
async def test_an_internal_endpoint_is_closed_to_everyone_without_the_token(
    address: str, path: str
) -> None:
    assert (await call(address, path, token="guess")).status_code == 401
    assert (await call(address, path, token="")).status_code == 401
    assert (await call(address, path, key="")).status_code == 400
    assert await purposes() == Counter()


async def test_an_api_without_a_token_is_closed(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKER_API_SERVICE_TOKEN")
    monkeypatch.setattr(api.guard, "_digests", None)
    assert (await call(address, REMINDERS, token="")).status_code == 503
    assert (await call(address, REMINDERS)).status_code == 503
    monkeypatch.setattr(api.guard, "_digests", None)


async def test_reminders_are_sent_once_a_week_and_three_times_at_most(
    seeded: Kit, address: str
) -> None:
    count = await overdue()
    assert count > 3
    for week, level in enumerate((1, 2, 3)):
        on = TODAY + timedelta(weeks=week)
        answer = await call(address, REMINDERS, on, key=f"week-{week}")
        assert (answer.status_code, answer.json()["reminded"] >= count) == (200, True)
        again = await call(address, REMINDERS, on + timedelta(days=1), key=f"again-{week}")
        assert again.json()["reminded"] <= await overdue(on + timedelta(days=1)) - count
        assert (await purposes())[f"reminder-{level}"] >= count
    last = await call(address, REMINDERS, TODAY + timedelta(weeks=30), key="much later")
    assert last.status_code == 200
    assert set(await purposes()) == {"reminder-1", "reminder-2", "reminder-3"}


async def test_a_key_is_done_once(seeded: Kit, address: str) -> None:
    first, second = await asyncio.gather(call(address, REMINDERS), call(address, REMINDERS))
    assert sorted((first.status_code, second.status_code)) == [200, 409]
    assert (await purposes())["reminder-1"] == await overdue()


async def test_a_run_takes_no_more_items_than_it_may(seeded: Kit, address: str) -> None:
    answer = await call(address, REMINDERS, body={"maxItems": 2})
    assert answer.json() == {"reminded": 2}


async def test_shards_divide_the_tenants_between_them(seeded: Kit) -> None:
    count = await overdue()
    async with Session.begin() as session:
        parts = [await send_reminders(session, TODAY, 1_000, Shard(each, 2)) for each in range(2)]
        assert await send_reminders(session, TODAY, 1_000, WHOLE) == 0
    assert sum(parts) == count


async def test_a_shard_that_does_not_exist_is_refused(seeded: Kit, address: str) -> None:
    answer = await call(address, REMINDERS, body={"shard": {"index": 2, "count": 2}})
    assert answer.status_code == 422


async def test_classes_are_billed_once_a_month_and_the_invoices_are_mailed(
    seeded: Kit, address: str, place: Path
) -> None:
    async with Session() as session:
        customers = select(func.count(func.distinct(Enrolment.customer_id)))
        enrolled = int((await session.execute(customers)).scalar_one())
    billed = await call(address, BILLING)
    assert billed.json() == {"tenants": 1, "invoices": enrolled}
    again = await call(address, BILLING, key="slot-2")
    assert again.json() == {"tenants": 0, "invoices": 0}
    await seeded.run_until_idle_async()
    async with Session() as session:
        statuses = list(await session.scalars(select(EmailDelivery.status)))
        runs = list(await session.scalars(select(BillingRun)))
    assert statuses == [DeliveryStatus.SENT] * enrolled
    assert [(each.month, each.invoices) for each in runs] == [("2026-11", enrolled)]
    assert len(list((place / "mail").glob("*.eml"))) == enrolled
    following = await call(address, BILLING, date(2026, 12, 1), key="slot-3")
    assert following.json()["invoices"] == enrolled


async def test_an_event_about_no_invoice_is_a_dead_letter(seeded: Kit) -> None:
    async with Session.begin() as session:
        await jobs.publish(session, "classes.invoice.ready_to_send", {"invoice_id": uuid4()})
    await seeded.run_until_idle_async()
    job = seeded.started("classes.invoice.ready_to_send/send_class_invoice")[-1]
    assert job.state == "failed"
    assert "there is no invoice" in (job.error or "")


async def test_a_tick_runs_reminders_before_billing_unless_told_otherwise(
    url: str, place: Path, address: str
) -> None:
    summary = await tick(place, url, address, WORKER_TICK_RUNNERS="")
    assert list(summary["runnerResults"])[1:4] == RUNNERS.split(",")


async def tick(place: Path, url: str, address: str, **more: str) -> dict[str, Any]:
    """Run `holdfast tick` with the runners of the seed; return its summary."""
    given = {
        "WORKER_TICK_RUNNERS": RUNNERS,
        "WORKER_API_BASE_URL": address,
        "WORKER_API_SERVICE_TOKEN": TOKEN,
        "INVOICING_MAIL": str(place / "mail"),
    }
    command = ("holdfast", "tick", "invoicing.worker:jobs", "-o", "json")
    code, out, err = await run_command(place, url, *command, **given | more)
    assert code == 0, err
    summary: dict[str, Any] = json.loads(out)
    return summary


async def run_now(place: Path, url: str) -> None:
    """Make both cycles due."""
    for name in ("invoiceReminders", "classesBilling"):
        code, _, err = await run_command(place, url, "holdfast", "cycles", "run-now", name, "--yes")
        assert code == 0, err


async def test_two_replicas_run_a_slot_once_and_the_api_does_its_work(
    seeded: Kit, url: str, place: Path, address: str
) -> None:
    await tick(place, url, address)  # makes the cycles known
    await run_now(place, url)
    on = date.today() - timedelta(days=1)  # noqa: DTZ011
    expected = await overdue(on)
    replicas = await asyncio.gather(tick(place, url, address), tick(place, url, address))
    for name in ("invoiceReminders", "classesBilling"):
        done = [each["runnerResults"][name]["processed"] for each in replicas]
        assert sorted(done)[0] == 0
        assert sorted(done)[1] > 0
        code, out, _ = await run_command(
            place, url, "holdfast", "cycles", "runs", name, "-o", "json"
        )
        assert code == 0
        assert [each["outcome"] for each in json.loads(out)] == ["completed"]
    assert (await purposes())["reminder-1"] >= expected


async def test_shards_and_items_of_the_environment_reach_the_api(
    seeded: Kit, url: str, place: Path, address: str
) -> None:
    shard = {"WORKER_TICK_SHARD_INDEX": "1", "WORKER_TICK_SHARD_COUNT": "2"}
    more = shard | {"WORKER_TICK_RUNNER_MAX_ITEMS": "1"}
    await tick(place, url, address, **more)
    for name in ("invoiceReminders:1/2", "classesBilling:1/2"):
        await run_command(place, url, "holdfast", "cycles", "run-now", name, "--yes")
    await tick(place, url, address, **more)
    async with Session() as session:
        reminded = select(Invoice.tenant_id).join(Reminder, Reminder.invoice_id == Invoice.id)
        tenants = list(await session.scalars(reminded))
        everyone = list(await session.scalars(select(Tenant.id)))
    mine = [each for each in everyone if Shard(1, 2).owns(each)]
    assert len(tenants) == min(1, len(mine))
    assert set(tenants) <= set(mine)
