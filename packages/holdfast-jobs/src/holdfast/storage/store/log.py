"""Publishing: the subscriptions of an event, and its place in the log, over named statements."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import NewJob
from holdfast.core.subscriptions import Subscription
from holdfast.storage.operation import Op, Statement, Value


class Published(NamedTuple):
    """To whom an event is delivered as a job, and whether it was appended to the log."""

    subscriptions: list[Subscription]
    is_logged: bool


def event_params(event: NewJob, is_declared: bool, now: Instant | None) -> dict[str, Value]:
    """Return the parameters of an append. The line is the hash of the key, forever, modulo the number of lines."""
    facts = {"version": event.version, "traceparent": event.trace}
    headers = {name: value for name, value in facts.items() if value is not None}
    return {
        "hash": crc32((event.id if event.key is None else event.key).encode()),
        "declared": is_declared,
        "event": event.type,
        "key": event.key,
        "data": event.input,
        "headers": msgspec.json.encode(headers).decode() if headers else None,
        "id": event.id,
        "now": now,
    }


class LogStore:
    """The log of events, as those see it who publish; `holdfast-streams` reads it."""

    def publish(
        self,
        event: NewJob,
        is_declared: bool,
        channel: str | None = None,
        now: Instant | None = None,
    ) -> Op[Published]:
        """Append an event if it has readers, and read who handles it. One statement.

        Concurrency: waits for nobody. Places of one line are drawn in turn, and a reader waits at a missing place until
        the transactions that may have drawn it are over.
        """
        params = {**event_params(event, is_declared, now), "channel": channel}
        rows = yield Statement("event_publish", params)
        subscriptions = [Subscription(*row) for row in rows if row[1] is not None]
        return Published(subscriptions, len(subscriptions) < len(rows))
