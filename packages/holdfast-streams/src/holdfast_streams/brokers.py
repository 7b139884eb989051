"""The streams of brokers that relays feed and inboxes read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LINES = 16
"""How many lines a relay has."""


def _expand(template: str) -> list[str]:
    numbers = range(LINES if "{line}" in template else 1)
    return [template.replace("{line}", str(line)) for line in numbers]


@dataclass(frozen=True, slots=True)
class JetStream:
    """A stream of NATS JetStream, at one server or several: `nats://a:4222,b:4222,c:4222`.

    An inbox reads it as the consumer `durable`, by default its own name; with `filter`, only these subjects of it, as
    in "ORDERS.0.>"; "ORDERS.{line}.>" means those of each line of a relay. With order="key", each subject is a line.
    """

    url: str
    stream: str
    durable: str | None = None
    filter: str | Sequence[str] | None = None

    @property
    def servers(self) -> list[str]:
        """The address of each server."""
        scheme = self.url.partition("://")[0] if "://" in self.url else "nats"
        return [each if "://" in each else f"{scheme}://{each}" for each in self.url.split(",")]

    @property
    def filters(self) -> list[str]:
        """The subjects that an inbox reads; none means all."""
        given = [self.filter] if isinstance(self.filter, str) else list(self.filter or ())
        return [subject for each in given for subject in _expand(each)]

    @property
    def lines(self) -> list[str]:
        """The subjects of each line, for an inbox that keeps the order of keys."""
        return self.filters or _expand(f"{self.stream}.{{line}}.>")


@dataclass(frozen=True, slots=True)
class RedisStream:
    """A stream of Redis or Valkey, at `redis://host:6379/0`."""

    url: str
    stream: str
    group: str | None = None

    @property
    def lines(self) -> list[str]:
        """The streams of each line, for an inbox that keeps the order of keys: a relay's, and the one of that name."""
        return [self.stream, *(f"{self.stream}:{line}" for line in range(LINES))]


@dataclass(frozen=True, slots=True)
class FastStreamTarget:
    """A publisher of FastStream, for brokers that Holdfast does not speak itself: at least once, not exactly once.

    `FastStreamTarget(broker, broker.publisher("orders"), "orders")`: its name is also the relay's by default.
    """

    broker: Any
    publisher: Any
    stream: str

    @property
    def url(self) -> str:
        """Which broker it is, for people."""
        return f"faststream://{type(self.broker).__name__}"


RelayTarget = JetStream | RedisStream | FastStreamTarget
"""Where a relay sends events."""
