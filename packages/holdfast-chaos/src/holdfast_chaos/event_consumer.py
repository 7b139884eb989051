"""The consumer of a campaign's events, which its workers run; imported only where holdfast-streams is installed."""

from __future__ import annotations

import time
from typing import Any

from holdfast.app import Holdfast
from holdfast.core.retry import Retry
from holdfast_chaos.event_log import EVENT, EventData
from holdfast_chaos.statements import statement_of
from holdfast_streams import StreamEvent, add_streams

READER = "chaos.events"
BATCH = 50
HANDLING_S = 0.1
"""How long a block takes, so that faults find consumers in the middle of one."""


def add_consumer(app: Holdfast, retry: Retry) -> None:
    """Have an application write down each event that it takes, in the transaction that moves its position."""
    statement = statement_of(app, "taken_add")

    @add_streams(app).consumer(
        EVENT, name=READER, batch=BATCH, order="key", since="earliest", retry=retry
    )
    def take(events: list[StreamEvent[EventData]], tx: Any) -> None:
        for each in events:
            tx.execute(statement, {"tag": each.data.tag, "key": each.key, "n": each.data.n})
        if app.database.store.dialect != "sqlite":  # whose only writer this is
            time.sleep(HANDLING_S)
