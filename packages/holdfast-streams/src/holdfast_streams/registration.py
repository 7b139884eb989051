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
from holdfast_streams.commands import stream_facts
from holdfast_streams.consumer import CONSUMER_RETRY, Consumer, ConsumerOrder
from holdfast_streams.errors import DuplicateReader
from holdfast_streams.inbox.declaration import Inboxes
from holdfast_streams.reader_store import EARLIEST, READERS, resolve_since
from holdfast_streams.stream_event import StreamEvent

if TYPE_CHECKING:
    from holdfast.app import Holdfast

H = TypeVar("H", bound=Callable[..., Any])

MAX_BATCH = 2_000
DEFAULT_BATCH = 500

_ATTACHED = "streams"
_PATTERN = re.compile(r"[A-Za-z0-9_.*:\-]{1,200}")


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
        if order not in (None, "key"):
            raise InvalidOption(
                f"order={repr(order)[:40]} is not an order", help='write order="key"'
            )
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
            if consumer.name in self.consumers:
                raise DuplicateReader(f"there are two consumers called {consumer.name}")
            self.consumers[consumer.name] = consumer
            self._app.registry.log_patterns.extend(wanted)
            return handler

        return register

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


def parse_start(since: object) -> tuple[Instant | None, int | None]:
    """Read where a reader begins: as an instant, or as milliseconds before now. Raises: InvalidOption."""
    if since is None:
        return None, None
    if since == "earliest":
        return EARLIEST, None
    if isinstance(since, str | int | float | timedelta) and not isinstance(since, bool):
        try:
            return None, milliseconds(since)
        except InvalidDuration:
            if not isinstance(since, str):
                raise
    return parse_since(since), None


def _check_pattern(pattern: object) -> str:
    if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
        raise InvalidName(
            f"{repr(pattern)[:60]} does not name events",
            help='name an event, or several with a star, as in "order.*"',
        )
    return pattern


def _check_batch(batch: object) -> int:
    if batch is None:
        return DEFAULT_BATCH
    if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= MAX_BATCH:
        raise InvalidOption(f"batch={repr(batch)[:40]} is not between 1 and {MAX_BATCH}")
    return batch


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
