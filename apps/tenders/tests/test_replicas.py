"""Two workers as processes, a push service that fails now and then, and a kill: what every device gets."""

from collections import Counter
from contextlib import AbstractAsyncContextManager
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

from holdfast import RunInfo
from tenders.database import Session
from tenders.jobs import jobs
from tenders.models import Delivery, DeliveryStatus

pushing = shared.pushing
pytestmark = pytest.mark.timeout(600)

DEVICES = 700
SETTINGS = {
    "WORKER_TICK_RUNNERS": "dispatch,receipt",
    "DISPATCH_MAX_ITEMS": "100",
    "RECEIPT_MAX_ITEMS": "100",
    "DISPATCH_INTERVAL_MINUTES": "1s",
    "RECEIPT_INTERVAL_MINUTES": "1s",
    "RECEIPT_LEAST_AGE": "100ms",
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
    async with Session.begin() as session:
        for column, status in (
            (Delivery.next_attempt_at, DeliveryStatus.RETRYABLE),
            (Delivery.next_receipt_at, DeliveryStatus.SENT),
        ):
            waiting = update(Delivery).where(Delivery.status == status, column > past)
            await session.execute(waiting.values({column: past}))


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
    for cycle in ("dispatch", "receipt"):
        recorded = jobs.cycles.runs(cycle, limit=200)
        assert len({each.worker for each in recorded if each.counters.get("processed")}) > 1


async def test_dispatch_and_receipt_run_on_both_replicas_at_once(
    pushing: Pushing, server: PushServer, url: str, tmp_path: Path
) -> None:
    await add_deliveries(await add_tender(), 400, due=datetime.now(UTC))
    server.fault = slow(0.4)
    async with worker(tmp_path, url, "w-1", pushing.url), worker(tmp_path, url, "w-2", pushing.url):
        await until_settled(400)
    for cycle in ("dispatch", "receipt"):
        recorded = [each for each in jobs.cycles.runs(cycle, limit=200) if each.finished_at]
        assert any(are_at_once(a, b) for a in recorded for b in recorded), cycle
    copies = Counter(each.token for each in server.accepted)
    assert set(copies.values()) == {1}


def are_at_once(one: RunInfo, other: RunInfo) -> bool:
    """Say whether runs of different workers overlapped, and both did something."""
    assert one.finished_at is not None
    assert other.finished_at is not None
    return bool(
        one.worker != other.worker
        and one.started_at < other.finished_at
        and other.started_at < one.finished_at
        and one.counters.get("processed")
        and other.counters.get("processed")
    )
