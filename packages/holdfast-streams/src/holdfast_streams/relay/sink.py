"""Sinks: streams of brokers that a relay appends to, one writer per line. The port, and what goes over it.

Each message carries its position. A stream itself says where to go on, and refuses who is not its line's last writer;
so what was appended by a process that died, or was stopped for longer than its lease, is never appended again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

BlockedState = Literal["away", "no_leader", "unfit", "full", "ahead", "recreate"]
"""Why a line waits: the broker is away; its stream has no leader, is unfit, full, ahead, or to be made again."""

MAX_MESSAGES = 1_000
"""How many messages a batch has at most, as JetStream allows."""


class Position(NamedTuple):
    """Where a message is in its line: its epoch, the place of the log, and a number for those that were sent late.

    A parked event that is retried comes after later places. It gets the place that its line has reached by then, and
    the next number there, so that positions of a line only grow.
    """

    epoch: int
    place: int
    late: int = 0

    def on(self, line: int) -> str:
        """Return it as the text of a header: epoch, line, place and number."""
        return f"{self.epoch}/{line}/{self.place}/{self.late}"


def read_position(text: str) -> Position:
    """Read the header's text. Raises: ValueError."""
    epoch, _, place, late = map(int, text.split("/"))
    return Position(epoch, place, late)


class OutgoingMessage(msgspec.Struct, frozen=True):
    """An event as a broker gets it."""

    position: Position
    id: str
    event: str
    key: str | None
    headers: Mapping[str, str]
    data: bytes

    @property
    def header_bytes(self) -> int:
        """About how many bytes its headers have."""
        return sum(len(name) + len(text) + 4 for name, text in self.headers.items())


class Stored(NamedTuple):
    """A message that a stream has."""

    position: Position
    id: str
    event: str


class LineEnd(msgspec.Struct, frozen=True):
    """The end of a line in a stream: its last message, and the stream's own numbers of that and of the oldest kept."""

    position: Position | None = None
    id: str | None = None
    sequence: int = 0
    oldest: int = 0


class Sink(Protocol):
    """A stream of a broker. Its lines are independent; a line has one caller at a time in a process."""

    async def open(self, creates: bool) -> None:
        """Connect, if that is needed, and see that the stream is fit; `creates` says whether to make a missing one.

        Raises: BrokerAway, StreamUnfit.
        """

    async def resume(self, line: int) -> LineEnd:
        """Return the end of a line as the stream has it. Raises: BrokerAway, StreamUnfit."""

    async def append(
        self, line: int, expected: LineEnd, batch: Sequence[OutgoingMessage]
    ) -> LineEnd:
        """Append all messages, or none, if the line still ends where it is expected to; return the new end.

        Raises: SecondWriter, EventRefused, BrokerAway, StreamUnfit.
        """

    async def read_after(self, line: int, position: Position, limit: int) -> list[Stored]:
        """Return what a line has after a position, the first so many. Raises: BrokerAway, StreamUnfit."""

    def refusal(self, line: int, message: OutgoingMessage) -> str | None:
        """Say why the stream would refuse a message for itself, whatever the others are."""

    async def close(self) -> None:
        """Close the connection."""
