"""Results: what became of a task that was started, by its id."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.client.views import Chain
from holdfast.core.errors import (
    ChainCancelled,
    ChainFailed,
    ChainNotFound,
    CircularWait,
    WaitTimeout,
    WrongState,
)
from holdfast.core.filters import Term, format_filter
from holdfast.core.lifecycle import TERMINAL, ChainState
from holdfast_celery.coverage import refuse_attributes
from holdfast_celery.scope import current_celery, current_request, transaction_of

if TYPE_CHECKING:
    from holdfast_celery.application import Celery

_STATUS: Mapping[ChainState, str] = {
    "blocked": "PENDING",
    "pending": "PENDING",
    "running": "STARTED",
    "completed": "SUCCESS",
    "failed": "FAILURE",
    "cancelled": "REVOKED",
}


class AsyncResult:
    """A task that was started: by the id that delay() returned, or by the task_id it was given."""

    def __init__(
        self, id: str | UUID, app: Celery | None = None, chain_id: UUID | None = None
    ) -> None:
        self.id = str(id)
        self._app = app
        self._chain_id = chain_id

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("result attribute")

    @property
    def task_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def app(self) -> Celery:
        """The application it was started in."""
        return self._app or current_celery()

    def get(self, timeout: float | None = None, propagate: bool = True) -> Any:
        """Wait for the result. Without `propagate`, an error is returned instead of raised.

        Raises: WaitTimeout, ChainFailed, ChainCancelled, ChainDeleted, ChainNotFound, CircularWait inside a task.
        """
        if current_request.get().job is not None:
            raise CircularWait(
                "a task waits for another task, which may never get a slot",
                help="write a chain or a chord: the next task gets the result",
            )
        try:
            return self.app.chains.wait(self._find().id, timeout=timeout).output
        except (ChainFailed, ChainCancelled) as error:
            if propagate:
                raise
            return error

    wait = get

    @property
    def status(self) -> str:
        """PENDING, STARTED, SUCCESS, FAILURE or REVOKED. Raises: ChainNotFound."""
        return _STATUS[self._find().state]

    state = status

    @property
    def result(self) -> Any:
        """The result, the error's text of a task that failed, or None before the end. Raises: ChainNotFound."""
        found = self._find()
        return found.error if found.state in ("failed", "cancelled") else found.output

    info = result

    @property
    def traceback(self) -> str | None:
        """The error with its stack. Raises: ChainNotFound."""
        return self._find().error

    def ready(self) -> bool:
        """Whether it has ended. Raises: ChainNotFound."""
        return self._find().state in TERMINAL

    def successful(self) -> bool:
        """Whether it completed. Raises: ChainNotFound."""
        return self._find().state == "completed"

    def failed(self) -> bool:
        """Whether it failed. Raises: ChainNotFound."""
        return self._find().state == "failed"

    def revoke(self) -> None:
        """Cancel it: at once if it waits, through its abort signal if it runs. Raises: ChainNotFound, WrongState."""
        with transaction_of(self.app) as tx:
            self.app.chains.cancel(tx, self._find().id, reason="revoked")

    def forget(self) -> None:
        """Delete it and its result. Raises: ChainNotFound, StillReferenced."""
        with transaction_of(self.app) as tx:
            self.app.chains.delete(tx, self._find().id)

    def _find(self) -> Chain:
        """Read its chain, by id or by key."""
        if self._chain_id is None:
            try:
                # An id of Celery's own making is a UUID as well, and then a key here.
                self._chain_id = self.app.chains.get(UUID(self.id)).id
            except (ValueError, ChainNotFound):
                self._chain_id = self._find_by_key().id
        return self.app.chains.get(self._chain_id)

    def _find_by_key(self) -> Chain:
        page = self.app.chains.list(format_filter([Term("key", ":", (self.id,))]), limit=1)
        for each in page:
            return each
        raise ChainNotFound(f"no task has the id {self.id[:60]!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"AsyncResult({self.id})"


class GroupResult:
    """The results of a group, in its order."""

    def __init__(self, results: Sequence[AsyncResult]) -> None:
        self.results = list(results)

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("group result attribute")

    def get(self, timeout: float | None = None, propagate: bool = True) -> list[Any]:
        """Wait for all of them. Raises: see `AsyncResult.get`."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        found = []
        for each in self.results:
            left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            try:
                found.append(each.get(left, propagate))
            except WaitTimeout as error:
                raise WaitTimeout(
                    f"{self.completed_count()} of {len(self)} completed within {timeout} s"
                ) from error
        return found

    join = get

    def ready(self) -> bool:
        """Whether all have ended."""
        return all(each.ready() for each in self.results)

    def successful(self) -> bool:
        """Whether all completed."""
        return all(each.successful() for each in self.results)

    def failed(self) -> bool:
        """Whether one failed."""
        return any(each.failed() for each in self.results)

    def completed_count(self) -> int:
        """Count those that completed."""
        return sum(each.successful() for each in self.results)

    def revoke(self) -> None:
        """Cancel those that have not ended."""
        for each in self.results:
            # One that has ended, maybe a moment ago, is in the wrong state.
            with suppress(WrongState):
                each.revoke()

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[AsyncResult]:
        return iter(self.results)

    def __getitem__(self, place: int) -> AsyncResult:
        return self.results[place]
