"""The streams of brokers that relays feed and inboxes read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JetStream:
    """A stream of NATS JetStream, at one server or several: `nats://a:4222,b:4222,c:4222`.

    An inbox reads it as the consumer `durable`, by default its own name; with `filter`, only these subjects of it, as
    in "ORDERS.0.>".
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
        return [self.filter] if isinstance(self.filter, str) else list(self.filter or ())


@dataclass(frozen=True, slots=True)
class RedisStream:
    """A stream of Redis or Valkey, at `redis://host:6379/0`."""

    url: str
    stream: str
    group: str | None = None
