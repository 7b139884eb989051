"""The port between an inbox and its broker, and what goes over it. Nothing is acknowledged before it is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast_streams.inbox.message import RawMessage

POSITION = "holdfast-position"
"""The header in which a relay of Holdfast says where in its log a message is: epoch, line, place and number."""


MISSING_HELP = "create it; the inbox goes on by itself"
"""What to do about a stream that is not there."""


class BrokerDelivery(msgspec.Struct, frozen=True):
    """A message that the broker has handed to this process, how often it was handed out, and the broker's own name."""

    raw: RawMessage
    attempts: int
    handle: Any


class BrokerSource(Protocol):
    """A stream of a broker that processes share. Every method raises BrokerAway when the broker cannot be reached."""

    async def open(self) -> None:
        """Connect, and see to it that the stream can be read."""

    async def fetch(self, limit: int, wait_s: float) -> list[BrokerDelivery]:
        """Return what there is, at most so many; when there is nothing, wait for some so long."""

    async def ack(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Say that messages were committed. If that is lost they come again, and are recognised."""

    async def retry_later(self, delivery: BrokerDelivery, delay_s: float) -> None:
        """Have a message delivered again after a while."""

    async def keep(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Say that messages are still worked on, so that no other process gets them."""

    async def close(self) -> None:
        """Disconnect."""


class PlacedMessage(msgspec.Struct, frozen=True):
    """A message of a line: up to where the line is taken with it, and its key."""

    raw: RawMessage
    place: str
    key: str | None


class LineFeed(Protocol):
    """The messages of a line, in their order, from a place on. Raises BrokerAway as a source does."""

    async def fetch(self, limit: int, wait_s: float) -> list[PlacedMessage]:
        """Return what comes next, at most so many; when there is nothing, wait for some so long."""

    async def close(self) -> None:
        """Read no more."""


class LinedSource(Protocol):
    """A stream of a broker whose lines are read from where the database says; the broker remembers nothing."""

    @property
    def lines(self) -> list[str]:
        """Its lines, by name."""

    async def open(self) -> None:
        """Connect."""

    async def begin(self, line: str, place: str | None) -> LineFeed:
        """Read a line after a place, or from its beginning."""

    async def close(self) -> None:
        """Disconnect."""


def message_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of a message that was relayed, or that says so itself, as it can be stored."""
    found = headers.get("ce-subject") or headers.get("holdfast-key")
    return None if found is None else found.replace("\0", "?")


def message_id(headers: Mapping[str, str], place: str) -> str:
    """Return what a message is recognised by: its position in the log it was relayed from, its own id, or its place.

    A stream that was lost and filled again has other places, but the same positions in the log.
    """
    own = headers.get("ce-id") or headers.get("holdfast-id") or ""
    if POSITION in headers:
        return f"{headers[POSITION]} {own}".strip()
    if found := headers.get("nats-msg-id"):
        return found
    return f"{headers.get('ce-source', '')} {own}".strip() if own else place
