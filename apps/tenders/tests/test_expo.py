"""Expo's protocol, spoken with a real server: tickets, receipts, and everything that can go wrong between them."""

import itertools
import socket
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from apps.tenders.local.push_server import (
    GARBAGE,
    LOST,
    OUTAGE,
    SHORT,
    Fault,
    PushServer,
    slow,
    throttled,
)

from tenders.expo import MAX_WAIT, ExpoPush, is_push_token
from tenders.push import (
    Confirmed,
    Failed,
    Invalid,
    PushMessage,
    ReceiptsUnavailable,
    Retryable,
    SendOutcome,
    Sent,
)

_numbers = itertools.count()


@pytest.fixture
async def expo(server: PushServer) -> AsyncIterator[ExpoPush]:
    """A client of the service."""
    expo = ExpoPush(server.start(), timeout_s=5)
    yield expo
    await expo.aclose()


def token() -> str:
    """Return a token that no other message has."""
    return f"ExponentPushToken[{next(_numbers):022}]"


def messages(count: int) -> list[PushMessage]:
    """Return messages to as many devices."""
    return [
        PushMessage(token(), "New tender", "Road works", {"code": str(each)})
        for each in range(count)
    ]


async def send_one(expo: ExpoPush) -> tuple[str, SendOutcome]:
    """Send one message; return its token and what became of it."""
    (message,) = messages(1)
    (outcome,) = await expo.send([message])
    return message.token, outcome


async def test_each_message_gets_its_ticket_in_order(server: PushServer, expo: ExpoPush) -> None:
    given = messages(3)
    outcomes = await expo.send(given)
    assert [Sent(each.ticket) for each in server.accepted] == outcomes
    assert [each.token for each in server.accepted] == [each.token for each in given]
    assert server.accepted[1].data == {"code": "1"}


async def test_a_hundred_messages_are_one_call(server: PushServer, expo: ExpoPush) -> None:
    assert len(await expo.send(messages(expo.max_messages))) == 100
    assert server.calls == [("send", 100)]


async def test_more_than_a_hundred_would_be_refused(server: PushServer, expo: ExpoPush) -> None:
    await expo.send(messages(101))
    assert server.calls[0] == ("send", 101)
    assert len(server.accepted) == 101  # by halves


async def test_nothing_to_send_is_no_call(server: PushServer, expo: ExpoPush) -> None:
    assert await expo.send([]) == []
    assert server.calls == []


@pytest.mark.parametrize(
    "text",
    ["", "token", "ExponentPushToken[]", "ExponentPushToken[a b]", "ExponentPushToken[a]x", "[a]"],
)
async def test_a_malformed_token_is_invalid_and_never_sent(
    server: PushServer, expo: ExpoPush, text: str
) -> None:
    good = messages(2)
    bad = PushMessage(text, "New tender", "Road works")
    first, second, third = await expo.send([good[0], bad, good[1]])
    assert isinstance(first, Sent)
    assert isinstance(second, Invalid)
    assert second.code == "MalformedToken"
    assert isinstance(third, Sent)
    assert server.calls == [("send", 2)]


def test_the_three_forms_of_tokens_are_known() -> None:
    assert is_push_token("ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]")
    assert is_push_token("ExpoPushToken[xxxxxxxxxxxxxxxxxxxxxx]")
    assert is_push_token("F5741A13-BCDA-434B-A316-5DC0E6FFA94F")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("DeviceNotRegistered", Invalid),
        ("MessageTooBig", Failed),
        ("MismatchSenderId", Failed),
        ("InvalidCredentials", Failed),
        ("MessageRateExceeded", Retryable),
        ("SomethingNew", Retryable),
    ],
)
async def test_an_error_of_a_ticket_is_about_its_message_alone(
    server: PushServer, expo: ExpoPush, code: str, kind: type[Failed | Invalid | Retryable]
) -> None:
    given = messages(3)
    server.ticket_errors[given[1].token] = code
    first, second, third = await expo.send(given)
    assert isinstance(first, Sent)
    assert isinstance(third, Sent)
    assert isinstance(second, kind)
    assert second.code == code
    assert given[1].token not in second.message
    assert not isinstance(second, Retryable) or not second.is_outage


async def test_a_message_over_the_limit_fails(server: PushServer, expo: ExpoPush) -> None:
    (outcome,) = await expo.send([PushMessage(token(), "New tender", "x" * 5_000)])
    assert isinstance(outcome, Failed)
    assert outcome.code == "MessageTooBig"


@pytest.mark.parametrize(
    ("fault", "code", "is_accepted"),
    [
        (OUTAGE, "Http503", False),
        (Fault("status", 500), "Http500", False),
        (Fault("status", 404), "Http404", False),
        (Fault("status", 401), "Unauthorized", False),
        (throttled("1"), "TooManyRequests", False),
        (LOST, "AnswerLost", True),
        (GARBAGE, "InvalidAnswer", True),
        (SHORT, "InvalidAnswer", True),
    ],
)
async def test_a_call_without_a_usable_answer_is_retryable_for_every_message(
    server: PushServer, expo: ExpoPush, fault: Fault, code: str, is_accepted: bool
) -> None:
    server.faults.append(fault)
    outcomes = await expo.send(messages(2))
    for each in outcomes:
        assert isinstance(each, Retryable)
        assert (each.code, each.is_outage) == (code, True)
        assert ("it may have been accepted" in each.message) == (is_accepted and fault != SHORT)
    assert len(server.accepted) == (2 if is_accepted else 0)
    _, outcome = await send_one(expo)
    assert isinstance(outcome, Sent)


async def test_a_slow_answer_ends_at_the_timeout(server: PushServer) -> None:
    expo = ExpoPush(server.start(), timeout_s=0.2)
    server.faults.append(slow(30))
    began = time.monotonic()
    _, outcome = await send_one(expo)
    assert time.monotonic() - began < 15
    assert isinstance(outcome, Retryable)
    assert (outcome.code, outcome.is_outage) == ("Timeout", True)
    await expo.aclose()


async def test_a_service_that_is_not_there_is_unreachable(server: PushServer) -> None:
    server.start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        expo = ExpoPush(f"http://127.0.0.1:{free.getsockname()[1]}/--/api/v2", timeout_s=5)
        _, outcome = await send_one(expo)
        await expo.aclose()
    assert isinstance(outcome, Retryable)
    assert (outcome.code, outcome.is_outage) == ("Unreachable", True)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("", 0), ("soon", 0), ("-5", 0), ("999999", MAX_WAIT.total_seconds())],
)
async def test_the_wait_that_the_service_asks_for_is_kept(
    server: PushServer, expo: ExpoPush, header: str, seconds: float
) -> None:
    server.faults.append(throttled(header))
    _, outcome = await send_one(expo)
    assert isinstance(outcome, Retryable)
    assert outcome.after == timedelta(seconds=seconds)


async def test_the_wait_may_be_a_date(server: PushServer, expo: ExpoPush) -> None:
    until = datetime.now(UTC) + timedelta(minutes=10)
    server.faults.append(throttled(format_datetime(until, usegmt=True)))
    _, outcome = await send_one(expo)
    assert isinstance(outcome, Retryable)
    assert timedelta(minutes=8) < outcome.after <= timedelta(minutes=10)


async def test_one_refused_message_does_not_take_the_others_with_it(
    server: PushServer, expo: ExpoPush
) -> None:
    given = messages(100)
    server.refused.add(given[37].token)
    outcomes = await expo.send(given)
    refused = outcomes.pop(37)
    assert isinstance(refused, Failed)
    assert refused.code == "VALIDATION_ERROR"
    assert given[37].token not in refused.message
    assert all(isinstance(each, Sent) for each in outcomes)
    assert len(server.accepted) == len({each.token for each in server.accepted}) == 99
    assert len(server.calls) < 20


async def test_the_access_token_is_sent(server: PushServer) -> None:
    server.access_token = "a secret of the tests"
    url = server.start()
    stranger, friend = ExpoPush(url), ExpoPush(url, access_token="a secret of the tests")
    _, refused = await send_one(stranger)
    _, accepted = await send_one(friend)
    assert isinstance(refused, Retryable)
    assert refused.code == "Unauthorized"
    assert isinstance(accepted, Sent)
    await stranger.aclose()
    await friend.aclose()


async def test_receipts_say_what_became_of_each_ticket(server: PushServer, expo: ExpoPush) -> None:
    given = messages(3)
    server.receipt_errors = {
        given[1].token: "MessageRateExceeded",
        given[2].token: "DeviceNotRegistered",
    }
    tickets = [each.ticket for each in await expo.send(given) if isinstance(each, Sent)]
    receipts = await expo.fetch_receipts([*tickets, "unknown"])
    assert receipts[tickets[0]] == Confirmed()
    assert isinstance(receipts[tickets[1]], Retryable)
    assert isinstance(receipts[tickets[2]], Invalid)
    assert set(receipts) == set(tickets)


async def test_a_receipt_that_is_not_ready_is_left_out(server: PushServer, expo: ExpoPush) -> None:
    server.receipt_delay_s = 3_600
    _, sent = await send_one(expo)
    assert isinstance(sent, Sent)
    assert await expo.fetch_receipts([sent.ticket]) == {}
    server.receipt_delay_s = 0
    assert await expo.fetch_receipts([sent.ticket]) == {sent.ticket: Confirmed()}


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (OUTAGE, "Http503"),
        (throttled("9"), "TooManyRequests"),
        (LOST, "AnswerLost"),
        (GARBAGE, "InvalidAnswer"),
        (Fault("status", 400), "VALIDATION_ERROR"),
    ],
)
async def test_receipts_that_cannot_be_fetched_say_why(
    server: PushServer, expo: ExpoPush, fault: Fault, code: str
) -> None:
    _, sent = await send_one(expo)
    assert isinstance(sent, Sent)
    server.faults.append(fault)
    with pytest.raises(ReceiptsUnavailable) as caught:
        await expo.fetch_receipts([sent.ticket])
    assert caught.value.code == code
    assert caught.value.after == timedelta(seconds=9 if code == "TooManyRequests" else 0)
    assert len(server.accepted) == 1


async def test_a_thousand_receipts_are_one_call_and_more_are_refused(
    server: PushServer, expo: ExpoPush
) -> None:
    assert await expo.fetch_receipts(["none"] * expo.max_tickets) == {}
    with pytest.raises(ReceiptsUnavailable):
        await expo.fetch_receipts(["none"] * (expo.max_tickets + 1))
    assert server.calls == [("getReceipts", 1_000), ("getReceipts", 1_001)]
