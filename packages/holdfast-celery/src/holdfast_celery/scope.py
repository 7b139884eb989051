"""Where a call is made: which application, in whose transaction, and inside which task."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import AsyncAdapter
from holdfast.core.errors import UnsupportedConnection
from holdfast_celery.coverage import refuse_attributes
from holdfast_celery.django_transaction import django_connection, in_transaction
from holdfast_celery.errors import CeleryUnsupported

if TYPE_CHECKING:
    from holdfast.worker.job import Job
    from holdfast_celery.application import Celery

_applications: list[weakref.ref[Celery]] = []
_adopt_shared: list[Callable[[Celery], object]] = []
_joined: ContextVar[tuple[Celery, Any] | None] = ContextVar("holdfast_celery_tx", default=None)


@dataclass(frozen=True)
class TaskRequest:
    """One attempt as its task sees it, by `self.request`."""

    id: str | None = None
    task: str = ""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    retries: int = 0
    root_id: str | None = None
    hostname: str | None = None
    called_directly: bool = True
    is_eager: bool = False
    headers: dict[str, Any] | None = None
    job: Job[Any] | None = None
    app: Celery | None = field(default=None, repr=False)

    if not TYPE_CHECKING:
        __getattr__ = refuse_attributes("request attribute", of="task")


DIRECT = TaskRequest()
current_request: ContextVar[TaskRequest] = ContextVar("holdfast_celery_request", default=DIRECT)


def announce(app: Celery) -> None:
    """Make an application the current one, and give it the shared tasks."""
    _applications[:] = [each for each in _applications if each() is not None]
    _applications.append(weakref.ref(app))
    for adopt in _adopt_shared:
        adopt(app)


def applications() -> list[Celery]:
    """Return those that are in use, in the order in which they were made."""
    return [app for each in _applications if (app := each()) is not None]


def share(adopt: Callable[[Celery], object]) -> None:
    """Give a task to every application, present and future."""
    _adopt_shared.append(adopt)
    for each in applications():
        adopt(each)


def current_celery() -> Celery:
    """Return the application whose task is running, whose `using` block this is, or that was made last.

    Raises: CeleryUnsupported when there is none.
    """
    running, joined = current_request.get().app, _joined.get()
    if running is not None:
        return running
    if joined is not None:
        return joined[0]
    if known := applications():
        return known[-1]
    raise CeleryUnsupported(
        "there is no application yet", help="import the module that has app = Celery(…) first"
    )


@contextmanager
def using_transaction(app: Celery, tx: Any) -> Iterator[None]:
    """Start what the block starts in this transaction."""
    if isinstance(adapter_of(tx), AsyncAdapter):
        raise UnsupportedConnection(
            "the connection is async, and delay() is not",
            help="write await app.start(tx, task.name, …), or use a sync connection",
        )
    token = _joined.set((app, tx))
    try:
        yield
    finally:
        _joined.reset(token)


@contextmanager
def transaction_of(app: Celery) -> Iterator[Any]:
    """Open a transaction, or join that of the surrounding `using` block or of Django."""
    joined = _joined.get()
    if joined is not None and joined[0] is app:
        yield joined[1]
        return
    connection = django_connection(app.url)
    if connection is not None:
        with in_transaction(connection):
            yield connection
        return
    with app.transaction() as tx:
        yield tx


def read_connection(app: Celery) -> Any | None:
    """Return the connection to read on: that of the `using` block or Django's, which see what is not committed yet."""
    joined = _joined.get()
    return joined[1] if joined is not None and joined[0] is app else django_connection(app.url)


def joins_transaction(app: Celery) -> bool:
    """Whether a start commits and rolls back with what the caller does in a transaction."""
    return read_connection(app) is not None


def holds_lock(app: Celery) -> bool:
    """Whether the caller has a transaction open that may have locked the file of the database for all others."""
    tx = read_connection(app)
    return tx is not None and app.url.startswith("sqlite") and getattr(tx, "in_atomic_block", True)
