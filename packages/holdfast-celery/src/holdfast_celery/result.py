"""Results: what became of a task that was started, by its id."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from holdfast_celery.coverage import refuse, refuse_attributes, refuse_import
from holdfast_celery.exceptions import TimeoutError, read_error, read_traceback
from holdfast_celery.scope import current_celery, current_request, read_connection, transaction_of

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


_LOOKS_EVERY_S = 0.1
"""How often a task is looked for whose start is not committed, which nothing announces."""


def _error_of(chain: Chain) -> Exception | None:
    """Return what a task that did not complete ended with."""
    if chain.state not in ("failed", "cancelled"):
        return None
    kind = "Cancelled" if chain.state == "cancelled" else "Exception"
    return read_error(chain.error or f"{kind}: {_STATUS[chain.state].lower()}")


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

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        no_ack: bool = True,
        follow_parents: bool = True,
        callback: Callable[[str, Any], object] | None = None,
        on_message: None = None,
        on_interval: None = None,
        disable_sync_subtasks: bool = True,
    ) -> Any:
        """Wait for the result, or raise the task's exception; without `propagate` that is returned.

        callback: called with id and value of a task that completed. disable_sync_subtasks: False to wait inside a task.
        interval, no_ack and follow_parents are accepted and mean nothing here.
        Raises: TimeoutError, TaskRevokedError, the task's own error, CircularWait inside a task, CeleryUnsupported.
        """
        for name, value in (("on_message", on_message), ("on_interval", on_interval)):
            if value is not None:
                raise refuse("result argument", name)
        if disable_sync_subtasks and current_request.get().job is not None:
            raise CircularWait(
                "a task waits for another task, which may never get a slot",
                help="write a chain or a chord: the next task gets the result",
            )
        found = self._wait(timeout)
        error = _error_of(found)
        if error is None:
            if callback is not None:
                callback(self.id, found.output)
            return found.output
        if propagate:
            raise error
        return error

    wait = get

    def maybe_throw(self, propagate: bool = True) -> Any:
        """Raise the exception of a task that has failed, as `get` does; before the end, do nothing."""
        error = self.result if self.status in ("FAILURE", "REVOKED") else None
        if propagate and error is not None:
            raise error
        return self.result

    @property
    def status(self) -> str:
        """PENDING, STARTED, SUCCESS, FAILURE or REVOKED; PENDING for an id that no task has, or not yet."""
        found = self._look()
        return "PENDING" if found is None else _STATUS[found.state]

    state = status

    @property
    def result(self) -> Any:
        """The result, the exception of a task that failed or was revoked, or None before the end."""
        found = self._look()
        return None if found is None else _error_of(found) or found.output

    info = result

    @property
    def traceback(self) -> str | None:
        """The exception of a task that failed, with its stack."""
        found = self._look()
        is_there = found is not None and found.state == "failed" and found.error
        return read_traceback(str(found.error)) if found is not None and is_there else None

    def ready(self) -> bool:
        """Whether it has ended."""
        found = self._look()
        return found is not None and found.state in TERMINAL

    def successful(self) -> bool:
        """Whether it completed."""
        return self.status == "SUCCESS"

    def failed(self) -> bool:
        """Whether it failed."""
        return self.status == "FAILURE"

    def revoke(
        self,
        connection: None = None,
        terminate: bool = True,
        signal: str | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Cancel it: at once if it waits, through its abort signal if it runs; one that has ended stays as it is.

        The arguments are accepted and mean nothing here. Raises: ChainNotFound.
        """
        with transaction_of(self.app) as tx, suppress(WrongState):
            self.app.chains.cancel(tx, self._find().id, reason="revoked")

    def forget(self) -> None:
        """Delete it and its result. Raises: ChainNotFound, StillReferenced."""
        with transaction_of(self.app) as tx:
            self.app.chains.delete(tx, self._find().id)

    def _wait(self, timeout: float | None) -> Chain:
        """Wait until it has ended, also for one whose transaction is not committed yet. Raises: TimeoutError."""
        ends_at = math.inf if timeout is None else time.monotonic() + timeout
        while (found := self._look()) is None:
            left = ends_at - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no task with the id {self.id[:60]!r} was seen in {timeout} s")
            time.sleep(min(_LOOKS_EVERY_S, left))
        rest = None if timeout is None else max(0.0, ends_at - time.monotonic())
        try:
            return (
                found if found.state in TERMINAL else self.app.chains.wait(found.id, timeout=rest)
            )
        except (ChainFailed, ChainCancelled):
            return self._find()
        except WaitTimeout as error:
            raise TimeoutError(f"the task did not end within {timeout} s") from error

    def _look(self) -> Chain | None:
        try:
            return self._find()
        except ChainNotFound:
            return None

    def _find(self) -> Chain:
        """Read its chain, by id or by key. Raises: ChainNotFound."""
        tx = read_connection(self.app)
        if self._chain_id is None:
            try:
                # An id of Celery's own making is a UUID as well, and then a key here.
                self._chain_id = self.app.chains.get(UUID(self.id), tx=tx).id
            except (ValueError, ChainNotFound):
                self._chain_id = self._find_by_key(tx).id
        return self.app.chains.get(self._chain_id, tx=tx)

    def _find_by_key(self, tx: Any) -> Chain:
        page = self.app.chains.list(format_filter([Term("key", ":", (self.id,))]), limit=1, tx=tx)
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

    def get(self, timeout: float | None = None, propagate: bool = True, **more: Any) -> list[Any]:
        """Wait for all of them; it takes and raises what `AsyncResult.get` does."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        found = []
        for each in self.results:
            left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            try:
                found.append(each.get(left, propagate, **more))
            except TimeoutError as error:
                raise TimeoutError(
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
            each.revoke()

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[AsyncResult]:
        return iter(self.results)

    def __getitem__(self, place: int) -> AsyncResult:
        return self.results[place]


def __getattr__(name: str) -> Any:
    """Return `EagerResult`, which is made of these; refuse what else Celery has here, with what to write instead."""
    if name == "EagerResult":
        from holdfast_celery.eager import EagerResult

        return EagerResult
    raise refuse_import(__name__, name)
