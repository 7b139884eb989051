"""Subscriptions of handlers to published events, and the events that are stored for them."""

from __future__ import annotations

import msgspec

from holdfast.core.instants import Instant


class Subscription(msgspec.Struct, frozen=True):
    """An event and the handler it is delivered to."""

    event: str
    handler: str

    @property
    def job_type(self) -> str:
        """The job type that delivers this event to this handler."""
        return f"{self.event}/{self.handler}"


class NewSubscription(Subscription, frozen=True):
    """A subscription to be written: after which event it begins, and for how long its events are kept at least."""

    replay_after: str | None = None
    keep_ms: int | None = None


class SubscriptionRecord(Subscription, frozen=True):
    """A subscription as it is kept: since when, up to which event it was replayed, and how long events are kept.

    `replay_after` is None when no replay is under way.
    """

    created_at: Instant
    replay_after: str | None = None
    keep_ms: int | None = None


class Replaying(msgspec.Struct, frozen=True):
    """A subscription whose earlier events are being replayed, and the event up to which they were."""

    after: str
    created_at: Instant


class StoredEvent(msgspec.Struct, frozen=True):
    """A delivery of an event, or the event itself; without an input it only says how far the look went."""

    id: str
    type: str
    input: str | None
    version: int | None
    planned_at: Instant | None
    context: str | None = None


class KeptEvent(msgspec.Struct, frozen=True):
    """How long an event is kept at least, because one of its handlers asks for it."""

    event: str
    keep_ms: int


class WaitingEvent(msgspec.Struct, frozen=True):
    """An event published before any subscription to it."""

    id: str
    event: str
    input: str
    priority: int
    trace: str | None
    planned_at: Instant | None
    version: int | None = None
    context: str | None = None
