"""The exit codes, and the table of which error leads to which."""

from __future__ import annotations

from enum import IntEnum

from holdfast.core import errors
from holdfast.core.errors import HoldfastError


class Exit(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    PARTLY = 5
    CHECK_NOT_MET = 6
    DATABASE = 7
    TIMED_OUT = 124
    INTERRUPTED = 130
    BROKEN_PIPE = 141


# The nearest base class decides; errors without an entry exit with FAILED.
CODES: dict[type[HoldfastError], Exit] = {
    errors.ConfigError: Exit.USAGE,
    errors.RegistryError: Exit.USAGE,
    errors.UnknownJobType: Exit.NOT_FOUND,
    errors.SubscriptionNotFound: Exit.NOT_FOUND,
    errors.PayloadError: Exit.USAGE,
    errors.ConnectionClosed: Exit.DATABASE,
    errors.DatabaseError: Exit.DATABASE,
    errors.CopiedDatabase: Exit.REFUSED,
    errors.RoleRefused: Exit.REFUSED,
    errors.ChainNotFound: Exit.NOT_FOUND,
    errors.JobNotFound: Exit.NOT_FOUND,
    errors.ChainDeleted: Exit.NOT_FOUND,
    errors.WorkerNotFound: Exit.NOT_FOUND,
    errors.CycleNotFound: Exit.NOT_FOUND,
    errors.TokenNotFound: Exit.NOT_FOUND,
    errors.WaitTimeout: Exit.TIMED_OUT,
    errors.StillReferenced: Exit.REFUSED,
    errors.WrongState: Exit.REFUSED,
    errors.QueryError: Exit.USAGE,
    errors.InvalidOption: Exit.USAGE,
    errors.ScheduleError: Exit.USAGE,
    errors.Refused: Exit.REFUSED,
    errors.CommandUsage: Exit.USAGE,
    errors.AppNotLoaded: Exit.USAGE,
    errors.NotConfirmed: Exit.REFUSED,
    errors.CheckNotMet: Exit.CHECK_NOT_MET,
}


def exit_code(error: HoldfastError) -> Exit:
    """Return the exit code of an error."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
        if code := vars(kind).get("exit_code"):
            return Exit(code)
    return Exit.FAILED
