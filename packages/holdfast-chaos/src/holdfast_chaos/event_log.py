"""What a campaign's producers publish into the log of events.

An event says the number that its key had in the transaction that published it. Such numbers have no gap and no
repetition, whatever was rolled back or repeated, so what a consumer must have taken is known without asking the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast_chaos.journal import PublishedEvent
from holdfast_chaos.statements import statement_of

KEYS = 40
EVENT = "chaos.event"
ABSENT = "holdfast-streams is not installed"
NOT_OURS = "they are published beside our own job types only"


class EventData(msgspec.Struct, frozen=True):
    """The data of an event: what it is called in the journals, and the number of its key."""

    tag: str
    n: int


def refuse_events(app: str | None) -> str | None:
    """Return why a campaign publishes no events; None if it does."""
    if app is not None:
        return NOT_OURS
    return None if find_spec("holdfast_streams") else ABSENT


def publish_events(app: Holdfast, tx: Any, keys: Sequence[str]) -> list[PublishedEvent]:
    """Publish an event of each key in the caller's transaction, which locks the keys."""
    made = []
    # In one order, so that no two producers wait for each other.
    for key in sorted(keys):
        ((n,),) = tx.execute(statement_of(app, "key_next"), {"key": key}).fetchall()
        event = PublishedEvent(str(app.new_id()), key, n)
        app.publish(tx, EVENT, EventData(event.tag, n), key=key)
        made.append(event)
    return made
