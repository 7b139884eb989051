"""What a reader does with the events it reads: the port between the loop that reads lines and those who take blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

from holdfast.core.instants import Instant
from holdfast.storage.database import Database
from holdfast.storage.operation import Op
from holdfast.worker.clock import Clock
from holdfast_streams.errors import LineLost
from holdfast_streams.line_reader import HeldLine
from holdfast_streams.reader_store import LINES, ReadBlock, ReaderKind

RENEWED_S = 0.1
"""How long a line is left alone whose lease was not renewed in time."""

DIED = "the process ended while it was taken"


class BlockDelivery(Protocol):
    """Takes the blocks of one reader, each line's in order and one at a time; blocks of different lines together."""

    @property
    def name(self) -> str:
        """The reader's name, under which its positions are kept."""

    @property
    def kind(self) -> ReaderKind: ...

    @property
    def patterns(self) -> Sequence[str]:
        """Which events it reads."""

    @property
    def batch(self) -> int:
        """How many events a block has at most."""

    @property
    def target(self) -> str | None:
        """Where a relay sends events, for people."""

    @property
    def look_s(self) -> float | None:
        """How long a line without new events is left alone."""

    def begins_at(self) -> Op[Instant | None]:
        """Return where a new reader begins: an instant, 0 for all there is, None for what comes from now on."""

    async def prepare(self, held: HeldLine) -> None:
        """Be ready for a line's next block, before it is read; `held.position` may be moved. Raises: as `deliver`."""

    @property
    def max_deaths(self) -> int | None:
        """How often an event is begun alone with which processes end before it is parked."""

    async def give_up(self, held: HeldLine, block: ReadBlock, error: str) -> None:
        """Park a block of one event with which processes end, without trying it. Raises: as `deliver`."""

    async def deliver(self, held: HeldLine, block: ReadBlock) -> None:
        """Take a block, and move the position under its token; `held.position` says how far that has come.

        Raises: LineLost, RetryLater, and what the database raises.
        """

    async def take_due(self, held: HeldLine) -> None:
        """Take the parked events of a line that are due again. Raises: as `deliver`."""

    async def close(self) -> None:
        """Close what it holds open."""


class RetryLater(Exception):
    """A block could not be taken and stays where it is; it is read again after a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:g} s")
        self.seconds = seconds


async def wait_for_data(
    database: Database, held: HeldLine, error: Exception, delay_ms: int, now: Instant | None
) -> NoReturn:
    """Note that data in files is out of reach, which is no failure of its event. Raises: RetryLater, LineLost."""
    noted = LINES.fail(held.token, held.failures, str(error), delay_ms, now)
    if not await database.run_async(noted):
        raise LineLost(f"{held.mark} is read by another process") from error
    raise RetryLater(delay_ms / 1000) from error


def check_lease(held: HeldLine, clock: Clock) -> None:
    """Begin nothing for a line whose lease was not renewed in time: another process may read it. Raises: RetryLater."""
    if clock.monotonic() >= held.until:
        raise RetryLater(RENEWED_S)
