"""What goes wrong between a worker and its database: told once when it begins and once when it is over."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.errors import DatabaseUnreachable
from holdfast.worker.clock import Clock
from holdfast.worker.telling import Telling


class Trouble:
    """The troubles of one worker's loops, by the purpose of their links. Used from both threads.

    `when_back` is called, from either thread, when one of them is over.
    """

    def __init__(self, telling: Telling, clock: Clock) -> None:
        self.when_back: Callable[[], None] = lambda: None
        self._telling = telling
        self._clock = clock
        self._since: dict[str, float] = {}
        self.unreachable_at = float("-inf")

    def note(self, purpose: str, error: Exception) -> None:
        """Tell that a loop cannot do its work, unless that is known; it goes on trying."""
        if isinstance(error, DatabaseUnreachable):
            self.unreachable_at = self._clock.monotonic()
        if purpose not in self._since:
            self._since[purpose] = self._clock.monotonic()
            self._telling.last_error = str(error)
            self._telling.tell("database_unreachable", purpose=purpose, error=str(error))

    def over(self, purpose: str) -> None:
        """Tell that a loop does its work again, if it did not."""
        if self._since.pop(purpose, None) is not None:
            self._telling.tell("database_back", purpose=purpose)
            self.when_back()
