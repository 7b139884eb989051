"""Gives an application consumers of the event log."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import HandlerInvalid, InvalidDuration, InvalidName, InvalidOption
from holdfast.core.instants import Instant, parse_since
from holdfast.core.registry import check_name
from holdfast.core.retry import Retry
from holdfast.core.signatures import check_call, is_async, name_of, parameter_type
from holdfast_streams.brokers import JetStream, RelayTarget
from holdfast_streams.commands import stream_facts
from holdfast_streams.consumer import CONSUMER_RETRY, Consumer, ConsumerOrder
from holdfast_streams.errors import DuplicateReader
from holdfast_streams.inbox.declaration import Inboxes
from holdfast_streams.reader_store import EARLIEST, READERS, resolve_since
from holdfast_streams.relay.relay import Relay, check_client
from holdfast_streams.relay.sink import MAX_MESSAGES
from holdfast_streams.stream_event import StreamEvent

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast_streams.relay.cloud_events import Encode

H = TypeVar("H", bound=Callable[..., Any])

MAX_BATCH = 2_000
DEFAULT_BATCH = 500

_ATTACHED = "streams"
_PATTERN = re.compile(r"[A-Za-z0-9_.*:\-]{1,200}")
_SUBJECT = re.compile(r"([A-Za-z0-9_\-]+\.)+\{line\}(\.([A-Za-z0-9_\-]+|\{event\}|\{key\}))+")


def add_streams(app: Holdfast) -> Streams:
    """Give an application consumers of the event log; called again, return the same ones."""
    found: Streams | None = app.attached.get(_ATTACHED)
    if found is None:
        found = app.attached[_ATTACHED] = Streams(app)
        app.after_migrate.append(found.register)
    return found


def declared_streams(app: Holdfast) -> Streams | None:
    """Return the application's streams, if it has some."""
    found: Streams | None = app.attached.get(_ATTACHED)
    return found


class Streams:
    """The readers of the event log that an application declares, and its inboxes."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self.consumers: dict[str, Consumer] = {}
        self.inbox = Inboxes(app)
        self.relays: dict[str, Relay] = {}

    def consumer(
        self,
        *patterns: str,
        name: str | None = None,
        batch: int | None = None,
        order: ConsumerOrder | None = None,
        since: datetime | Duration | None = None,
        retry: Retry | None = None,
        begin: Callable[[], Any] | None = None,
    ) -> Callable[[H], H]:
        """Register the decorated function as a consumer of events whose names match, such as `order.*`.

        It is called with events and the transaction in which its position is committed: with a list if its parameter is
        annotated as one or `batch` is given, else with one event after the other.

        name: under which its position is kept; by default the function's. batch: the most events of a call, up to
        2,000, by default 500. order: with "key", later events of a parked event's key wait for it. since: where a new
        consumer begins: "earliest", a time, or how long ago; by default from now on. retry: how often a block is tried
        as a whole before its events are tried by halves; by default three times.
        begin: begins a transaction of your own, such as `sessions.begin` of SQLAlchemy; the handler gets what it opens.

        Raises: InvalidName, InvalidOption, HandlerInvalid, DuplicateReader.
        """
        if not patterns or callable(patterns[0]):
            raise InvalidName(
                "a consumer needs the events it reads", help='write @streams.consumer("order.*")'
            )
        wanted = tuple(dict.fromkeys(_check_pattern(each) for each in patterns))
        size = _check_batch(batch)
        _check_order(order)
        if begin is not None and not callable(begin):
            raise InvalidOption(
                f"begin={repr(begin)[:40]} begins no transaction", help="write begin=sessions.begin"
            )
        instant, ago_ms = parse_start(since)

        def register(handler: H) -> H:
            check_call(handler, "events", "tx")
            annotation = parameter_type(handler)
            takes_list = get_origin(annotation) is list or annotation is list or batch is not None
            consumer = Consumer(
                name=check_name(name or str(getattr(handler, "__name__", ""))),
                patterns=wanted,
                handler=handler,
                batch=size,
                is_single=not takes_list,
                is_async=is_async(handler),
                data_type=_data_type(handler, annotation),
                order=order,
                since=instant,
                since_ms_ago=ago_ms,
                retry=retry or CONSUMER_RETRY,
                begin=begin,
            )
            self._check_new(consumer.name)
            self.consumers[consumer.name] = consumer
            self._app.registry.log_patterns.extend(wanted)
            return handler

        return register

    def relay(
        self,
        *patterns: str,
        to: RelayTarget,
        name: str | None = None,
        batch: int | None = None,
        order: ConsumerOrder | None = "key",
        raw: bool = False,
        encode: Encode | None = None,
        content_type: str | None = None,
        source: str | None = None,
        subject: str | None = None,
        since: datetime | Duration | None = None,
    ) -> None:
        """Append events whose names match to a stream of a broker, each once, in order per key.

        With a `FastStreamTarget`, each at least once.

        to: the stream. name: under which its position is kept; by default the stream's. batch: the most messages of an
        append, up to 1,000, by default 500. order: with "key", as by default, later events of a parked event's key wait
        for it, and an event without a key is parked; None lets all pass. raw: only the data and the event's own
        headers, instead of CloudEvents in binary mode. encode: makes the bytes of an event's data, whose type
        content_type then says. source: whose events they are, for CloudEvents; by default "holdfast:" and the name.
        subject: of JetStream; by default "STREAM.{line}.{event}". since: where a new relay begins, as for a consumer.

        Raises: InvalidName, InvalidOption, DuplicateReader, MissingExtra.
        """
        if not patterns:
            raise InvalidName(
                "a relay needs the events it sends", help='write streams.relay("order.*", to=…)'
            )
        if not isinstance(to, RelayTarget):
            raise InvalidOption(
                f"to={repr(to)[:60]} is not a stream of a broker",
                help='write to=JetStream("nats://host:4222", stream="ORDERS"), or a RedisStream',
            )
        check_client(to)
        _check_order(order)
        instant, ago_ms = parse_start(since)
        relay = Relay(
            name=check_name(name or to.stream),
            patterns=tuple(dict.fromkeys(_check_pattern(each) for each in patterns)),
            to=to,
            batch=_check_batch(batch, MAX_MESSAGES),
            order=order,
            is_raw=raw,
            encode=encode,
            content_type=content_type or _content_type(encode),
            source=source or f"holdfast:{name or to.stream}",
            subject=_check_subject(subject, to),
            since=instant,
            since_ms_ago=ago_ms,
        )
        self._check_new(relay.name)
        for other in self.relays.values():
            if (other.to.url, other.to.stream) == (to.url, to.stream):
                raise DuplicateReader(
                    f"{other.name} and {relay.name} feed the same stream, {to.stream}",
                    help="a stream has one relay: give that one all patterns",
                )
        self.relays[relay.name] = relay
        self._app.registry.log_patterns.extend(relay.patterns)

    def _check_new(self, name: str) -> None:
        if name in self.consumers or name in self.relays:
            raise DuplicateReader(f"there are two readers called {name}")

    def lag(self) -> dict[str, int]:
        """Return how many places of the log each registered reader has still to read."""
        facts = self._app.database.read(stream_facts())
        return {each.reader.name: each.lag for each in facts}

    def register(self) -> None:
        """Register the readers in the database; `app.migrate` and workers do it too."""
        database, now = self._app.database, self._app.instant()
        for each in self.consumers.values():
            since = database.run(resolve_since(each.since_ms_ago, each.since))
            database.run(READERS.register(each.name, "consumer", each.patterns, since, now))
        self.inbox.register()
        for relay in self.relays.values():
            since = database.run(resolve_since(relay.since_ms_ago, relay.since))
            database.run(
                READERS.register(relay.name, "relay", relay.patterns, since, now, relay.target)
            )


def parse_start(since: object) -> tuple[Instant | None, int | None]:
    """Read where a reader begins: as an instant, or as milliseconds before now. Raises: InvalidOption.

    None and "latest" are the end of the log.
    """
    if since is None or since == "latest":
        return None, None
    if since == "earliest":
        return EARLIEST, None
    if isinstance(since, str | int | float | timedelta) and not isinstance(since, bool):
        try:
            return None, milliseconds(since)
        except InvalidDuration:
            if not isinstance(since, str):
                raise
    try:
        return parse_since(since), None
    except InvalidOption as error:
        raise InvalidOption(
            error.message, help='write "earliest", "latest", "2h" for how long ago, or "2026-01-01"'
        ) from None


def _check_pattern(pattern: object) -> str:
    if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
        raise InvalidName(
            f"{repr(pattern)[:60]} does not name events",
            help='name an event, or several with a star, as in "order.*"',
        )
    return pattern


def _check_batch(batch: object, limit: int = MAX_BATCH) -> int:
    if batch is None:
        return DEFAULT_BATCH
    if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= limit:
        raise InvalidOption(f"batch={repr(batch)[:40]} is not between 1 and {limit}")
    return batch


def _check_order(order: object) -> None:
    if order not in (None, "key"):
        raise InvalidOption(f"order={repr(order)[:40]} is not an order", help='write order="key"')


def _content_type(encode: Encode | None) -> str:
    return "application/json" if encode is None else "application/octet-stream"


def _check_subject(subject: str | None, to: object) -> str | None:
    """Return a template of subjects: plain parts, then the line, then what it may name. Raises: InvalidOption."""
    if subject is None:
        return None
    if not isinstance(to, JetStream) or not _SUBJECT.fullmatch(subject):
        raise InvalidOption(
            f"subject={subject[:60]!r} is not a template of NATS subjects",
            help='write it as "orders.{line}.{event}" or "orders.{line}.{key}.{event}"',
        )
    return subject


def _data_type(handler: Callable[..., Any], annotation: Any) -> Any:
    """Return the type of events' data: Order for `StreamEvent[Order]` or a list of them. Raises: HandlerInvalid."""
    member = annotation
    if get_origin(annotation) is list:
        (member,) = get_args(annotation)
    if member in (Any, list, StreamEvent, inspect.Parameter.empty):
        return Any
    if get_origin(member) is not StreamEvent:
        raise HandlerInvalid(
            f"{name_of(handler)} takes {annotation!r}, which is not an event of the log",
            help="annotate its first parameter with StreamEvent, or with list[StreamEvent]",
        )
    (found,) = get_args(member)
    return Any if isinstance(found, TypeVar) else found
