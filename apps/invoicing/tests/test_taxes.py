"""`expense.created`: one snapshot per tenant and quarter, right however often and in whatever order it is computed."""

from datetime import date
from pathlib import Path
from uuid import uuid4

from apps.invoicing.tests.conftest import running
from sqlalchemy import select
from tests.support.until import until

from holdfast import Holdfast
from holdfast_testing.kit import Kit
from invoicing.database import Session
from invoicing.models import Expense, TaxSnapshot, Tenant
from invoicing.taxes import ExpenseCreated, quarter_bounds, quarter_of
from invoicing.worker import jobs

DELIVERY = "expense.created/update_tax_snapshot"
DAY = date(2031, 12, 31)


async def spend(tenant: Tenant, *amounts: int, day: date = DAY) -> list[Expense]:
    """Write expenses with their events, each in a transaction of its own."""
    expenses = []
    for net in amounts:
        async with Session.begin() as session:
            expense = Expense(tenant_id=tenant.id, description="x", spent_on=day, net=net, tax=1)
            session.add(expense)
            await session.flush()
            await jobs.publish(session, "expense.created", ExpenseCreated(expense.id))
            expenses.append(expense)
    return expenses


async def a_tenant() -> Tenant:
    """Return the tenant whose id is first."""
    async with Session() as session:
        return (await session.scalars(select(Tenant).order_by(Tenant.id).limit(1))).one()


async def snapshot(tenant: Tenant, quarter: str) -> tuple[int, int, int]:
    """Return a snapshot's figures."""
    async with Session() as session:
        found = await session.get_one(TaxSnapshot, {"tenant_id": tenant.id, "quarter": quarter})
        return found.expenses, found.net, found.tax


async def test_expenses_that_are_handled_at_once_are_all_counted(seeded: Kit) -> None:
    tenant = await a_tenant()
    await spend(tenant, *range(1, 31))
    await seeded.run_until_idle_async()
    assert await snapshot(tenant, "2031-Q4") == (30, sum(range(1, 31)), 30)


async def test_the_same_event_twice_counts_once(seeded: Kit) -> None:
    tenant = await a_tenant()
    (expense,) = await spend(tenant, 100)
    async with Session.begin() as session:
        await jobs.publish(session, "expense.created", ExpenseCreated(expense.id))
    await seeded.run_until_idle_async()
    assert await snapshot(tenant, "2031-Q4") == (1, 100, 1)


async def test_an_event_about_nothing_is_a_dead_letter_at_once(seeded: Kit) -> None:
    async with Session.begin() as session:
        await jobs.publish(session, "expense.created", ExpenseCreated(uuid4()))
    await seeded.run_until_idle_async()
    job = seeded.started(DELIVERY)[-1]
    assert (job.state, job.attempt) == ("failed", 1)
    assert "there is no expense" in (job.error or "")


async def test_a_payload_that_is_garbage_is_a_dead_letter_with_the_reason(
    seeded: Kit, url: str, place: Path
) -> None:
    other = Holdfast(url, open_types=True)  # a producer that knows nothing of our types
    async with other.transaction() as tx:
        await other.publish(tx, "expense.created", {"expense": "the blue one"})
    await other.aclose()
    worker = ("holdfast", "worker", "invoicing.worker:jobs")
    async with running(place, url, *worker, HOLDFAST_UNHANDLED_AFTER_MS="100"):
        await until(lambda: seeded.started(DELIVERY)[-1].state == "failed")
    job = seeded.started(DELIVERY)[-1]
    assert job.attempt == 1
    assert (job.error or "").startswith("InputUnreadable: ")
    assert "expense_id" in (job.error or "")


def test_a_quarter_has_its_name_and_its_bounds() -> None:
    assert quarter_of(date(2026, 1, 1)) == "2026-Q1"
    assert quarter_of(DAY) == "2031-Q4"
    assert quarter_bounds(DAY) == (date(2031, 10, 1), date(2032, 1, 1))
    assert quarter_bounds(date(2026, 2, 28)) == (date(2026, 1, 1), date(2026, 4, 1))
