"""HF05x, HF06x and HF082 on: attempts, jobs, chains, workers and cycles."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.core.errors.base import HoldfastError


class AttemptError(HoldfastError):
    """An attempt cannot continue, or chooses not to."""


class LeaseLost(AttemptError):
    """The attempt no longer holds its job.

    The lease expired and another worker took the job, or it was completed, cancelled or deleted
    from outside. Every write must match the lease's token, and this one no longer does: nothing was
    written.
    """

    code = "HF050"
    fix = "stop; effects outside the database must be safe to repeat"
    retryable = True

    def __init__(self, reason: str, message: str = "the lease was lost") -> None:
        """Give the `reason` the lease was lost."""
        super().__init__(f"{message}: {reason}")
        self.reason = reason


class Aborted(AttemptError):
    """The attempt was asked to stop.

    `job.checkpoint()` raises this when the attempt lost its lease, timed out or was cancelled, or
    when the worker is shutting down.
    """

    code = "HF051"
    fix = "let the error leave the handler; the worker handles the job from there"
    retryable = True

    def __init__(self, reason: str, message: str = "the attempt was asked to stop") -> None:
        """Give the `reason` the attempt has to stop."""
        super().__init__(f"{message}: {reason}")
        self.reason = reason


class Busy(AttemptError):
    """The handler is busy.

    Raised by a handler whose resource is overloaded: the job is re-queued without using an attempt,
    and this process claims no more jobs of the type until the delay is over.
    """

    code = "HF052"
    fix = "nothing to fix: the job runs again after the delay"
    retryable = True

    def __init__(
        self,
        delay: str | float | timedelta | datetime | None = None,
        message: str = "the handler is busy",
        *,
        at: datetime | None = None,
    ) -> None:
        """Ask for a `delay` ("30s", seconds, a timedelta), or for the time of the next attempt (with a time zone)."""
        # Durations raise errors of this package, so they can be imported only once it is complete.
        from holdfast.core.duration import format_duration
        from holdfast.core.outcome import pause_of
        from holdfast.core.records import to_datetime

        self.delay_ms, self.at = pause_of(delay, at)
        until = to_datetime(self.at)
        when = f"in {format_duration(self.delay_ms)}" if until is None else f"at {until:%FT%TZ}"
        super().__init__(f"{message}, next attempt {when}", help="")


class Permanent(AttemptError):
    """The job failed permanently.

    Raised by a handler when retrying cannot help: the job becomes a dead letter immediately, even
    if attempts are left.
    """

    code = "HF053"
    fix = "fix the cause, then redrive the dead letter"

    def __init__(self, message: object = "failed permanently", *, help: str = "") -> None:
        """Give the cause, as text or an error; the text is the handler's own, so the general fix is not added to it."""
        super().__init__(message, help=help)


class AlreadyCompleting(AttemptError):
    """`prepare` or `complete` was called out of order.

    A handler in stages may call `prepare` once and then `complete` once; `complete` ends the
    attempt, so nothing can follow it.
    """

    code = "HF054"
    fix = "use at most one `job.prepare()` followed by one `job.complete()`"


class CircularWait(AttemptError):
    """The next job would wait for a chain that waits for this one.

    A handler continued its chain with a job whose blockers, directly or indirectly, wait for that
    chain. It would be a deadlock, so the job failed.
    """

    code = "HF055"
    fix = "remove the blocker that causes the cycle; see `holdfast chains show`"


class ChainError(HoldfastError):
    """An operation on a chain, job or worker is not possible."""


class ChainNotFound(ChainError):
    """No chain has this id.

    The id was never used, its transaction was rolled back or is not committed yet, or the chain was
    deleted or archived.
    """

    code = "HF060"
    fix = "check the id; a chain's id is the id of its first job"


class JobNotFound(ChainError):
    """No job has this id.

    The id was never used, its transaction was rolled back or is not committed yet, or the job was
    deleted or archived.
    """

    code = "HF061"
    fix = "check the id with `holdfast jobs list`"


class ChainFailed(ChainError):
    """The chain failed.

    One of its jobs failed permanently, so the chain has no output. It remains in the dead letters
    until it is redriven or dropped.
    """

    code = "HF062"
    fix = "see `holdfast chains show` for the cause, fix it, then run `holdfast dead redrive`"


class ChainCancelled(ChainError):
    """The chain was cancelled.

    An operator or one of its handlers cancelled the chain before it had an output.
    """

    code = "HF063"
    fix = "start it again if you still need it"


class ChainDeleted(ChainError):
    """The chain was deleted.

    The chain existed when the wait started and was deleted before it finished.
    """

    code = "HF064"
    fix = "start it again if you still need it"


class WaitTimeout(ChainError):
    """Timed out waiting for the chain.

    Only the wait ended: the chain continues, and you can read its output later.
    """

    code = "HF065"
    fix = "wait again, with a longer timeout"
    retryable = True


class StillReferenced(ChainError):
    """Other jobs wait for the chain.

    Deleting a chain that blocks others would leave them waiting forever, so it is rejected with a
    list of those jobs.
    """

    code = "HF066"
    fix = "wait until they have finished, delete their chains first, or delete with cascade"
    retryable = True

    def __init__(self, message: str, references: Sequence[str]) -> None:
        """List the ids of the jobs that still wait."""
        super().__init__(message, details=[f"job {job_id} waits for it" for job_id in references])
        self.references = tuple(references)


class WrongState(ChainError):
    """Not allowed in this state.

    The job's current state does not allow this action.
    """

    code = "HF067"
    fix = "see `holdfast jobs show` for the state and the actions it allows"


class NotTerminal(WrongState):
    """The job has not finished.

    Only completed, failed and cancelled jobs can be redriven, dropped or archived.
    """

    code = "HF068"
    fix = "wait until it has finished, or cancel it first"


class WorkerNotFound(ChainError):
    """No live worker has this id.

    A worker gets a new id each time it starts. Stopped or unresponsive workers cannot be drained.
    """

    code = "HF069"
    fix = "see `holdfast workers list` for live workers"


class CycleError(HoldfastError):
    """An operation on a cycle is not possible."""


class CycleNotFound(CycleError):
    """No cycle has this name.

    Workers register their cycles when they start. A cycle that no worker has registered yet cannot
    be paused, resumed or run.
    """

    code = "HF082"
    fix = "check the name with `holdfast cycles list`"


class DuplicateCycle(CycleError):
    """Two cycles have the same name.

    The name identifies the cycle's lock, its slots, its runs and its runner in a tick, so it must
    be unique among cycles and runners.
    """

    code = "HF083"
    fix = "rename one of them"


class ServiceCallFailed(CycleError):
    """A service call failed.

    Cycles may call an API with a service token and an idempotency key that is the same for every
    run of a slot, so a call is safe to repeat.
    """

    code = "HF084"
    fix = "check WORKER_API_BASE_URL and WORKER_API_SERVICE_TOKEN, and the API's own log"
    retryable = True
