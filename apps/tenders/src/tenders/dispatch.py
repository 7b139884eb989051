"""The cycle `dispatch`: starts the jobs of deliveries that are due and have none."""

from __future__ import annotations

from sqlalchemy import or_, select, text

from holdfast import CycleRun, from_env
from tenders.database import Session
from tenders.deliveries import now
from tenders.jobs import jobs
from tenders.models import DUE, Delivery
from tenders.push import Failed
from tenders.sending import fail, start_pushes

MAX_ITEMS = 10_000


@jobs.cycle(
    "dispatch",
    every=from_env("DISPATCH_INTERVAL_MINUTES", "1m"),
    max_items=from_env("DISPATCH_MAX_ITEMS", 5_000),
    timeout="5m",
)
async def dispatch(run: CycleRun) -> int:
    """Start what ingest did not: what a receipt sends again, what was restored, what another program wrote.

    A delivery whose job has failed, by the deaths of its workers or by a fault in the code, fails with it.
    """
    moment = now()
    is_due = or_(Delivery.next_attempt_at.is_(None), Delivery.next_attempt_at <= moment)
    due = (
        select(Delivery)
        .where(text(DUE), is_due)
        .order_by(Delivery.id)
        .limit(run.room(MAX_ITEMS))
        .with_for_update(skip_locked=True)
    )
    started = failed = 0
    async with Session.begin() as session:
        deliveries = list(await session.scalars(due))
        chains = await start_pushes(session, [each.id for each in deliveries])
        for delivery, chain in zip(deliveries, chains, strict=True):
            started += not chain.deduplicated
            if chain.state == "failed":
                fail(delivery, Failed("JobFailed", (chain.error or "").partition("\n")[0]), moment)
                failed += 1
    run.count("started", started)
    run.count("failed", failed)
    return started
