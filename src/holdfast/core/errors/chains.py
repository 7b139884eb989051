"""HF06x: chains, jobs and workers that are absent, ended differently, or cannot make a move."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors.base import HoldfastError


class ChainError(HoldfastError):
    """What was asked of a chain or job is not possible."""


class ChainNotFound(ChainError):
    """No chain has this id.

    The id was never used, its transaction was rolled back or has not been committed yet, or the
    chain was deleted or archived.
    """

    code = "HF060"
    fix = "check the id; a chain's id is the id of its first job"


class JobNotFound(ChainError):
    """No job has this id.

    The id was never used, its transaction was rolled back or has not been committed yet, or the job
    was deleted or archived.
    """

    code = "HF061"
    fix = "check the id with `holdfast jobs list`"


class ChainFailed(ChainError):
    """The chain failed.

    One of its jobs failed for good, so the chain has no output. It stays among the dead letters
    until it is redriven or dropped.
    """

    code = "HF062"
    fix = "see `holdfast chains show` for the cause, mend it, then `holdfast dead redrive`"


class ChainCancelled(ChainError):
    """The chain was cancelled.

    Somebody, or one of its handlers, cancelled the chain before it had an output.
    """

    code = "HF063"
    fix = "start it again if it is still wanted"


class ChainDeleted(ChainError):
    """The chain was deleted.

    The chain existed when the waiting began and was removed before it ended.
    """

    code = "HF064"
    fix = "start it again if it is still wanted"


class WaitTimeout(ChainError):
    """The chain did not end in time.

    Only the waiting is over: the chain goes on, and its output can be read later.
    """

    code = "HF065"
    fix = "wait again, with a longer timeout"
    retryable = True


class StillReferenced(ChainError):
    """Other jobs wait for the chain.

    Deleting a chain that is a blocker of others would leave them waiting for ever, so it is refused
    with the list of those jobs.
    """

    code = "HF066"
    fix = "wait until they have ended, delete their chains first, or delete with cascade"
    retryable = True

    def __init__(self, message: str, references: Sequence[str]) -> None:
        """List the ids of the jobs that still wait."""
        super().__init__(message, details=[f"waited for by job {job_id}" for job_id in references])
        self.references = tuple(references)


class WrongState(ChainError):
    """The move is not allowed from this state.

    A job's life follows one table of states and moves; this move is not in it for the state that
    the job is in.
    """

    code = "HF067"
    fix = "see `holdfast jobs show` for the state and what may follow it"


class NotTerminal(WrongState):
    """The job has not ended.

    Only completed, failed and cancelled jobs can be redriven, dropped or archived.
    """

    code = "HF068"
    fix = "wait until it has ended, or cancel it first"


class WorkerNotFound(ChainError):
    """No live worker has this id.

    A worker has a new id at each start. Those that have stopped, or gave no sign for long, take no
    orders any more.
    """

    code = "HF069"
    fix = "see `holdfast workers list` for those that live"
