"""Results: what became of a task that was started, by its id."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import msgspec

from holdfast.client.views import Chain, JobInfo
from holdfast.core.errors import (
    ChainCancelled,
    ChainFailed,
    ChainNotFound,
    OutputInvalid,
    SealError,
    WaitTimeout,
    WrongState,
)
from holdfast.core.filters import Term, format_filter
from holdfast.core.lifecycle import TERMINAL, ChainState
from holdfast_celery.calls import GROUP, untag_known
from holdfast_celery.coverage import refuse, refuse_attributes, refuse_import
from holdfast_celery.exceptions import TaskWouldBlock, TimeoutError, read_error, read_traceback
from holdfast_celery.revocation import REVOKED
from holdfast_celery.scope import current_celery, current_request, read_connection, transaction_of
from holdfast_celery.task_state import ReportedState, read_state
from holdfast_values.tagged_values import untag_value

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


_PART = re.compile(r"([0-9a-f-]{36}):([0-9]{1,9})")
"""The id of a later task of a chain: that of the chain, and its place."""

_LOOKS_EVERY_S = 0.1
"""How often a task is looked for whose start is not committed, which nothing announces."""


class TaskOutcome(msgspec.Struct, frozen=True):
    """What is known of a task: of a whole chain, or of one job of it."""

    id: UUID
    state: ChainState
    output: Any = None
    error: str | None = None

    @property
    def status(self) -> str:
        """The state by Celery's name."""
        return _STATUS[self.state]

    @property
    def value(self) -> Any:
        """What the task returned. Raises: OutputInvalid for an enum that is not there."""
        try:
            return untag_value(self.output)
        except LookupError as error:
            raise OutputInvalid(f"the result cannot be read: {error}", help="") from error

    @property
    def exception(self) -> Exception | None:
        """What a task that did not complete ended with."""
        if self.state not in ("failed", "cancelled"):
            return None
        kind = "Cancelled" if self.state == "cancelled" else "Exception"
        return read_error(self.error or f"{kind}: {self.status.lower()}")


class AsyncResult:
    """A task that was started: by the id that delay() returned, or by the task_id it was given."""

    def __init__(
        self,
        id: str | UUID,
        app: Celery | None = None,
        chain_id: UUID | None = None,
        *,
        takes_group: tuple[bool, ...] = (),
        place: int | None = None,
        is_group: bool = False,
    ) -> None:
        """takes_group: for each job of the chain, whether a group comes before it. place: of which one this is.

        is_group: whether this is what the group at the end of a chain returns.
        """
        self.id = str(id)
        self._app = app
        self._chain_id = chain_id
        self._takes_group = takes_group
        self._place = place
        self._is_group = is_group
        found = _PART.fullmatch(self.id)
        if found is not None:
            self._chain_id, self._place = UUID(found[1]), int(found[2])

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

    @property
    def parent(self) -> AsyncResult | GroupResult | None:
        """The result of what comes before it in its chain; None for a first task, and for a result made from an id."""
        place = len(self._takes_group) - 1 if self._place is None else self._place
        if place < 0:
            return None
        if self._takes_group[place] and not self._is_group:
            return self._group_before(place)
        return self._part(place - 1)

    def _part(self, place: int) -> AsyncResult | None:
        """Return the result of one job of this chain."""
        if place < 0:
            return None
        id = f"{self._chain_id}:{place}" if place else self.id.partition(":")[0]
        shape = self._takes_group
        return AsyncResult(id, self._app, self._chain_id, takes_group=shape, place=place)

    def _group_before(self, place: int) -> GroupResult | None:
        """Return the results of the group that a job of this chain waits for; None before that has started."""
        jobs = self._jobs()
        if place >= len(jobs):
            return None
        blockers = self.app.jobs.blockers(jobs[place].id, tx=read_connection(self.app))
        members = [AsyncResult(each.chain_id, self._app, each.chain_id) for each in blockers]
        return GroupResult(members, app=self._app, parent=self._part(place - 1))

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
        Raises: TimeoutError, TaskRevokedError, the task's own error, TaskWouldBlock inside a task, CeleryUnsupported.
        """
        for name, value in (("on_message", on_message), ("on_interval", on_interval)):
            if value is not None:
                raise refuse("result argument", name)
        if disable_sync_subtasks and current_request.get().job is not None:
            raise TaskWouldBlock(
                "a task waits for another task, which may never get a slot",
                help="write a chain or a chord: the next task gets the result",
            )
        found = self._wait(timeout)
        error = found.exception
        if error is None:
            if callback is not None:
                callback(self.id, found.value)
            return found.value
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
        """PENDING, STARTED, SUCCESS, FAILURE, REVOKED, or what the task has reported with `update_state`.

        PENDING for an id that no task has, or not yet.
        """
        found = self._look()
        if found is None:
            return "PENDING"
        reported = self._read_state(found)
        return (reported.state if reported else None) or found.status

    state = status

    @property
    def result(self) -> Any:
        """The result, the exception of a task that failed or was revoked, or what it has reported before the end."""
        found = self._look()
        if found is None:
            return None
        reported = self._read_state(found)
        return reported.meta if reported else found.exception or found.value

    info = result

    def _read_state(self, found: TaskOutcome) -> ReportedState | None:
        """Return what a running task has reported with `update_state`."""
        return read_state(self.app, str(found.id)) if found.state == "running" else None

    @property
    def traceback(self) -> str | None:
        """The exception of a task that failed, with its stack."""
        found = self._look()
        is_there = found is not None and found.state == "failed" and found.error
        return read_traceback(str(found.error)) if found is not None and is_there else None

    @property
    def name(self) -> str | None:
        """The task's name; this and what follows are None for an id that no task has."""
        job = self._job()
        return None if job is None else job.type.rpartition(":")[2]

    @property
    def args(self) -> list[Any] | None:
        """What it was called with."""
        job = self._job()
        return None if job is None else untag_known(job.input.get("args", []))

    @property
    def kwargs(self) -> dict[str, Any] | None:
        """What it was called with."""
        job = self._job()
        return None if job is None else untag_known(job.input.get("kwargs", {}))

    @property
    def queue(self) -> str | None:
        """Its queue."""
        job = self._job()
        return (
            None if job is None else job.type.rpartition(":")[0] or self.app.conf.task_default_queue
        )

    @property
    def worker(self) -> str | None:
        """The worker that runs it, or ran it last."""
        job = self._job()
        return None if job is None else job.worker

    @property
    def date_done(self) -> datetime | None:
        """When it ended."""
        job = self._job()
        return None if job is None else job.finished_at

    def _job(self) -> JobInfo | None:
        """Return its job; of a chain, the one that it has come to."""
        try:
            jobs = self._jobs()
        except ChainNotFound:
            return None
        place = len(jobs) - 1 if self._place is None else self._place
        return jobs[place] if place < len(jobs) else None

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
        terminate: bool = False,
        signal: str | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Cancel it if it waits, and with `terminate` also if it runs, through its abort signal.

        One that runs otherwise goes on, but is not retried. One that has ended stays as it is, and an id that no task
        has is passed over. The other arguments are accepted and mean nothing here.
        """
        with transaction_of(self.app) as tx, suppress(WrongState, ChainNotFound):
            running = None if terminate else self._running_alone()
            if running is not None:
                self.app.use_key(tx, REVOKED, str(running.id))
            elif not self._has_gone_on():
                self.app.chains.cancel(tx, self._find().id, reason="revoked")

    def _has_gone_on(self) -> bool:
        """Whether the chain has come to a task after this one. Raises: ChainNotFound."""
        return self._place is not None and self._place < len(self._jobs()) - 1

    def _running_alone(self) -> JobInfo | None:
        """Return its job if that runs and no other task is cut off with it: a chain is one record."""
        jobs = self._jobs()
        is_this = self._place in (None, len(jobs) - 1)
        if not is_this or jobs[-1].state != "running":
            return None
        with suppress(SealError):
            if self._place is None and jobs[-1].input.get("then"):
                return None
        return jobs[-1]

    def forget(self) -> None:
        """Delete it and its result; an id that no task has is passed over. Raises: StillReferenced."""
        with transaction_of(self.app) as tx, suppress(ChainNotFound):
            self.app.chains.delete(tx, self._find().id)

    def _wait(self, timeout: float | None) -> TaskOutcome:
        """Wait until it has ended, also for one whose transaction is not committed yet. Raises: TimeoutError."""
        ends_at = math.inf if timeout is None else time.monotonic() + timeout
        while (found := self._look()) is None or (
            self._place is not None and found.state not in TERMINAL
        ):
            left = ends_at - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no task with the id {self.id[:60]!r} ended in {timeout} s")
            time.sleep(min(_LOOKS_EVERY_S, left))
        if found.state in TERMINAL:
            return found
        assert self._chain_id is not None
        rest = None if timeout is None else max(0.0, ends_at - time.monotonic())
        try:
            self.app.chains.wait(self._chain_id, timeout=rest)
        except (ChainFailed, ChainCancelled):
            pass
        except WaitTimeout as error:
            raise TimeoutError(f"the task did not end within {timeout} s") from error
        return self._outcome()

    def _look(self) -> TaskOutcome | None:
        try:
            return self._outcome()
        except ChainNotFound:
            return None

    def _outcome(self) -> TaskOutcome:
        """Read what is known. Raises: ChainNotFound."""
        chain = self._find()
        is_one = chain.jobs == 1 and self._place is None
        if is_one or (self._place is None and chain.state != "running"):
            return TaskOutcome(chain.id, chain.state, chain.output, chain.error)
        jobs = self._jobs()
        place = len(jobs) - 1 if self._place is None else self._place
        if place >= len(jobs):
            return TaskOutcome(chain.id, "pending")
        job = jobs[place]
        output = _given_by(jobs[place + 1]) if place + 1 < len(jobs) else job.output
        return TaskOutcome(job.id, job.state, output, job.error)

    def _jobs(self) -> Sequence[JobInfo]:
        """Read the jobs of its chain, in order."""
        return self.app.chains.jobs(self._find().id, tx=read_connection(self.app))

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

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"


def _given_by(following: JobInfo) -> Any:
    """Return the result of a task that the next one of its chain was given."""
    call = following.input
    if call.get("given") is not None or not call.get("args"):
        return call.get("given")
    return None if call.get("collect") else call["args"][0]


class GroupResult:
    """The results of a group, in its order."""

    def __init__(
        self,
        results: Sequence[AsyncResult],
        id: str | None = None,
        *,
        app: Celery | None = None,
        parent: AsyncResult | None = None,
    ) -> None:
        self.results = list(results)
        self.parent = parent
        self._app = app
        self._id = id

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

    def join_native(self, timeout: float | None = None, propagate: bool = True) -> list[Any]:
        """The same: there is no other way to wait here."""
        return self.get(timeout, propagate)

    @property
    def app(self) -> Celery:
        """The application it was started in."""
        return self._app or current_celery()

    @property
    def id(self) -> str:
        """An id to restore it by, once it is saved."""
        if self._id is None:
            self._id = str(self.app.new_id())
        return self._id

    @property
    def children(self) -> list[AsyncResult]:
        """The same as `results`."""
        return self.results

    def save(self, backend: None = None) -> Self:
        """Keep which results it has, in a job of its own, for `restore`; return it. Raises: errors of the database."""
        with transaction_of(self.app) as tx:
            ids = [each.id for each in self.results]
            self.app.start(tx, GROUP, {"results": ids}, id=self.id)
        return self

    @classmethod
    def restore(
        cls, id: str, backend: None = None, app: Celery | None = None
    ) -> GroupResult | None:
        """Return a group that was saved, None for an unknown one."""
        chosen = app or current_celery()
        try:
            found = chosen.chains.get(UUID(id), tx=read_connection(chosen))
        except (ValueError, ChainNotFound):
            return None
        if found.type != GROUP:
            return None
        results = [AsyncResult(each, chosen) for each in found.input["results"]]
        return cls(results, id, app=chosen)

    def delete(self, backend: None = None) -> None:
        """Remove what `save` kept; its results stay."""
        with transaction_of(self.app) as tx, suppress(ChainNotFound):
            self.app.chains.delete(tx, UUID(self.id))

    def waiting(self) -> bool:
        """Whether one has not ended."""
        return not self.ready()

    def maybe_throw(self, propagate: bool = True) -> None:
        """Raise the exception of a task that has failed; before the end, do nothing."""
        for each in self.results:
            each.maybe_throw(propagate)

    def forget(self) -> None:
        """Delete all of them. Raises: StillReferenced."""
        for each in self.results:
            each.forget()

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

    def revoke(
        self,
        connection: None = None,
        terminate: bool = False,
        signal: str | None = None,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Cancel those that wait, and with `terminate` those that run."""
        for each in self.results:
            each.revoke(terminate=terminate)

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
