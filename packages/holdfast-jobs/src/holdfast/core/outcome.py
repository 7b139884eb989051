"""What a handler can return besides a plain value: decisions, not failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption
from holdfast.core.instants import Instant, to_instant


@dataclass(frozen=True, slots=True)
class Continue:
    """Continue the chain: complete this job and start the next one in the same transaction."""

    type: Any
    input: Any = None
    after: str | float | timedelta | None = None
    at: datetime | None = None
    priority: int | None = None
    blockers: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class Snooze(Exception):
    """Run this job again later, after a delay or at an instant; the attempt is not counted.

    Return it, or raise it from anywhere in the call stack. Raising it undoes what an atomic handler has written;
    returning it commits that.
    """

    def __init__(
        self, delay: Duration | datetime | None = None, *, at: datetime | None = None
    ) -> None:
        """Say how long ("30s", seconds, a timedelta) or until when (a time with a zone). Raises: InvalidOption."""
        self.delay_ms, self.at = pause_of(delay, at)
        super().__init__("the handler asked to run later")

    def __repr__(self) -> str:
        """Show when."""
        return f"Snooze(delay_ms={self.delay_ms}, at={self.at})"

    def __eq__(self, other: object) -> bool:
        """Compare as the value it also is: a test may expect `Snooze("30s")` of a handler."""
        return isinstance(other, Snooze) and (self.delay_ms, self.at) == (other.delay_ms, other.at)

    def __hash__(self) -> int:
        """Hash as it compares."""
        return hash((self.delay_ms, self.at))


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this job as cancelled, with the reason."""

    reason: str = ""


def pause_of(delay: Duration | datetime | None, at: datetime | None) -> tuple[int, Instant | None]:
    """Read a pause: milliseconds from now, or the instant it ends at. Raises: InvalidOption, InvalidDuration."""
    if (delay is None) == (at is None):
        raise InvalidOption(
            "a snooze needs either a delay or a time", help='give "30s" or at=datetime.now(UTC) + …'
        )
    if delay is not None and not isinstance(delay, datetime):
        return milliseconds(delay), None
    until: object = delay or at
    if not isinstance(until, datetime) or until.tzinfo is None:
        raise InvalidOption(
            f"at={repr(until)[:60]} is not a time with a time zone",
            help="use datetime.now(UTC) + …",
        )
    return 0, to_instant(until)
