"""HF05x: leases and attempts, raised by handlers or into them."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.core.errors.base import HoldfastError


class AttemptError(HoldfastError):
    """An attempt cannot go on, or asks not to."""


class LeaseLost(AttemptError):
    """The attempt no longer holds its job.

    The lease ran out and another worker took the job, or it was completed, cancelled or deleted
    from outside. Every write presents the lease's token, and this one's is void: nothing was
    written.
    """

    code = "HF050"
    fix = "stop; whatever this attempt did outside the database must bear being done again"
    retryable = True

    def __init__(self, reason: str, message: str = "the lease was lost") -> None:
        """Say by `reason` why the lease is gone."""
        super().__init__(f"{message}: {reason}")
        self.reason = reason


class Aborted(AttemptError):
    """The attempt was told to stop.

    `job.checkpoint()` raises this when the attempt has lost its lease, ran out of time, was
    cancelled, or the worker is shutting down.
    """

    code = "HF051"
    fix = "let the error leave the handler; the worker knows what to do with the job"
    retryable = True

    def __init__(self, reason: str, message: str = "the attempt was told to stop") -> None:
        """Say by `reason` why the attempt has to stop."""
        super().__init__(f"{message}: {reason}")
        self.reason = reason


class Busy(AttemptError):
    """The handler asks for a pause.

    Raised by a handler whose resource is overloaded: the job goes back without losing an attempt,
    and the process claims no more jobs of the type until the delay is over.
    """

    code = "HF052"
    fix = "nothing to fix: the job is tried again after the delay"
    retryable = True

    def __init__(
        self,
        delay: str | float | timedelta | datetime | None = None,
        message: str = "the handler is busy",
        *,
        at: datetime | None = None,
    ) -> None:
        """Ask for a `delay` ("30s", seconds, a timedelta), or for the instant of the next attempt (with a zone)."""
        # Durations raise errors of this package, so they can be imported only once it is complete.
        from holdfast.core.duration import format_duration
        from holdfast.core.outcome import pause_of
        from holdfast.core.records import to_datetime

        self.delay_ms, self.at = pause_of(delay, at)
        until = to_datetime(self.at)
        when = f"in {format_duration(self.delay_ms)}" if until is None else f"at {until:%FT%TZ}"
        super().__init__(f"{message}, again {when}", help="")


class Permanent(AttemptError):
    """The job failed for good.

    Raised by a handler that knows that no further attempt can help: the job becomes a dead letter
    at once, whatever attempts are left.
    """

    code = "HF053"
    fix = "mend the cause, then redrive the dead letter"

    def __init__(self, message: object = "failed for good", *, help: str = "") -> None:
        """Say why, by a text or an error; the words are the handler's own, so no general help is added to them."""
        super().__init__(message, help=help)


class CircularWait(AttemptError):
    """The next job would wait for a chain that waits for this one.

    A handler continued its chain with a job whose blockers wait, themselves or through others, for that very chain.
    None of them could ever go on, so the job failed instead.
    """

    code = "HF055"
    fix = "leave out the blocker that closes the circle; `holdfast chains show` says who waits for whom"


class AlreadyCompleting(AttemptError):
    """`prepare` or `complete` was called out of order.

    A staged handler may open `prepare` once and then `complete` once; the second ends the attempt,
    so nothing can follow it.
    """

    code = "HF054"
    fix = "use at most one `job.prepare()` followed by one `job.complete()`"
