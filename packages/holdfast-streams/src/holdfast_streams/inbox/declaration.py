"""Declares inboxes: `@streams.inbox(…)` for a broker's stream, `@streams.inbox.http(…)` for webhooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import HandlerInvalid, InvalidOption
from holdfast.core.redaction import redact
from holdfast.core.registry import check_name
from holdfast.core.retry import Retry
from holdfast.core.signatures import check_call, is_async, name_of, parameter_type
from holdfast_streams.brokers import JetStream, RedisStream
from holdfast_streams.consumer import ConsumerOrder
from holdfast_streams.errors import DuplicateInbox, InboxNotFound
from holdfast_streams.inbox.inbox_store import INBOXES, InboxKind
from holdfast_streams.inbox.message import Message, RawMessage, WebhookRequest, decode_json

if TYPE_CHECKING:
    from holdfast.app import Holdfast

H = TypeVar("H", bound=Callable[..., Any])

INBOX_RETRY = Retry(base="1s", cap="60s", max_attempts=5)
"""How often a broker's message is tried before it is parked."""

DEDUPE = "7d"
BODY_LIMIT = 1_048_576
MAX_BODY = 1_073_741_824
MAX_BATCH = 1_000
DEFAULT_BATCH = 200

OnError = Literal["retry", "park"]


@dataclass(frozen=True, slots=True)
class Inbox:
    """A declared inbox: where its messages come from, how one is recognised, and who takes them."""

    name: str
    handler: Callable[..., Any]
    is_async: bool
    is_single: bool
    data_type: Any
    dedupe_ms: int
    id: Callable[[Any], object] | None = None
    source: JetStream | RedisStream | None = None
    verify: Callable[[WebhookRequest], Any] | None = None
    limit: int = BODY_LIMIT
    on_error: OnError = "retry"
    batch: int = 1
    retry: Retry = INBOX_RETRY
    order: ConsumerOrder | None = None

    @property
    def kind(self) -> InboxKind:
        """What its messages come from."""
        match self.source:
            case None:
                return "http"
            case JetStream():
                return "jetstream"
            case RedisStream():
                return "redis"

    @property
    def source_text(self) -> str:
        """Where its messages come from, without secrets."""
        if self.source is None:
            return f"POST /inbox/{self.name}"
        return f"{redact(self.source.url)} {self.source.stream}"

    def read(self, raw: RawMessage, now: int) -> Message[Any]:
        """Return a message with its data as the handler declares it. Raises: MessageUnreadable."""
        data = raw.body if self.data_type is bytes else decode_json(raw.body, self.data_type)
        received = now if raw.received_us is None else raw.received_us
        return Message(raw.inbox, raw.id, data, raw.body, raw.headers, raw.subject, received)


class Inboxes:
    """The inboxes of an application, by name."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self.declared: dict[str, Inbox] = {}

    def __call__(
        self,
        source: JetStream | RedisStream,
        *,
        name: str | None = None,
        id: Callable[[RawMessage], object] | None = None,
        dedupe: Duration = DEDUPE,
        batch: int = DEFAULT_BATCH,
        retry: Retry | None = None,
        order: ConsumerOrder | None = None,
    ) -> Callable[[H], H]:
        """Register the decorated function as the handler of a broker's messages, each acknowledged after its commit.

        It is called with a message, or with a list if its parameter is annotated as one, and the transaction in which
        the messages are noted as received.

        name: under which they are noted; by default the function's. id: returns what a message is recognised by; by
        default its place in the log it was relayed from, else its own id or its place in the stream. dedupe: how long
        it is recognised, longer than the broker may deliver it again. batch: the most messages of a transaction, up to
        1,000. retry: how often a message is tried before it is parked; by default five times. order: with "key",
        messages of a key are taken in their order, and those behind a parked one wait for it; each line of the stream
        is read by one process at a time, from where the database says.

        Raises: InvalidOption, InvalidName, HandlerInvalid, DuplicateInbox.
        """
        if order not in (None, "key"):
            raise InvalidOption(
                f"order={repr(order)[:40]} is not an order", help='write order="key"'
            )
        if not isinstance(source, JetStream | RedisStream):
            raise InvalidOption(
                f"{repr(source)[:60]} is not a broker's stream",
                help='write @streams.inbox(JetStream("nats://…", stream="PAYMENTS"))',
            )
        _check_number("batch", batch, MAX_BATCH)

        def register(handler: H) -> H:
            own = str(getattr(handler, "__name__", ""))
            self._add(
                handler,
                name or own,
                dedupe,
                id=id,
                source=source,
                batch=batch,
                retry=retry or INBOX_RETRY,
                order=order,
            )
            return handler

        return register

    def http(
        self,
        name: str,
        *,
        verify: Callable[[WebhookRequest], Any],
        id: Callable[[WebhookRequest], object] | None = None,
        dedupe: Duration = DEDUPE,
        limit: int = BODY_LIMIT,
        on_error: OnError = "retry",
    ) -> Callable[[H], H]:
        """Register the decorated function as the handler of webhooks that are posted to `/inbox/{name}`.

        It is called with the message and the transaction in which the message is noted as received; the sender gets
        its 200 after the commit.

        verify: `stripe_signature(secret)` and the like, or a function, sync or async, that raises or returns False for
        a request that the sender did not sign. id: returns what a message is recognised by; not needed where the
        signature's format has one. dedupe: how long it is recognised. limit: the most bytes of a body. on_error: what
        becomes of a message whose handler raises: with "retry" the sender gets a 500 and is expected to send it again,
        with "park" it is kept for `holdfast inbox retry` and the sender gets a 202.

        Raises: InvalidOption, InvalidName, HandlerInvalid, DuplicateInbox.
        """
        if not callable(verify):
            raise InvalidOption(
                f"verify={repr(verify)[:40]} is not a function",
                help="pass hmac_signature(…), stripe_signature(…) or a function of the request",
            )
        found = id or getattr(verify, "message_id", None)
        has_no_id = id is None and getattr(verify, "id_header", "") is None
        if found is None or has_no_id:
            raise InvalidOption(
                f"the inbox {name!r} cannot recognise a message that is sent twice",
                help='pass id=…, such as id=lambda request: request.json["id"]',
            )
        if on_error not in ("retry", "park"):
            raise InvalidOption(f"on_error={repr(on_error)[:40]} is neither retry nor park")
        _check_number("limit", limit, MAX_BODY)

        def register(handler: H) -> H:
            self._add(
                handler, name, dedupe, id=found, verify=verify, limit=limit, on_error=on_error
            )
            return handler

        return register

    def get(self, name: str) -> Inbox:
        """Return an inbox. Raises: InboxNotFound."""
        found = self.declared.get(name)
        if found is None:
            raise InboxNotFound(f"there is no inbox {name[:60]!r}")
        return found

    def register(self) -> None:
        """Register the inboxes in the database."""
        for each in self.declared.values():
            self._app.database.run(
                INBOXES.register(each.name, each.kind, each.source_text, self._app.instant())
            )

    def _add(self, handler: H, name: str, dedupe: Duration, **more: Any) -> None:
        check_call(handler, "message", "tx")
        annotation = parameter_type(handler)
        is_single = not (get_origin(annotation) is list or annotation is list)
        inbox = Inbox(
            name=check_name(name),
            handler=handler,
            is_async=is_async(handler),
            is_single=is_single,
            data_type=_data_type(handler, annotation),
            dedupe_ms=milliseconds(dedupe),
            **more,
        )
        if inbox.source is None and not is_single:
            raise HandlerInvalid(
                f"{name_of(handler)} takes a list, and webhooks come one at a time",
                help="annotate its first parameter with Message",
            )
        if inbox.name in self.declared:
            raise DuplicateInbox(f"there are two inboxes called {inbox.name}")
        self.declared[inbox.name] = inbox


def _check_number(name: str, given: object, highest: int) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= highest:
        raise InvalidOption(f"{name}={repr(given)[:40]} is not between 1 and {highest}")


def _data_type(handler: Callable[..., Any], annotation: Any) -> Any:
    """Return the type of messages' data: Order for `Message[Order]` or a list of them. Raises: HandlerInvalid."""
    member = annotation
    if get_origin(annotation) is list:
        (member,) = get_args(annotation)
    if member in (Any, list, Message):
        return Any
    if get_origin(member) is not Message:
        raise HandlerInvalid(
            f"{name_of(handler)} takes {annotation!r}, which is not a message",
            help="annotate its first parameter with Message, or with list[Message]",
        )
    (found,) = get_args(member)
    return Any if isinstance(found, TypeVar) else found
