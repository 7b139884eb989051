"""Outcomes on their way into the database: waiting, recorded, refused, or replaced by a report of failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from holdfast.core.errors import DatabaseError, HoldfastError, TransactionError
from holdfast.core.model import Finish, Stand
from holdfast.worker.attempt import Attempt
from holdfast.worker.holdings import Holdings
from holdfast.worker.judge import as_it_stands, describe, unwritable

LARGE_BYTES = 4 * 1024 * 1024
"""What one statement may carry: an output alone may have a megabyte, and a statement has its time limit."""


class Pending(msgspec.Struct, gc=False):
    """An outcome that waits to be written since a time of the clock; unsure when an earlier try may have written it."""

    attempt: Attempt
    finish: Finish
    since: float
    size: int
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
        self.when_settled: Callable[[], None] = lambda: None
        self.all_settled = asyncio.Event()
        self.all_settled.set()

    def __len__(self) -> int:
        """How many are not settled."""
        return self._open

    def wait_for(self, attempt: Attempt, finish: Finish, now: float) -> Pending:
        """Take an outcome that is to be written."""
        if self._open == 0:
            self.all_settled.clear()
        self._open += 1
        return Pending(attempt, finish, now, size_of(finish))

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
        self.when_settled()


def size_of(finish: Finish) -> int:
    """About how many bytes an outcome is."""
    size = 0
    if finish.output is not None:
        size += len(finish.output)
    if finish.error is not None:
        size += len(finish.error)
    if finish.next is not None:
        size += len(finish.next.input)
    return size


def in_portions(pending: Iterable[Pending], most: int) -> Iterator[list[Pending]]:
    """Cut outcomes into portions that one statement may carry, each job once in a portion."""
    portion: dict[str, Pending] = {}
    size = 0
    for each in pending:
        is_full = len(portion) >= most or size + each.size > LARGE_BYTES
        if portion and (is_full or each.finish.id in portion):
            yield list(portion.values())
            portion, size = {}, 0
        portion[each.finish.id] = each
        size += each.size
    if portion:
        yield list(portion.values())


def replacement(pending: Pending, error: Exception) -> Pending:
    """The report that an outcome could not be written. Raises: the error, when even that report could not be."""
    if pending.is_replacement:
        raise error
    pending.is_settled = True
    finish = unwritable(pending.finish, *describe(error))
    return Pending(
        pending.attempt, finish, pending.since, size_of(finish), pending.unsure, is_replacement=True
    )


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
