"""The cycle `receipt` on both stores, against a push service: what it settles, when it asks; it never sends."""

import asyncio
from datetime import timedelta

import pytest
from apps.tenders.local.push_server import GARBAGE, LOST, OUTAGE, Fault, PushServer, throttled
from apps.tenders.tests import pushing as shared
from apps.tenders.tests.pushing import (
    NOON,
    Pushing,
    add_deliveries,
    add_tender,
    deliveries,
    delivery,
    installation,
    is_notified,
)
from sqlalchemy import update

from holdfast_leases import PUSH_BACKOFF
from tenders.database import Session
from tenders.models import Delivery, DeliveryStatus, Installation, Tender

pushing = shared.pushing

QUARTER = timedelta(minutes=15)


async def send(pushing: Pushing, count: int = 1) -> tuple[Tender, list[str]]:
    """Send pushes about one tender; return it and the tokens. Their receipts are due at once."""
    tender = await add_tender()
    tokens = await add_deliveries(tender, count)
    assert (await pushing.dispatch())["sent"] == count
    pushing.clock.advance(QUARTER)
    return tender, tokens


async def test_a_receipt_ends_its_delivery(pushing: Pushing, server: PushServer) -> None:
    await send(pushing)
    assert await pushing.receipt() == {"ok": 1}
    ended = await delivery()
    assert ended.status is DeliveryStatus.OK
    assert ended.provider_receipt_id == ended.provider_ticket_id == server.accepted[0].ticket
    assert ended.completed_at == pushing.clock.now
    assert (ended.lock_token, ended.next_receipt_at) == (None, None)
    assert await pushing.receipt() == {}


async def test_a_ticket_is_left_alone_until_it_is_old_enough(
    pushing: Pushing, server: PushServer
) -> None:
    pushing.set("RECEIPT_LEAST_AGE", "20m")
    await add_deliveries(await add_tender())
    await pushing.dispatch()
    pushing.clock.advance(timedelta(minutes=20, microseconds=-1))
    assert await pushing.receipt() == {}
    assert [path for path, _ in server.calls] == ["send"]
    pushing.clock.advance(timedelta(microseconds=1))
    assert await pushing.receipt() == {"ok": 1}


async def test_a_receipt_that_is_not_ready_is_asked_for_again_and_again_but_less_often(
    pushing: Pushing, server: PushServer
) -> None:
    await send(pushing)
    server.receipt_delay_s = 3_600
    for minutes in (1, 2, 4, 8, 16, 32, 60, 60):
        assert await pushing.receipt() == {"waiting": 1}
        waiting = await delivery()
        assert waiting.status is DeliveryStatus.SENT
        assert waiting.next_receipt_at == pushing.clock.now + timedelta(minutes=minutes)
        assert await pushing.receipt() == {}
        pushing.clock.advance(timedelta(minutes=minutes))
    server.receipt_delay_s = 0
    assert await pushing.receipt() == {"ok": 1}
    assert (await delivery()).receipt_count == 9


async def test_a_receipt_that_never_comes_is_given_up(pushing: Pushing, server: PushServer) -> None:
    pushing.set("RECEIPT_GIVE_UP", "2h")
    tender, _ = await send(pushing)
    server.receipt_delay_s = 10_000
    pushing.clock.now = NOON + timedelta(hours=2, microseconds=-1)
    assert await pushing.receipt() == {"waiting": 1}
    pushing.clock.advance(timedelta(hours=1))
    assert await pushing.receipt() == {"failed": 1}
    given_up = await delivery()
    assert (given_up.status, given_up.last_error_code) == (DeliveryStatus.FAILED, "ReceiptExpired")
    assert (given_up.provider_receipt_id, given_up.completed_at) == (None, pushing.clock.now)
    assert await is_notified(tender)
    assert await pushing.dispatch() == {}
    assert len(server.accepted) == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("DeviceNotRegistered", "invalid"),
        ("MessageTooBig", "failed"),
        ("MismatchSenderId", "failed"),
        ("InvalidCredentials", "failed"),
        ("SomethingNew", "failed"),
    ],
)
async def test_a_failed_receipt_ends_its_delivery_and_sends_nothing_again(
    pushing: Pushing, server: PushServer, code: str, status: str
) -> None:
    tender, tokens = await send(pushing, 3)
    server.receipt_errors[tokens[1]] = code
    counted = await pushing.receipt()
    assert (counted["ok"], counted[status]) == (2, 1)
    failed = (await deliveries())[1]
    assert (failed.status.value, failed.last_error_code) == (status, code)
    assert failed.provider_receipt_id == failed.provider_ticket_id
    assert tokens[1] not in (failed.last_error_message or "")
    assert (await installation(tokens[1])).is_active == (status != "invalid")
    assert (await installation(tokens[0])).is_active
    assert await is_notified(tender)
    pushing.clock.advance(timedelta(days=2))
    assert await pushing.dispatch() == {}
    assert await pushing.receipt() == {}
    assert len(server.accepted) == 3


async def test_a_push_to_a_device_that_gets_too_many_is_sent_again_later(
    pushing: Pushing, server: PushServer
) -> None:
    tender, (token,) = await send(pushing)
    server.receipt_errors[token] = "MessageRateExceeded"
    assert await pushing.receipt() == {"retryable": 1}
    again = await delivery()
    assert (again.status, again.completed_at) == (DeliveryStatus.RETRYABLE, None)
    assert (again.last_error_code, again.attempt_count) == ("MessageRateExceeded", 1)
    assert again.next_attempt_at == pushing.clock.now + timedelta(minutes=1)
    assert (again.lock_token, again.provider_ticket_id) == (None, None)
    assert token not in (again.last_error_message or "")
    assert await is_notified(tender)
    assert await pushing.dispatch() == await pushing.receipt() == {}

    server.receipt_errors.clear()
    pushing.clock.advance(timedelta(minutes=1))
    assert (await pushing.dispatch())["sent"] == 1
    assert (await delivery()).receipt_count == 0
    pushing.clock.advance(QUARTER)
    assert await pushing.receipt() == {"ok": 1}
    ended = await delivery()
    assert (ended.status, ended.attempt_count) == (DeliveryStatus.OK, 2)
    assert ended.provider_receipt_id == server.accepted[1].ticket


async def test_a_device_that_keeps_getting_too_many_fails_after_the_last_attempt(
    pushing: Pushing, server: PushServer
) -> None:
    _, (token,) = await send(pushing)
    server.receipt_errors[token] = "MessageRateExceeded"
    for _ in range(1, PUSH_BACKOFF.max_attempts or 0):
        assert await pushing.receipt() == {"retryable": 1}
        pushing.clock.advance(timedelta(hours=1))
        assert (await pushing.dispatch())["sent"] == 1
        pushing.clock.advance(QUARTER)
    assert await pushing.receipt() == {"failed": 1}
    failed = await delivery()
    assert (failed.status, failed.last_error_code) == (DeliveryStatus.FAILED, "MessageRateExceeded")
    assert failed.attempt_count == len(server.accepted) == PUSH_BACKOFF.max_attempts
    assert (await installation(token)).is_active


async def test_an_installation_with_a_new_token_stays_on(
    pushing: Pushing, server: PushServer
) -> None:
    _, (token,) = await send(pushing)
    server.receipt_errors[token] = "DeviceNotRegistered"
    async with Session.begin() as session:
        await session.execute(update(Installation).values(push_token="ExponentPushToken[new]"))
    assert await pushing.receipt() == {"invalid": 1}
    assert (await installation("ExponentPushToken[new]")).is_active


@pytest.mark.parametrize(
    "fault", [OUTAGE, LOST, GARBAGE, Fault("status", 400), Fault("status", 401)]
)
async def test_a_fetch_that_fails_is_repeated_and_sends_nothing(
    pushing: Pushing, server: PushServer, fault: Fault
) -> None:
    tender, _ = await send(pushing, 2)
    server.faults.append(fault)
    assert await pushing.receipt() == {"waiting": 2, "fetch_failed": 1}
    for each in await deliveries():
        assert (each.status, each.attempt_count) == (DeliveryStatus.SENT, 1)
        assert each.next_receipt_at == pushing.clock.now + timedelta(minutes=1)
    assert await pushing.dispatch() == {}
    assert await is_notified(tender)
    pushing.clock.advance(timedelta(minutes=1))
    assert await pushing.receipt() == {"ok": 2}
    assert len(server.accepted) == 2


async def test_the_wait_that_the_service_asks_for_is_kept(
    pushing: Pushing, server: PushServer
) -> None:
    await send(pushing)
    server.faults.append(throttled("600"))
    await pushing.receipt()
    assert (await delivery()).next_receipt_at == pushing.clock.now + timedelta(minutes=10)


async def test_a_service_that_stays_away_does_not_keep_tickets_from_being_given_up(
    pushing: Pushing, server: PushServer
) -> None:
    await send(pushing)
    server.fault = OUTAGE
    pushing.clock.advance(timedelta(hours=24))
    assert await pushing.receipt() == {"failed": 1, "fetch_failed": 1}
    assert (await delivery()).last_error_code == "ReceiptExpired"


async def test_a_run_takes_no_more_items_than_it_may(pushing: Pushing, server: PushServer) -> None:
    await send(pushing, 30)
    assert await pushing.receipt(max_items=20) == {"ok": 20}
    assert server.calls[-1] == ("getReceipts", 20)
    assert await pushing.receipt() == {"ok": 10}


async def test_two_replicas_at_once_share_the_tickets(pushing: Pushing, server: PushServer) -> None:
    await send(pushing, 60)
    counted = await asyncio.gather(
        pushing.receipt("w-1", max_items=40), pushing.receipt("w-2", max_items=40)
    )
    assert sum(each.get("ok", 0) for each in counted) == 60
    assert sum(items for path, items in server.calls if path == "getReceipts") == 60


async def test_a_dead_worker_s_tickets_are_asked_for_again_without_an_attempt_to_send(
    pushing: Pushing, server: PushServer
) -> None:
    await send(pushing)
    async with Session.begin() as session:
        held = {"lock_token": "a dead claim", "locked_by": "w-9", "locked_until": NOON}
        await session.execute(update(Delivery).values(**held))
    # Dispatch shares the table, and must not take this lease for one of its own.
    assert await pushing.dispatch() == {}
    held_row = await delivery()
    assert (held_row.lock_token, held_row.attempt_count) == ("a dead claim", 1)
    assert await pushing.receipt() == {"reaped": 1}
    freed = await delivery()
    assert (freed.status, freed.attempt_count) == (DeliveryStatus.SENT, 1)
    assert freed.last_error_code is None
    pushing.clock.advance(timedelta(minutes=1))
    assert await pushing.receipt() == {"ok": 1}
    assert len(server.accepted) == 1


async def test_a_ticket_whose_lease_was_lost_is_not_overwritten(
    pushing: Pushing, server: PushServer
) -> None:
    await send(pushing)
    loop = asyncio.get_running_loop()

    def take_it_away() -> None:
        asyncio.run_coroutine_threadsafe(_take(), loop).result()

    server.on_arrival = take_it_away
    assert await pushing.receipt() == {"lost": 1}
    lost = await delivery()
    assert (lost.status, lost.lock_token) == (DeliveryStatus.SENT, "another claim")
    assert lost.completed_at is None


async def _take() -> None:
    async with Session.begin() as session:
        await session.execute(update(Delivery).values(lock_token="another claim"))
