"""`expense.created`: what a tenant spent in a quarter, kept up to date with every expense."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import Job, Permanent
from invoicing.database import Session, insert_into
from invoicing.jobs import jobs
from invoicing.models import Expense, TaxSnapshot


@dataclass(frozen=True, slots=True)
class ExpenseCreated:
    """An expense was written."""

    expense_id: UUID


@jobs.on("expense.created")
async def update_tax_snapshot(job: Job[ExpenseCreated]) -> None:
    """Compute the quarter of an expense anew: twice gives the same as once."""
    async with Session.begin() as session:
        expense = await session.get(Expense, job.input.expense_id)
        if expense is None:
            raise Permanent(f"there is no expense {job.input.expense_id}")
        await _update_snapshot(session, expense)
        await job.complete(tx=session)


async def _update_snapshot(session: AsyncSession, expense: Expense) -> None:
    """Lock the snapshot before counting, so that of two expenses the later one counts both."""
    own = {"tenant_id": expense.tenant_id, "quarter": quarter_of(expense.spent_on)}
    await session.execute(insert_into(session, TaxSnapshot).values(own).on_conflict_do_nothing())
    snapshot = await session.get_one(TaxSnapshot, own, with_for_update=True)
    first, after = quarter_bounds(expense.spent_on)
    counted = await session.execute(
        select(
            func.count(),
            func.coalesce(func.sum(Expense.net), 0),
            func.coalesce(func.sum(Expense.tax), 0),
        ).where(
            Expense.tenant_id == expense.tenant_id,
            Expense.spent_on >= first,
            Expense.spent_on < after,
        )
    )
    snapshot.expenses, snapshot.net, snapshot.tax = counted.one()


def quarter_of(day: date) -> str:
    """Return the name of a day's quarter, such as 2026-Q4."""
    return f"{day.year}-Q{(day.month + 2) // 3}"


def quarter_bounds(day: date) -> tuple[date, date]:
    """Return the first day of a day's quarter and the first day after it."""
    month = (day.month - 1) // 3 * 3 + 1
    after = date(day.year + 1, 1, 1) if month == 10 else date(day.year, month + 3, 1)
    return date(day.year, month, 1), after
