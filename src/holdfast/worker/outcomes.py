"""Outcomes on their way into the database: waiting, recorded, refused, or replaced by a report of failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.core.errors import DatabaseError, HoldfastError, TransactionError
from holdfast.core.model import Finish, Stand
from holdfast.worker.attempt import Attempt
from holdfast.worker.holdings import Holdings
from holdfast.worker.judge import as_it_stands, describe, unwritable


class Pending(msgspec.Struct, gc=False):
    """An outcome that waits to be written; unsure when an earlier try may have written it."""

    attempt: Attempt
    finish: Finish
    unsure: bool = False
    is_replacement: bool = False
    is_settled: bool = False


class Recorder(Protocol):
    """Hears what became of outcomes, after commit."""

    def accepted(self, attempt: Attempt, finish: Finish) -> None: ...
    def refused(self, attempt: Attempt, stand: Stand) -> None: ...


class Outcomes:
    """Takes outcomes off the worker's hands once the database has spoken. On the loop."""

    def __init__(self, holdings: Holdings, recorder: Recorder) -> None:
        self._holdings = holdings
        self._recorder = recorder
        self._open = 0
        self.all_settled = asyncio.Event()
        self.all_settled.set()

    def wait_for(self, attempt: Attempt, finish: Finish) -> Pending:
        """Take an outcome that is to be written."""
        if self._open == 0:
            self.all_settled.clear()
        self._open += 1
        return Pending(attempt, finish)

    def end(self, recorded: Sequence[Pending]) -> None:
        """Note outcomes that are recorded."""
        self._holdings.end([each.attempt for each in recorded])
        for each in recorded:
            self._recorder.accepted(each.attempt, each.finish)
        self._close(recorded)

    def settle(self, pending: Pending, stand: Stand) -> None:
        """Act on an outcome whose token no longer stands: an earlier try has written it, or it is refused."""
        earlier = as_it_stands(pending.finish, stand, pending.unsure)
        if earlier is not None:
            pending.finish = earlier
            self.end([pending])
            return
        self._close([pending])
        self._holdings.lose(pending.attempt)
        self._recorder.refused(pending.attempt, stand)

    def _close(self, settled: Sequence[Pending]) -> None:
        for each in settled:
            each.is_settled = True
        self._open -= len(settled)
        if self._open == 0:
            self.all_settled.set()


def replacement(pending: Pending, error: Exception) -> Pending:
    """The report that an outcome could not be written. Raises: the error, when even that report could not be."""
    if pending.is_replacement:
        raise error
    pending.is_settled = True
    finish = unwritable(pending.finish, *describe(error))
    return Pending(pending.attempt, finish, pending.unsure, is_replacement=True)


def is_about_the_data(error: Exception) -> bool:
    """Whether an error lies in what was to be written, by the names that every driver shares (PEP 249).

    A text or number that no driver can send never reaches the database; what it raises is of Python's own kinds.
    """
    if isinstance(error, DatabaseError | TransactionError):
        return False
    if isinstance(error, HoldfastError):
        return not error.retryable
    if isinstance(error, ValueError | TypeError | OverflowError):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names.isdisjoint({"DataError", "IntegrityError"})
