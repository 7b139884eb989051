"""Push notifications: what a provider takes, and what can become of a message and of a ticket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class PushMessage:
    """One notification to one device. `data` reaches the app that opens it."""

    token: str
    title: str
    body: str
    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider accepted the message; its receipt can be fetched by the ticket."""

    ticket: str


@dataclass(frozen=True, slots=True)
class Retryable:
    """Not accepted, or not known to be: worth another attempt, `after` the wait that the provider asked for.

    `is_outage` means that it was not about this message: nothing else will get through now either.
    """

    code: str
    message: str
    after: timedelta = timedelta()
    is_outage: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Refused for good."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """The device cannot be reached any more, whatever is sent to it."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Handed over to Apple or Google."""


SendOutcome: TypeAlias = Sent | Retryable | Failed | Invalid
ReceiptOutcome: TypeAlias = Confirmed | Retryable | Failed | Invalid


class ReceiptsUnavailable(Exception):
    """The provider did not say what became of the tickets; to be asked again, `after` the wait it asked for."""

    def __init__(self, code: str, message: str, after: timedelta = timedelta()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.after = after


class PushProvider(Protocol):
    """Sends messages and says later what became of them."""

    name: str
    max_messages: int
    max_tickets: int

    async def send(self, messages: Sequence[PushMessage]) -> list[SendOutcome]:
        """Send up to `max_messages`; return one outcome for each, in their order. Does not raise for any of them."""

    async def fetch_receipts(self, tickets: Sequence[str]) -> dict[str, ReceiptOutcome]:
        """Fetch the receipts of up to `max_tickets`; those that are not ready yet are left out.

        Raises: ReceiptsUnavailable.
        """

    async def aclose(self) -> None:
        """Close connections."""
