"""The streams of brokers that relays feed and inboxes read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JetStream:
    """A stream of NATS JetStream, at one server or several: `nats://a:4222,b:4222,c:4222`."""

    url: str
    stream: str
    durable: str | None = None


@dataclass(frozen=True, slots=True)
class RedisStream:
    """A stream of Redis or Valkey, at `redis://host:6379/0`."""

    url: str
    stream: str
    group: str | None = None
