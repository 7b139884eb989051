"""Two workers as processes, a push service that fails now and then, and a kill: what every device gets."""

from collections import Counter
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apps.tenders.local.push_server import LOST, OUTAGE, PushServer, slow
from apps.tenders.tests import pushing as shared
from apps.tenders.tests.conftest import running
from apps.tenders.tests.pushing import Pushing, add_deliveries, add_tender, deliveries, is_notified
from sqlalchemy import func, select, update
from tests.support.application import RunningCommand
from tests.support.until import until

from holdfast import JobInfo, RunInfo
from holdfast.errors import WrongState
from tenders.database import Session
from tenders.jobs import jobs
from tenders.models import Delivery, DeliveryStatus

pushing = shared.pushing
pytestmark = pytest.mark.timeout(600)

DEVICES = 700
SETTINGS = {
    "WORKER_TICK_RUNNERS": "outbox,dispatch,receipt",
    "DISPATCH_MAX_ITEMS": "1000",
    "RECEIPT_MAX_ITEMS": "100",
    "DISPATCH_INTERVAL_MINUTES": "1s",
    "RECEIPT_INTERVAL_MINUTES": "1s",
    "RECEIPT_LEAST_AGE": "100ms",
    "PUSH_PAUSE": "1s",
}


def worker(
    place: Path, url: str, name: str, expo_url: str, lease: str = "60s"
) -> AbstractAsyncContextManager[RunningCommand]:
    """Run a worker until the end of the block, and ask it to stop unless it was killed."""
    words = ("holdfast", "worker", "tenders.worker:jobs", "--name", name)
    return running(place, url, *words, EXPO_URL=expo_url, PUSH_LEASE=lease, **SETTINGS)


async def count(*statuses: DeliveryStatus) -> int:
    """Count the deliveries in some states."""
    async with Session() as session:
        query = select(func.count()).select_from(Delivery).where(Delivery.status.in_(statuses))
        return int((await session.execute(query)).scalar_one())


async def let_retries_be_due() -> None:
    """Make what waits for its next attempt, or its next look for a receipt, due: minutes are long in a test."""
    past = datetime.now(UTC) - timedelta(minutes=1)
    waiting = await jobs.aio.jobs.list("type:push.send state:pending attempt>=1", limit=1_000)
    async with Session.begin() as session:
        later = update(Delivery).where(
            Delivery.status == DeliveryStatus.SENT, Delivery.next_receipt_at > past
        )
        await session.execute(later.values(next_receipt_at=past))
        if waiting:
            with suppress(WrongState):  # they began in the meantime
                await jobs.jobs.trigger(session, *(each.id for each in waiting))


async def until_sent(devices: int) -> None:
    """Wait until that many pushes are recorded as sent."""

    async def are_sent() -> bool:
        return await count(DeliveryStatus.SENT, DeliveryStatus.OK) >= devices

    await until(are_sent)


async def until_settled(devices: int) -> None:
    """Wait until every delivery has its receipt."""

    async def are_settled() -> bool:
        if await count(DeliveryStatus.OK) >= devices:
            return True
        await let_retries_be_due()
        return False

    await until(are_settled)


async def test_two_replicas_and_a_kill_lose_no_push_and_repeat_none_without_a_cause(
    pushing: Pushing, server: PushServer, url: str, tmp_path: Path
) -> None:
    tender = await add_tender()
    tokens = await add_deliveries(tender, DEVICES, due=datetime.now(UTC))
    server.faults.extend([OUTAGE, LOST, *[slow(0.5)] * 6])
    async with (
        worker(tmp_path, url, "w-1", pushing.url, "3s") as first,
        worker(tmp_path, url, "w-2", pushing.url, "3s"),
    ):
        await until_sent(DEVICES // 4)
        await first.kill()
        async with worker(tmp_path, url, "w-3", pushing.url, "3s"):
            await until_settled(DEVICES)
    copies = Counter(each.token for each in server.accepted)
    assert set(copies) == set(tokens)
    assert await is_notified(tender)
    by_id = Counter(int(each.data["deliveryId"]) for each in server.accepted)
    for each in await deliveries():
        assert each.status is DeliveryStatus.OK
        assert by_id[each.id] <= each.attempt_count
        if by_id[each.id] > 1:
            assert each.last_error_code in ("WorkerLost", "AnswerLost", "Timeout")
    assert len({each.worker for each in await sent_jobs()}) > 1
    recorded = jobs.cycles.runs("receipt", limit=200)
    assert len({each.worker for each in recorded if each.counters.get("processed")}) > 1


async def test_pushes_and_receipts_go_on_both_replicas_at_once(
    pushing: Pushing, server: PushServer, url: str, tmp_path: Path
) -> None:
    await add_deliveries(await add_tender(), 400, due=datetime.now(UTC))
    server.fault = slow(0.4)
    async with worker(tmp_path, url, "w-1", pushing.url), worker(tmp_path, url, "w-2", pushing.url):
        await until_settled(400)
    recorded = [each for each in jobs.cycles.runs("receipt", limit=200) if each.finished_at]
    working = [each for each in recorded if each.counters.get("processed")]
    assert any(are_at_once(a, b) for a in working for b in working)
    sent = await sent_jobs()
    assert any(are_at_once(a, b) for a in sent for b in sent)
    copies = Counter(each.token for each in server.accepted)
    assert set(copies.values()) == {1}


async def sent_jobs() -> list[JobInfo]:
    """Return the jobs that sent pushes."""
    found: list[JobInfo] = []
    page = await jobs.aio.jobs.list("type:push.send state:completed", limit=1_000)
    found += page
    while page.next is not None:
        page = await jobs.aio.jobs.list(
            "type:push.send state:completed", limit=1_000, after=page.next
        )
        found += page
    return found


def are_at_once(one: RunInfo | JobInfo, other: RunInfo | JobInfo) -> bool:
    """Say whether what different workers did overlapped."""
    assert one.started_at is not None
    assert other.started_at is not None
    assert one.finished_at is not None
    assert other.finished_at is not None
    return (
        one.worker != other.worker
        and one.started_at < other.finished_at
        and other.started_at < one.finished_at
    )
