"""Whether the broker of an inbox answers: tells when it goes away and when it is back, and how long to wait."""

from __future__ import annotations

import logging

from holdfast.core.redaction import redact
from holdfast.core.retry import Retry
from holdfast.worker.clock import Clock
from holdfast_streams.errors import BrokerAway
from holdfast_streams.inbox.inbox_events import INBOX_AWAY, INBOX_BACK
from holdfast_streams.inbox.intake import Intake

log = logging.getLogger("holdfast.inbox")

AWAY = Retry(base="200ms", cap="15s", max_attempts=None)


class BrokerPresence:
    """It is back with the first answer to a fetch: a broker that is connected to may still lack the stream."""

    def __init__(self, intake: Intake, clock: Clock) -> None:
        self._intake = intake
        self._clock = clock
        self._failures = 0
        self._since = 0.0
        self.error: str | None = None

    def note_away(self, error: BrokerAway) -> int:
        """Note that it is away; return after how many milliseconds to try again."""
        self._failures += 1
        delay_ms = AWAY.delay_ms(self._failures, self._clock.random())
        words = redact(str(error))
        if self.error is None:
            self._since = self._clock.monotonic()
            log.warning("the inbox %s cannot be read: %s", self._intake.inbox.name, error)
            self._intake.emit(INBOX_AWAY, error=words, delay_ms=delay_ms)
        self.error = words
        return delay_ms

    def note_answer(self) -> bool:
        """Note that it answers; return whether it was away."""
        if self.error is None:
            return False
        away_ms = int((self._clock.monotonic() - self._since) * 1000)
        self._failures, self.error = 0, None
        self._intake.emit(INBOX_BACK, away_ms=away_ms)
        return True
