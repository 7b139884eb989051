"""Expo's push service over HTTP: https://docs.expo.dev/push-notifications/sending-notifications/"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx
import msgspec

from tenders.push import (
    Confirmed,
    Failed,
    Invalid,
    PushMessage,
    ReceiptOutcome,
    ReceiptsUnavailable,
    Retryable,
    SendOutcome,
    Sent,
)
from tenders.settings import Settings
from tenders.trust import trusted_authorities

T = TypeVar("T")

MAX_WAIT = timedelta(hours=1)
"""A longer Retry-After counts as this."""

MAX_MESSAGE_LENGTH = 500

# Refusals of a request because of what is in it. One bad message must not take the other 99 with it.
_REFUSED_CONTENT = frozenset({400, 413, 422})

_TOKEN = re.compile(
    r"Expo(?:nent)?PushToken\[[^\s\[\]]{1,200}\]|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I
)


class _Details(msgspec.Struct):
    error: str = ""


class _Answer(msgspec.Struct):
    """A ticket or a receipt."""

    status: str
    id: str = ""
    message: str = ""
    details: _Details = msgspec.field(default_factory=_Details)


class _Tickets(msgspec.Struct):
    data: list[msgspec.Raw]


class _Receipts(msgspec.Struct):
    data: dict[str, msgspec.Raw]


class _RequestError(msgspec.Struct):
    code: str = ""
    message: str = ""


class _RequestErrors(msgspec.Struct):
    errors: list[_RequestError]


class _CallFailed(Exception):
    """A call that brought no usable answer; `is_content` means that it was refused for what it contained."""

    def __init__(
        self, code: str, message: str, after: timedelta = timedelta(), *, is_content: bool = False
    ) -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.after = after
        self.is_content = is_content


class ExpoPush:
    """Tickets say that Expo took a message, receipts whether Apple or Google did."""

    name = "expo"
    max_messages = 100
    max_tickets = 1_000

    def __init__(self, url: str, access_token: str = "", timeout_s: float = 15.0) -> None:
        """Take the address of the API, up to and including its version; nothing is opened yet."""
        headers = {"Authorization": f"Bearer {access_token}"} if access_token else {}
        # asyncio.timeout limits the whole call: httpx starts again with every byte.
        self._client = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=timeout_s, verify=trusted_authorities()
        )
        self._timeout_s = timeout_s

    @classmethod
    def of(cls, settings: Settings) -> ExpoPush:
        """Make one from the application's settings."""
        return cls(settings.expo_url, settings.expo_access_token, settings.push_timeout_s)

    async def send(self, messages: Sequence[PushMessage]) -> list[SendOutcome]:
        """See `PushProvider.send`. A malformed token is invalid without being sent."""
        outcomes: list[SendOutcome] = [
            Invalid("MalformedToken", "not the form of an Expo push token") for _ in messages
        ]
        places = [place for place, each in enumerate(messages) if is_push_token(each.token)]
        answers = await self._send([messages[place] for place in places])
        for place, answer in zip(places, answers, strict=True):
            outcomes[place] = answer
        return outcomes

    async def fetch_receipts(self, tickets: Sequence[str]) -> dict[str, ReceiptOutcome]:
        """See `PushProvider.fetch_receipts`."""
        try:
            content = await self._call("push/getReceipts", {"ids": list(tickets)})
            found = _decode(content, _Receipts).data
        except _CallFailed as failure:
            raise ReceiptsUnavailable(failure.code, failure.message, failure.after) from None
        asked = set(tickets)
        outcomes = {id: _receipt_outcome(raw) for id, raw in found.items() if id in asked}
        return {id: outcome for id, outcome in outcomes.items() if outcome is not None}

    async def aclose(self) -> None:
        """Close connections."""
        await self._client.aclose()

    async def _send(self, messages: Sequence[PushMessage]) -> list[SendOutcome]:
        if not messages:
            return []
        try:
            tickets = await self._fetch_tickets(messages)
        except _CallFailed as failure:
            return await self._send_after(failure, messages)
        return [_send_outcome(each) for each in tickets]

    async def _send_after(
        self, failure: _CallFailed, messages: Sequence[PushMessage]
    ) -> list[SendOutcome]:
        """Halve a batch that was refused for its content, until the message that is to blame is alone."""
        if not failure.is_content:
            retry = Retryable(failure.code, failure.message, failure.after, is_outage=True)
            return [retry] * len(messages)
        if len(messages) == 1:
            return [Failed(failure.code, failure.message)]
        middle = len(messages) // 2
        return [*await self._send(messages[:middle]), *await self._send(messages[middle:])]

    async def _fetch_tickets(self, messages: Sequence[PushMessage]) -> list[msgspec.Raw]:
        body = [
            {"to": each.token, "title": each.title, "body": each.body, "data": dict(each.data)}
            for each in messages
        ]
        tickets = _decode(await self._call("push/send", body), _Tickets).data
        if len(tickets) != len(messages):
            # Nothing says which message a ticket belongs to.
            raise _CallFailed(
                "InvalidAnswer", f"{len(tickets)} tickets for {len(messages)} messages"
            )
        return tickets

    async def _call(self, path: str, body: object) -> bytes:
        """Return the content of a successful answer. Raises: _CallFailed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._client.post(path, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _CallFailed("Unreachable", _text(f"no connection: {error}")) from None
        except (TimeoutError, httpx.TimeoutException):
            limit = f"no answer within {self._timeout_s:g} s"
            raise _CallFailed("Timeout", f"{limit}; it may have been accepted") from None
        except httpx.HTTPError as error:
            lost = f"the connection ended before the answer ({type(error).__name__})"
            raise _CallFailed("AnswerLost", f"{lost}; it may have been accepted") from None
        if answer.status_code != 200:
            raise _refusal(answer)
        return answer.content


def is_push_token(text: str) -> bool:
    """Return whether a text has the form of a token that Expo could have issued."""
    return _TOKEN.fullmatch(text) is not None


def _refusal(answer: httpx.Response) -> _CallFailed:
    """Read what an answer other than 200 says about the whole request."""
    status = answer.status_code
    try:
        errors = msgspec.json.decode(answer.content, type=_RequestErrors).errors
    except (msgspec.DecodeError, UnicodeDecodeError):
        errors = []
    first = errors[0] if errors else _RequestError()
    message = _text(first.message or answer.reason_phrase or f"status {status}")
    if status == 429:
        wait = _wait_of(answer.headers.get("Retry-After", ""))
        return _CallFailed("TooManyRequests", message, wait)
    if status in _REFUSED_CONTENT:
        return _CallFailed(_text(first.code) or f"Http{status}", message, is_content=True)
    if status >= 500:
        wait = _wait_of(answer.headers.get("Retry-After", ""))
        return _CallFailed(f"Http{status}", message, wait)
    return _CallFailed("Unauthorized" if status in (401, 403) else f"Http{status}", message)


def _wait_of(header: str) -> timedelta:
    """Read Retry-After: seconds or a date."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:9])), MAX_WAIT)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return timedelta()
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return min(max(until - datetime.now(UTC), timedelta()), MAX_WAIT)


def _send_outcome(raw: msgspec.Raw) -> SendOutcome:
    ticket = _read(raw)
    if ticket is None or (ticket.status == "ok" and not ticket.id):
        return Retryable("InvalidAnswer", "the ticket cannot be read; it may have been accepted")
    if ticket.status == "ok":
        return Sent(ticket.id)
    code, message = _code(ticket), _text(ticket.message)
    if code == "DeviceNotRegistered":
        return Invalid(code, message)
    if code in _FINAL:
        return Failed(code, message)
    return Retryable(code, message)


def _receipt_outcome(raw: msgspec.Raw) -> ReceiptOutcome | None:
    """Read a receipt; None when it cannot be read, as if it were not ready yet."""
    receipt = _read(raw)
    if receipt is None:
        return None
    if receipt.status == "ok":
        return Confirmed()
    code, message = _code(receipt), _text(receipt.message)
    if code == "MessageRateExceeded":
        return Retryable(code, message)
    return Invalid(code, message) if code == "DeviceNotRegistered" else Failed(code, message)


_FINAL = frozenset({"MessageTooBig", "MismatchSenderId", "InvalidCredentials"})
"""Errors of a ticket that another attempt would meet again."""


def _read(raw: msgspec.Raw) -> _Answer | None:
    try:
        answer = msgspec.json.decode(raw, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return answer if answer.status in ("ok", "error") else None


def _decode(content: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _CallFailed(
            "InvalidAnswer", "the answer cannot be read; it may have been accepted"
        ) from None


def _code(answer: _Answer) -> str:
    return _text(answer.details.error)[:100] or "UnknownError"


def _text(text: str) -> str:
    """Make a provider's words storable; they like to quote the device's token."""
    words = _TOKEN.sub("the device", text)
    return "".join(each if each.isprintable() else "\ufffd" for each in words)[:MAX_MESSAGE_LENGTH]
