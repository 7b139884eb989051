"""Holdfast in a FastAPI application: what `holdfast.contrib.starlette` has, and transactions as dependencies.

Their transaction commits before the response leaves. A client that reads 202 can rely on it, and a commit that fails is
a 500.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import MissingExtra, UnsupportedConnection

try:
    from fastapi import Depends
    from fastapi import __version__ as fastapi_version
except ImportError as error:
    raise MissingExtra(
        "holdfast.contrib.fastapi needs FastAPI", help="pip install fastapi"
    ) from error

from holdfast.app import Holdfast
from holdfast.contrib.starlette import lifespan, mount_dashboard, problem_handler
from holdfast.storage.database import AsyncTransaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import async_sessionmaker
    from sqlalchemy.orm import sessionmaker

__all__ = [
    "AsyncTransaction",
    "lifespan",
    "mount_dashboard",
    "problem_handler",
    "session",
    "transaction",
]


def transaction(jobs: Holdfast) -> Any:
    """Return a dependency that opens a transaction of Holdfast's own and commits it before the response leaves.

    For async endpoints: `Tx = Annotated[AsyncTransaction, transaction(jobs)]`. An exception rolls it back.

    Raises: MissingExtra when FastAPI is too old to commit in time.
    """
    return _before_the_response(AsyncDependency(jobs.transaction))


def session(maker: async_sessionmaker[Any] | sessionmaker[Any]) -> Any:
    """Return a dependency that opens a SQLAlchemy session and commits it before the response leaves.

    `Db = Annotated[AsyncSession, session(sessions)]`; a `sessionmaker` gives a `Session`. An exception rolls it back.

    Raises: UnsupportedConnection; MissingExtra when FastAPI is too old to commit in time.
    """
    given: Any = maker
    if _is_a(given, "sqlalchemy.ext.asyncio", "async_sessionmaker"):
        return _before_the_response(AsyncDependency(given.begin))
    if _is_a(given, "sqlalchemy.orm", "sessionmaker"):
        return _before_the_response(SyncDependency(given.begin))
    raise UnsupportedConnection(
        f"{type(maker).__name__} is not a sessionmaker",
        help="pass SQLAlchemy's sessionmaker(engine) or async_sessionmaker(engine)",
    )


# Equal dependencies are the same to FastAPI: however often one is named, a request has one transaction.


@dataclass(frozen=True, slots=True)
class AsyncDependency:
    """Opens a transaction or a session; the end of its block commits it."""

    begin: Callable[[], AbstractAsyncContextManager[Any]]

    async def __call__(self) -> AsyncIterator[Any]:
        """Open it for one request."""
        async with self.begin() as opened:
            yield opened


@dataclass(frozen=True, slots=True)
class SyncDependency:
    """Sync version of `AsyncDependency`."""

    begin: Callable[[], AbstractContextManager[Any]]

    def __call__(self) -> Iterator[Any]:
        """Open it for one request."""
        with self.begin() as opened:
            yield opened


def _before_the_response(open: Any) -> Any:
    """Return FastAPI's dependency, with its end between the endpoint's return and the response.

    From 0.118 on, dependencies end after the response unless they have the scope "function", which came in 0.121.
    """
    if "scope" not in inspect.signature(Depends).parameters:
        raise MissingExtra(
            f"a commit before the response needs FastAPI 0.121 or newer, this is {fastapi_version}",
            help='pip install "fastapi>=0.121", or write `async with jobs.transaction()` in the endpoint',
        )
    return Depends(open, scope="function")


def _is_a(value: object, module: str, name: str) -> bool:
    return any(
        each.__name__ == name and each.__module__.startswith(module) for each in type(value).__mro__
    )
