"""From a POST to an answer, for any framework: check size and signature, take the message, answer after the commit.

200  taken, or received before.
202  the handler failed and the message is parked, with `on_error="park"`.
400  unreadable.  401  wrong signature.  404  no such inbox.  413  too large.
500  the handler failed; what it wrote was rolled back, and the sender is expected to send it again.
503  the database cannot be reached.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from holdfast.core.errors import BodyTooLarge, DatabaseError, HoldfastError, words_of
from holdfast.core.instants import Instant
from holdfast.core.redaction import clean_error, redact
from holdfast.storage.operation import Op
from holdfast.storage.store.params import resolve_now
from holdfast_streams.consumer import HandlerFailed
from holdfast_streams.errors import InboxHandlerFailed, InboxNotFound, SignatureInvalid
from holdfast_streams.inbox.declaration import Inbox, Inboxes
from holdfast_streams.inbox.inbox_events import (
    INBOX_DUPLICATE,
    INBOX_FAILED,
    INBOX_PARKED,
    INBOX_RECEIVED,
    INBOX_REFUSED,
)
from holdfast_streams.inbox.intake import Intake
from holdfast_streams.inbox.message import RawMessage, WebhookRequest, check_id
from holdfast_streams.registration import declared_streams

if TYPE_CHECKING:
    from holdfast.app import Holdfast

log = logging.getLogger("holdfast.inbox")

CLOCK_S = 30.0
"""How long the difference to the database's clock is trusted."""


class WebhookAnswer(NamedTuple):
    """What a sender is answered: a status, a JSON document and headers."""

    status: int
    document: dict[str, Any]

    @property
    def body(self) -> bytes:
        """The document as it is sent."""
        return msgspec.json.encode(self.document)

    @property
    def media(self) -> str:
        """The content type."""
        return "application/json" if self.status < 300 else "application/problem+json"

    @property
    def headers(self) -> dict[str, str]:
        """What goes with some statuses."""
        found = {401: {"WWW-Authenticate": "Signature"}, 503: {"Retry-After": "1"}}
        return {"Cache-Control": "no-store", **found.get(self.status, {})}


def find_webhook(app: Holdfast, name: str) -> Inbox:
    """Return the inbox that webhooks are posted to. Raises: InboxNotFound."""
    streams = declared_streams(app)
    inbox = (Inboxes(app) if streams is None else streams.inbox).get(name)
    if inbox.source is not None:
        raise InboxNotFound(f"{name[:60]!r} takes no webhooks; it reads {inbox.kind}")
    return inbox


LIMIT_HELP = "send less, or raise limit= of the inbox"


def check_length(inbox: Inbox, length: int) -> None:
    """Refuse a body that is too long. Raises: BodyTooLarge."""
    if length > inbox.limit:
        raise BodyTooLarge(f"the body has more than {inbox.limit} bytes", help=LIMIT_HELP)


async def receive(
    app: Holdfast, name: str, headers: Mapping[str, str], body: bytes
) -> WebhookAnswer:
    """Take a webhook and return the answer; it raises nothing."""
    try:
        return await _receive(app, name, headers, body)
    except HoldfastError as error:
        return refuse(app, name, error)
    except Exception as error:
        log.exception("the inbox %s failed", name)
        failed = InboxHandlerFailed(clean_error(type(error).__name__, words_of(error)))
        return refuse(app, name, failed)


def refuse(app: Holdfast, name: str, error: HoldfastError) -> WebhookAnswer:
    """Return the answer of an error: its code and the reason, for the one who set up the sender."""
    if error.http_status in (400, 401, 413):
        app.tell([INBOX_REFUSED(inbox=name, code=error.code, error=redact(error.message))])
    status = 503 if isinstance(error, DatabaseError) else error.http_status
    title = (type(error).__doc__ or "").partition("\n")[0].removesuffix(".")
    return WebhookAnswer(
        status,
        {
            "type": f"urn:holdfast:error:{error.code}",
            "title": title,
            "status": status,
            "detail": redact(error.message),
            "code": error.code,
            "help": error.help,
        },
    )


async def _receive(
    app: Holdfast, name: str, headers: Mapping[str, str], body: bytes
) -> WebhookAnswer:
    inbox = find_webhook(app, name)
    check_length(inbox, len(body))
    request = WebhookRequest(headers, body, await _now(app))
    await _verify(inbox, request)
    assert inbox.id is not None
    raw = RawMessage(name, _id_of(inbox, request), body, request.headers, None, request.received_us)
    message = inbox.read(raw, request.received_us)
    intake = Intake(app, inbox, asyncio.to_thread)
    try:
        taken = await intake.take([message])
    except HandlerFailed as failure:
        log.exception("the handler of %s failed on %s", name, raw.id)
        return await _failed(app, intake, raw, str(failure))
    spec = INBOX_RECEIVED if taken else INBOX_DUPLICATE
    intake.emit(spec, messages=1)
    state = "received" if taken else "already received"
    return WebhookAnswer(200, {"id": raw.id, "status": state})


async def _failed(app: Holdfast, intake: Intake, raw: RawMessage, error: str) -> WebhookAnswer:
    """Answer for a handler that failed. Raises: InboxHandlerFailed, DatabaseError."""
    name = intake.inbox.name
    if intake.inbox.on_error == "retry":
        intake.emit(INBOX_FAILED, message_id=raw.id, error=error)
        raise InboxHandlerFailed(f"the handler of {name} failed; nothing was stored")
    if not await asyncio.to_thread(app.database.run, _park(intake, raw, error)):
        return WebhookAnswer(200, {"id": raw.id, "status": "already received"})
    intake.emit(INBOX_PARKED, message_id=raw.id, error=error)
    return WebhookAnswer(202, {"id": raw.id, "status": "parked"})


def _park(intake: Intake, raw: RawMessage, error: str) -> Op[bool]:
    """Keep a message, and register its inbox: who serves webhooks may have no worker that did."""
    yield from intake.register()
    return (yield from intake.park(raw, error, 1))


async def _verify(inbox: Inbox, request: WebhookRequest) -> None:
    """Check who sent a request. Raises: SignatureInvalid."""
    assert inbox.verify is not None
    try:
        verdict = inbox.verify(request)
        if inspect.isawaitable(verdict):
            verdict = await verdict
    except HoldfastError:
        raise
    except Exception as error:
        log.warning("verify of %s raised", inbox.name, exc_info=True)
        raise SignatureInvalid(
            f"the signature could not be checked: {type(error).__name__}"
        ) from None
    if verdict is False:
        raise SignatureInvalid("the signature is wrong")


def _id_of(inbox: Inbox, request: WebhookRequest) -> str:
    """Return what a message is recognised by. Raises: MessageUnreadable."""
    assert inbox.id is not None
    try:
        found = inbox.id(request)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # The body is signed, and still not what the function expects.
        found = None
        log.warning("id of %s raised %s", inbox.name, type(error).__name__)
    return check_id(found)


# How far the database's clock is from this process's, and when that was asked, on time.monotonic.
_differences: WeakKeyDictionary[Holdfast, tuple[int, float]] = WeakKeyDictionary()


async def _now(app: Holdfast) -> Instant:
    """Return the database's time without asking it each time: a request that is not signed costs it nothing."""
    fixed = app.instant()
    if fixed is not None:
        return fixed
    own = time.time_ns() // 1000
    known = _differences.get(app)
    if known is None or time.monotonic() - known[1] > CLOCK_S:
        theirs = await asyncio.to_thread(app.database.read, resolve_now(None))
        known = _differences[app] = theirs - own, time.monotonic()
    return own + known[0]
