"""Prepare and complete: the two short transactions of a staged handler, in whichever colour it is written."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any

from holdfast.core.errors import LeaseLost
from holdfast.core.model import Finish
from holdfast.core.outcome import Continue
from holdfast.ops.finish import FinishReport, finish_attempts
from holdfast.storage.database import Database
from holdfast.storage.statement import run, run_async


class Preparation:
    """A short transaction before the work; it commits at the end of its block."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sync: AbstractContextManager[Any] | None = None
        self._async: AbstractAsyncContextManager[Any] | None = None

    def __enter__(self) -> Any:
        self._sync = self._database.transaction()
        return self._sync.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._sync is not None
        return self._sync.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:
        self._async = self._database.transaction_async()
        return await self._async.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(kind, error, trace)


class Completion:
    """The transaction that ends the attempt. Its block only opens it; the worker closes it, the fenced write last."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sync: AbstractContextManager[Any] | None = None
        self._async: AbstractAsyncContextManager[Any] | None = None
        self.tx: Any = None

    @property
    def is_async(self) -> bool:
        """In which colour it was opened."""
        return self._async is not None

    @property
    def is_open(self) -> bool:
        """Whether its block was entered."""
        return self.tx is not None

    def continue_with(self, type: Any, input: Any = None, **options: Any) -> Continue:
        """Answer that the chain goes on: return this from the handler."""
        return Continue(type, input, **options)

    def __enter__(self) -> Completion:
        self._sync = self._database.transaction()
        self.tx = self._sync.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Stay open: an exception after the block must still undo it."""

    async def __aenter__(self) -> Completion:
        self._async = self._database.transaction_async()
        self.tx = await self._async.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stay open: an exception after the block must still undo it."""

    async def commit_async(self, finish: Finish) -> FinishReport:
        """Make the fenced write and commit. Raises: LeaseLost, with everything undone."""
        assert self._async is not None
        opened, self._async = self._async, None
        try:
            report = await run_async(finish_attempts(self._database.store, [finish]), self.tx)
            _check(report)
        except BaseException as error:
            await opened.__aexit__(type(error), error, error.__traceback__)
            raise
        await opened.__aexit__(None, None, None)
        return report

    def commit(self, finish: Finish) -> FinishReport:
        """The same in the other colour."""
        assert self._sync is not None
        opened, self._sync = self._sync, None
        try:
            report = run(finish_attempts(self._database.store, [finish]), self.tx)
            _check(report)
        except BaseException as error:
            opened.__exit__(type(error), error, error.__traceback__)
            raise
        opened.__exit__(None, None, None)
        return report

    async def undo_async(self, error: BaseException) -> None:
        """Roll back what the handler wrote in it."""
        opened, self._async = self._async, None
        if opened is not None:
            await _quietly_async(opened, error)

    def undo(self, error: BaseException) -> None:
        """The same in the other colour."""
        opened, self._sync = self._sync, None
        if opened is not None:
            _quietly(opened, error)


def _check(report: FinishReport) -> None:
    if not report.accepted:
        raise LeaseLost("taken_by_another_worker", "the completion was refused")


async def _quietly_async(opened: AbstractAsyncContextManager[Any], error: BaseException) -> None:
    try:
        await opened.__aexit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error:
            raise


def _quietly(opened: AbstractContextManager[Any], error: BaseException) -> None:
    try:
        opened.__exit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error:
            raise
