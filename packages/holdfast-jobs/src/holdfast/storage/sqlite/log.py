"""The log in SQLite: a place is drawn and filled under the file's write lock, so there are never gaps."""

from __future__ import annotations

from holdfast.core.instants import Instant
from holdfast.core.records import NewJob
from holdfast.core.subscriptions import Subscription
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.log import LogStore, Published, event_params
from holdfast.storage.store.params import fetch, texts


class SqliteLogStore(LogStore):
    """Publishing in up to three statements."""

    def publish(
        self,
        event: NewJob,
        is_declared: bool,
        channel: str | None = None,
        now: Instant | None = None,
    ) -> Op[Published]:
        subscriptions = yield from fetch(
            Subscription, "subscription_list", events=texts([event.type])
        )
        given = event_params(event, is_declared, now)
        asked = {name: given.pop(name) for name in ("hash", "declared")}
        drawn = yield Statement("log_next", {**asked, "event": event.type})
        for line, place in drawn:
            yield Statement("log_append", {**given, "line": line, "place": place})
        return Published(subscriptions, bool(drawn))
