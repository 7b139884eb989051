"""The job `push.send` and the cycle `dispatch` on both stores, against a push service."""

import asyncio
import itertools
from contextlib import suppress
from datetime import timedelta

import pytest
from apps.tenders.local.push_server import GARBAGE, LOST, OUTAGE, Fault, PushServer, slow, throttled
from apps.tenders.tests import pushing as shared
from apps.tenders.tests.pushing import (
    NOON,
    Pushing,
    add_deliveries,
    add_tender,
    after_send,
    deliveries,
    delivery,
    installation,
    is_notified,
    make_run,
)
from sqlalchemy import delete, update

from holdfast.commands.attempts import reap_leases
from tenders.database import Session
from tenders.dispatch import dispatch
from tenders.jobs import jobs
from tenders.models import Delivery, DeliveryStatus, Installation, Preference, Tender
from tenders.sending import outage

pushing = shared.pushing

BACKOFF_MINUTES = (1, 2, 4, 8, 16, 32, 60)


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


async def test_a_call_has_at_most_a_hundred_pushes_and_a_run_starts_at_most_its_items(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender(), 230)
    assert await dispatch(make_run("dispatch", "w-1", 120)) == 120
    await pushing.kit.run_until_idle_async()
    assert server.calls == [("send", 100), ("send", 20)]
    assert (await pushing.dispatch())["sent"] == 110
    assert len({each.token for each in server.accepted}) == len(server.accepted) == 230


async def test_a_second_has_at_most_600_pushes(pushing: Pushing, server: PushServer) -> None:
    await add_deliveries(await add_tender(), 650)
    assert await dispatch(make_run("dispatch", "w-1", 1_000)) == 650
    await pushing.kit.run_until_idle_async()
    assert len(server.accepted) == 600
    pushing.clock.advance(timedelta(seconds=1))
    await pushing.kit.run_until_idle_async()
    assert len({each.token for each in server.accepted}) == len(server.accepted) == 650


async def test_a_delivery_that_has_a_job_is_not_started_again(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender(), 3)
    runs = [await pushing.kit.run_cycle_async("dispatch") for _ in range(2)]
    assert [each.counters.get("started", 0) for each in runs] == [3, 0]
    assert len(pushing.kit.started("push.send")) == 3


async def test_two_workers_at_once_share_the_deliveries(
    pushing: Pushing, server: PushServer
) -> None:
    first, second = await add_tender("1-1-LE26"), await add_tender("2-2-LE26")
    await add_deliveries(first, 150)
    await add_deliveries(second, 150)
    await pushing.kit.run_cycle_async("dispatch")
    await asyncio.gather(*(pushing.kit.run_until_idle_async() for _ in range(2)))
    assert {each.status for each in await deliveries()} == {DeliveryStatus.SENT}
    assert await is_notified(first)
    assert await is_notified(second)
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
    pushing.clock.advance(timedelta(minutes=minutes, microseconds=-1))
    assert await pushing.dispatch() == {}
    pushing.clock.advance(timedelta(microseconds=1))
    assert (await pushing.dispatch())["sent"] == 1


async def test_an_outage_costs_one_call_an_attempt_and_leaves_the_rest_as_it_was(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender(), 150)
    server.faults.append(OUTAGE)
    assert await pushing.dispatch() == {"retryable": 100}
    assert await pushing.dispatch() == {}
    assert len(server.calls) == 1
    left = (await deliveries())[100:]
    assert {(each.status, each.attempt_count) for each in left} == {(DeliveryStatus.PENDING, 0)}
    assert {each.lock_token for each in left} == {None}
    pushing.clock.advance(timedelta(minutes=1))
    assert await pushing.dispatch() == {"sent": 150, "tenders_notified": 1}
    assert [each.attempt_count for each in await deliveries()] == [2] * 100 + [1] * 50


async def test_while_the_service_is_away_no_worker_asks_it_again(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender(), 150)
    server.fault = throttled("300")
    await pushing.dispatch()
    # As it is for a worker that did not see the outage itself.
    outage.until = None
    pushing.clock.advance(timedelta(minutes=4))
    assert await pushing.dispatch() == {}
    assert len(server.calls) == 1


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


async def test_a_worker_that_lost_its_lease_in_the_middle_overwrites_nothing(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    calls = itertools.count(1)

    async def send_again() -> None:
        """Let another worker send it, unless a heartbeat comes in between."""
        while (await delivery()).status is not DeliveryStatus.SENT:
            pushing.clock.advance(timedelta(seconds=61))
            await pushing.dispatch()

    async def be_too_slow() -> None:
        """Answer when the other worker is done, and not when asked to stop."""
        if next(calls) > 1:
            return
        other = asyncio.create_task(send_again())
        while not other.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({other})

    with after_send(be_too_slow):
        await pushing.dispatch()
    first, second = server.accepted
    kept = await delivery()
    assert kept.provider_ticket_id == second.ticket != first.ticket
    # The second push has its cause on record.
    assert (kept.attempt_count, kept.last_error_code) == (2, "WorkerLost")
    assert [each.state for each in pushing.kit.started("push.send")] == ["completed"]


async def test_only_the_lost_rows_of_a_batch_are_left_alone(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender(), 3)
    victim = (await deliveries())[1].id

    async def lose_one() -> None:
        async with Session.begin() as session:
            taken = update(Delivery).where(Delivery.id == victim)
            await session.execute(taken.values(lock_token="another claim", locked_by="w-2"))

    with after_send(lose_one):
        await pushing.dispatch()
    first, second, third = await deliveries()
    assert (first.status, third.status) == (DeliveryStatus.SENT, DeliveryStatus.SENT)
    assert (second.status, second.lock_token) == (DeliveryStatus.PENDING, "another claim")
    assert second.provider_ticket_id is None
    # Its job asks again what became of it.
    pushing.clock.advance(timedelta(minutes=1))
    assert await pushing.dispatch() == {"sent": 1}
    assert (await deliveries())[1].last_error_code == "WorkerLost"


async def test_attempts_without_an_outcome_are_used_up_too(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())

    async def die() -> None:
        raise ConnectionError("the worker is gone")

    with after_send(die):
        for _ in range(8):
            await pushing.dispatch()
            pushing.clock.advance(timedelta(minutes=60))
        assert (await pushing.dispatch()) == {"failed": 1}
        assert (await pushing.dispatch()) == {}
    failed = await delivery()
    assert (failed.status, failed.attempt_count) == (DeliveryStatus.FAILED, 8)
    assert (failed.last_error_code, failed.lock_token) == ("WorkerLost", None)
    assert failed.completed_at == pushing.clock.now
    assert len(server.accepted) == 8


async def test_a_delivery_whose_job_is_quarantined_fails_with_it(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    await pushing.kit.run_cycle_async("dispatch")
    for _ in range(3):
        pushing.kit.crash("push.send")
        pushing.clock.advance(timedelta(minutes=2))
        jobs.database.run(reap_leases(jobs.database.store, now=pushing.clock()))
        pushing.clock.advance(timedelta(minutes=2))
    assert await pushing.dispatch() == {"failed": 1}
    failed = await delivery()
    assert (failed.last_error_code, failed.completed_at) == ("JobFailed", pushing.clock.now)
    assert failed.last_error_message
    assert server.accepted == []


async def test_a_push_that_failed_is_sent_when_its_job_is_redriven(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    server.fault = OUTAGE
    for _ in range(8):
        await pushing.dispatch()
        pushing.clock.advance(timedelta(minutes=60))
    assert (await delivery()).status is DeliveryStatus.FAILED
    server.fault = None
    async with Session.begin() as session:
        (dead,) = await jobs.aio.dead_letters.list()
        assert "Http503" in (dead.error or "")
        assert await jobs.dead_letters.redrive(session, dead.id) == 1
    assert await pushing.dispatch() == {"sent": 1, "tenders_notified": 1}
    sent = await delivery()
    assert (sent.attempt_count, sent.completed_at) == (9, None)


async def test_a_worker_that_is_stopped_records_that_it_may_have_been_sent(
    pushing: Pushing, server: PushServer
) -> None:
    await add_deliveries(await add_tender())
    await pushing.kit.run_cycle_async("dispatch")
    server.faults.append(slow(30))
    calls = asyncio.Event()
    loop = asyncio.get_running_loop()
    server.on_arrival = lambda: loop.call_soon_threadsafe(calls.set)
    worker = jobs.make_worker()
    run = asyncio.create_task(worker.run())
    await calls.wait()
    for _ in range(2):  # the second time, it does not wait for its handlers
        worker.stop("stopped by the test")
    await run
    stopped = await delivery()
    assert (stopped.status, stopped.last_error_code) == (DeliveryStatus.RETRYABLE, "Interrupted")
    assert (stopped.attempt_count, stopped.lock_token) == (1, None)
    assert stopped.next_attempt_at == NOON + timedelta(minutes=1)
    assert [each.state for each in pushing.kit.started("push.send")] == ["pending"]


async def test_an_installation_with_a_new_token_stays_on(
    pushing: Pushing, server: PushServer
) -> None:
    (token,) = await add_deliveries(await add_tender())
    server.ticket_errors[token] = "DeviceNotRegistered"

    async def reinstall() -> None:
        async with Session.begin() as session:
            await session.execute(update(Installation).values(push_token="ExponentPushToken[new]"))

    with after_send(reinstall):
        assert await pushing.dispatch() == {"invalid": 1}
    assert (await installation("ExponentPushToken[new]")).is_active
