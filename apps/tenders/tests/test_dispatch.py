"""The cycle `dispatch` on both stores, against a push service: outcomes, backoff, leases, and what it checks."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from apps.tenders.local.push_server import (
    GARBAGE,
    LOST,
    OUTAGE,
    Fault,
    PushServer,
    slow,
    throttled,
)
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
from sqlalchemy import delete, update

from tenders.database import Session
from tenders.expo import ExpoPush
from tenders.models import Delivery, DeliveryStatus, Installation, Preference, Tender
from tenders.push import PushMessage, ReceiptOutcome, SendOutcome

pushing = shared.pushing

BACKOFF_MINUTES = (1, 2, 4, 8, 16, 32, 60)


class Hooked:
    """A provider that calls back after the service has accepted a batch and before its answer is recorded."""

    name = "expo"
    max_messages = 100
    max_tickets = 1_000

    def __init__(self, url: str, hook: object) -> None:
        self._expo = ExpoPush(url, timeout_s=5)
        self._hook = hook

    async def send(self, messages: Sequence[PushMessage]) -> list[SendOutcome]:
        outcomes = await self._expo.send(messages)
        assert callable(self._hook)
        await self._hook()
        return outcomes

    async def fetch_receipts(self, tickets: Sequence[str]) -> dict[str, ReceiptOutcome]:
        return await self._expo.fetch_receipts(tickets)

    async def aclose(self) -> None:
        await self._expo.aclose()


async def test_a_push_is_sent_once_and_marks_its_tender(
    pushing: Pushing, server: PushServer
) -> None:
    tender = await add_tender()
    (token,) = await add_deliveries(tender)
    assert await pushing.dispatch() == {"sent": 1, "tenders_notified": 1}
    assert await pushing.dispatch() == {}
    (push,) = server.accepted
    sent = await delivery()
    assert (push.token, push.ticket) == (token, sent.provider_ticket_id)
    assert push.body == tender.title
    assert push.data == {"code": tender.code, "deliveryId": str(sent.id)}
    assert sent.status is DeliveryStatus.SENT
    assert (sent.attempt_count, sent.sent_to, sent.sent_at) == (1, token, NOON)
    assert (sent.lock_token, sent.next_attempt_at, sent.completed_at) == (None, None, None)
    assert sent.next_receipt_at == NOON + timedelta(minutes=15)
    assert await is_notified(tender)


async def test_batches_have_at_most_a_hundred_and_a_run_at_most_its_items(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender(), 230)
    assert (await pushing.dispatch(max_items=120))["sent"] == 120
    assert server.calls == [("send", 100), ("send", 20)]
    assert (await pushing.dispatch())["sent"] == 110
    assert len({each.token for each in server.accepted}) == len(server.accepted) == 230


async def test_two_replicas_at_once_share_the_deliveries(
    pushing: Pushing, server: PushServer
) -> None:
    first, second = await add_tender("1-1-LE26"), await add_tender("2-2-LE26")
    await add_deliveries(first, 150)
    await add_deliveries(second, 150)
    counted = await asyncio.gather(pushing.dispatch("w-1"), pushing.dispatch("w-2"))
    assert sum(each.get("sent", 0) for each in counted) == 300
    assert sum(each.get("tenders_notified", 0) for each in counted) == 2
    assert len({each.token for each in server.accepted}) == len(server.accepted) == 300


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (OUTAGE, "Http503"),
        (throttled("5"), "TooManyRequests"),
        (LOST, "AnswerLost"),
        (GARBAGE, "InvalidAnswer"),
        (Fault("status", 401), "Unauthorized"),
    ],
)
async def test_a_call_that_fails_is_retried_and_its_cause_is_on_record(
    pushing: Pushing, server: PushServer, fault: Fault, code: str
) -> None:
    tender = await add_tender()
    await add_deliveries(tender, 2)
    server.faults.append(fault)
    assert await pushing.dispatch() == {"retryable": 2}
    for each in await deliveries():
        assert (each.status, each.attempt_count) == (DeliveryStatus.RETRYABLE, 1)
        assert (each.last_error_code, each.lock_token) == (code, None)
        assert each.next_attempt_at == NOON + timedelta(minutes=1)
    assert not await is_notified(tender)
    assert await pushing.dispatch() == {}
    pushing.clock.advance(timedelta(minutes=1))
    assert await pushing.dispatch() == {"sent": 2, "tenders_notified": 1}
    for each in await deliveries():
        assert (each.status, each.attempt_count) == (DeliveryStatus.SENT, 2)
        assert each.last_error_code == code  # why there may have been two
    may_repeat = code in ("AnswerLost", "InvalidAnswer")
    assert len(server.accepted) == (4 if may_repeat else 2)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("DeviceNotRegistered", "invalid"),
        ("MessageTooBig", "failed"),
        ("MismatchSenderId", "failed"),
        ("InvalidCredentials", "failed"),
        ("MessageRateExceeded", "retryable"),
        ("SomethingNew", "retryable"),
    ],
)
async def test_an_error_of_one_ticket_is_recorded_for_its_delivery_alone(
    pushing: Pushing, server: PushServer, code: str, status: str
) -> None:
    tokens = await add_deliveries(await add_tender(), 3)
    server.ticket_errors[tokens[1]] = code
    counted = await pushing.dispatch()
    assert (counted["sent"], counted[status]) == (2, 1)
    first, second, third = await deliveries()
    assert (first.status, third.status) == (DeliveryStatus.SENT, DeliveryStatus.SENT)
    assert (second.status.value, second.last_error_code) == (status, code)
    assert (second.completed_at is None) == (status == "retryable")
    assert (second.next_attempt_at is None) == (status != "retryable")
    assert (await installation(tokens[1])).is_active == (status != "invalid")
    assert (await installation(tokens[0])).is_active


async def test_a_malformed_token_is_invalid_and_goes_off_without_being_sent(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    async with Session.begin() as session:
        await session.execute(update(Installation).values(push_token="a token of long ago"))
    assert await pushing.dispatch() == {"invalid": 1, "switched_off": 1}
    assert (await delivery()).last_error_code == "MalformedToken"
    off = await installation("a token of long ago")
    assert (off.is_active, off.deactivated_because) == (False, "MalformedToken")
    assert off.deactivated_at == NOON
    assert server.calls == []


async def test_one_refused_message_fails_alone(pushing: Pushing, server: PushServer) -> None:
    tokens = await add_deliveries(await add_tender(), 40)
    server.refused.add(tokens[7])
    assert await pushing.dispatch() == {"sent": 39, "failed": 1, "tenders_notified": 1}
    assert (await deliveries())[7].last_error_code == "VALIDATION_ERROR"


async def test_the_waits_are_exactly_those_of_the_table_and_the_eighth_attempt_is_the_last(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    server.fault = OUTAGE
    for attempt, minutes in enumerate(BACKOFF_MINUTES, start=1):
        assert await pushing.dispatch() == {"retryable": 1}
        waiting = await delivery()
        assert waiting.attempt_count == attempt
        assert waiting.next_attempt_at == pushing.clock.now + timedelta(minutes=minutes)
        pushing.clock.advance(timedelta(minutes=minutes, microseconds=-1))
        assert await pushing.dispatch() == {}
        pushing.clock.advance(timedelta(microseconds=1))
    assert await pushing.dispatch() == {"failed": 1}
    failed = await delivery()
    assert (failed.status, failed.attempt_count) == (DeliveryStatus.FAILED, 8)
    assert (failed.last_error_code, failed.completed_at) == ("Http503", pushing.clock.now)
    pushing.clock.advance(timedelta(days=1))
    server.fault = None
    assert await pushing.dispatch() == {}
    assert server.accepted == []


@pytest.mark.parametrize(("asked", "minutes"), [("30", 1), ("300", 5), ("99999", 60)])
async def test_the_longer_of_both_waits_counts(
    pushing: Pushing, server: PushServer, asked: str, minutes: int
) -> None:
    await add_deliveries(await add_tender())
    server.faults.append(throttled(asked))
    await pushing.dispatch()
    assert (await delivery()).next_attempt_at == NOON + timedelta(minutes=minutes)


async def test_an_outage_ends_the_run_and_leaves_the_rest_as_it_was(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender(), 150)
    server.faults.append(OUTAGE)
    assert await pushing.dispatch() == {"retryable": 100}
    assert len(server.calls) == 1
    left = (await deliveries())[100:]
    assert {(each.status, each.attempt_count) for each in left} == {(DeliveryStatus.PENDING, 0)}
    assert {each.lock_token for each in left} == {None}


async def test_an_installation_that_went_off_gets_nothing(
    pushing: Pushing, server: PushServer
) -> None:
    tender = await add_tender()
    tokens = await add_deliveries(tender, 2)
    async with Session.begin() as session:
        off = update(Installation).where(Installation.push_token == tokens[0])
        await session.execute(off.values(is_active=False))
    assert await pushing.dispatch() == {"sent": 1, "failed": 1, "tenders_notified": 1}
    assert (await deliveries())[0].last_error_code == "InstallationInactive"
    assert [each.token for each in server.accepted] == tokens[1:]


async def test_preferences_count_as_they_are_when_it_is_sent(
    pushing: Pushing, server: PushServer
) -> None:
    tokens = await add_deliveries(await add_tender(region="13"), 3)
    elsewhere, silent = await installation(tokens[0]), await installation(tokens[1])
    async with Session.begin() as session:
        move = update(Preference).where(Preference.installation_id == elsewhere.id)
        await session.execute(move.values(regions=frozenset({"05"})))
        mute = update(Preference).where(Preference.installation_id == silent.id)
        await session.execute(mute.values(is_enabled=False))
    assert await pushing.dispatch() == {"sent": 1, "failed": 2, "tenders_notified": 1}
    codes = [each.last_error_code for each in await deliveries()]
    assert codes == ["PreferencesChanged", "PreferencesChanged", None]
    assert [each.token for each in server.accepted] == tokens[2:]


async def test_a_tender_that_was_archived_is_not_pushed(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    async with Session.begin() as session:
        await session.execute(delete(Tender))
    assert await pushing.dispatch() == {"failed": 1}
    assert (await delivery()).last_error_code == "TenderArchived"
    assert server.accepted == []


async def test_a_lease_that_was_lost_in_the_middle_is_not_overwritten(
    pushing: Pushing, server: PushServer
) -> None:
    tender = await add_tender()
    await add_deliveries(tender)
    seen: list[dict[str, float]] = []

    async def be_too_slow() -> None:
        pushing.clock.advance(timedelta(seconds=61))
        seen.append(await pushing.dispatch("w-2"))  # takes the row back, and waits
        pushing.clock.advance(timedelta(minutes=1))
        seen.append(await pushing.dispatch("w-2"))  # sends it

    provider = Hooked(pushing.url, be_too_slow)
    assert await pushing.dispatch("w-1", provider=provider) == {"lost": 1}
    await provider.aclose()
    assert seen == [{"reaped": 1}, {"sent": 1, "tenders_notified": 1}]
    first, second = server.accepted
    kept = await delivery()
    assert kept.provider_ticket_id == second.ticket != first.ticket
    # The second push has its cause on record.
    assert (kept.attempt_count, kept.last_error_code) == (2, "WorkerLost")


async def test_only_the_lost_rows_of_a_batch_are_left_alone(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender(), 3)
    victim = (await deliveries())[1].id

    async def lose_one() -> None:
        async with Session.begin() as session:
            taken = update(Delivery).where(Delivery.id == victim)
            await session.execute(taken.values(lock_token="another claim", locked_by="w-2"))

    provider = Hooked(pushing.url, lose_one)
    counted = await pushing.dispatch("w-1", provider=provider)
    await provider.aclose()
    assert counted == {"sent": 2, "lost": 1, "tenders_notified": 1}
    first, second, third = await deliveries()
    assert (first.status, third.status) == (DeliveryStatus.SENT, DeliveryStatus.SENT)
    assert (second.status, second.lock_token) == (DeliveryStatus.PENDING, "another claim")
    assert (second.provider_ticket_id, second.attempt_count) == (None, 0)


async def test_a_worker_that_keeps_dying_uses_up_the_attempts(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())

    async def die() -> None:
        raise ConnectionError("the worker is gone")

    provider = Hooked(pushing.url, die)
    for _ in range(8):
        with pytest.raises(ConnectionError):
            await pushing.dispatch("w-1", provider=provider)
        pushing.clock.advance(timedelta(seconds=61))
        assert await pushing.dispatch("w-2") == {"reaped": 1}
        pushing.clock.advance(timedelta(minutes=60))
    await provider.aclose()
    failed = await delivery()
    assert (failed.status, failed.attempt_count) == (DeliveryStatus.FAILED, 8)
    assert failed.last_error_code == "WorkerLost"
    assert failed.completed_at is not None
    assert await pushing.dispatch("w-2") == {}
    assert len(server.accepted) == 8


async def test_a_run_that_is_stopped_records_that_it_may_have_been_sent(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    server.faults.append(slow(30))
    calls = asyncio.Event()
    loop = asyncio.get_running_loop()
    server.on_arrival = lambda: loop.call_soon_threadsafe(calls.set)
    run = asyncio.create_task(pushing.dispatch())
    await calls.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    stopped = await delivery()
    assert (stopped.status, stopped.last_error_code) == (DeliveryStatus.RETRYABLE, "Interrupted")
    assert (stopped.attempt_count, stopped.lock_token) == (1, None)


async def test_an_installation_with_a_new_token_stays_on(
    pushing: Pushing, server: PushServer
) -> None:
    (token,) = await add_deliveries(await add_tender())
    server.ticket_errors[token] = "DeviceNotRegistered"

    async def reinstall() -> None:
        async with Session.begin() as session:
            await session.execute(update(Installation).values(push_token="ExponentPushToken[new]"))

    provider = Hooked(pushing.url, reinstall)
    assert await pushing.dispatch(provider=provider) == {"invalid": 1}
    await provider.aclose()
    assert (await installation("ExponentPushToken[new]")).is_active
