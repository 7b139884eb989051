"""Holdfast in a FastAPI application: what `holdfast.contrib.starlette` has, and transactions as dependencies.

Their transaction commits before the response leaves. A client that reads 202 can rely on it, and a commit that fails is
a 500.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.core.errors import MissingExtra, UnsupportedConnection

try:
    from fastapi import Depends, Query
    from fastapi import __version__ as fastapi_version
    from pydantic import WithJsonSchema
except ImportError as error:
    raise MissingExtra(
        "holdfast.contrib.fastapi needs FastAPI", help="pip install fastapi"
    ) from error

from holdfast.app import Holdfast
from holdfast.contrib.starlette import (
    Failed,
    Found,
    Look,
    Ready,
    Waited,
    lifespan,
    mount_dashboard,
    problem_handler,
    wait_or_accept,
)
from holdfast.contrib.wait_or_accept import DEFAULT_MS, MAX_MS, PARAMETER
from holdfast.storage.database import AsyncTransaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session, sessionmaker

__all__ = [
    "AsyncTransaction",
    "Failed",
    "Found",
    "Look",
    "Ready",
    "WaitMs",
    "Waited",
    "lifespan",
    "mount_dashboard",
    "problem_handler",
    "session",
    "transaction",
    "wait_or_accept",
]

WaitMs = Annotated[
    str | None,
    Query(
        alias=PARAMETER,
        description=f"How long to wait, in milliseconds, by default {DEFAULT_MS:,}; more than {MAX_MS:,} counts as"
        f" {MAX_MS:,}, and 0 looks once.",
    ),
    # No maximum: a client that checks what it sends would refuse what is accepted.
    WithJsonSchema({"type": "integer", "minimum": 0}),
]
"""The type of a parameter that you pass on as `wait_ms`, so that OpenAPI shows it; it is checked there."""


def transaction(jobs: Holdfast) -> Any:
    """Return a dependency that opens a transaction of Holdfast's own and commits it before the response leaves.

    For async endpoints: `Tx = Annotated[AsyncTransaction, transaction(jobs)]`. An exception rolls it back.

    Raises: MissingExtra when FastAPI is too old to commit in time.
    """
    return _before_the_response(TransactionDependency(jobs))


def session(maker: async_sessionmaker[Any] | sessionmaker[Any]) -> Any:
    """Return a dependency that opens a SQLAlchemy session and commits it before the response leaves.

    `Db = Annotated[AsyncSession, session(sessions)]`; a `sessionmaker` gives a `Session`. An exception rolls it back.

    Raises: UnsupportedConnection; MissingExtra when FastAPI is too old to commit in time.
    """
    given: Any = maker
    if _is_a(given, "sqlalchemy.ext.asyncio", "async_sessionmaker"):
        return _before_the_response(AsyncSessionDependency(given))
    if _is_a(given, "sqlalchemy.orm", "sessionmaker"):
        return _before_the_response(SessionDependency(given))
    raise UnsupportedConnection(
        f"{type(maker).__name__} is not a sessionmaker",
        help="pass SQLAlchemy's sessionmaker(engine) or async_sessionmaker(engine)",
    )


# Equal dependencies are the same to FastAPI: however often one is named, a request has one transaction.


@dataclass(frozen=True, slots=True)
class TransactionDependency:
    """The dependency of `transaction`."""

    jobs: Holdfast

    async def __call__(self) -> AsyncIterator[AsyncTransaction]:
        """Open a transaction; the end of the block commits it."""
        async with self.jobs.transaction() as tx:
            yield tx


@dataclass(frozen=True, slots=True)
class AsyncSessionDependency:
    """The dependency of `session` for async sessions."""

    maker: async_sessionmaker[AsyncSession]

    async def __call__(self) -> AsyncIterator[Any]:
        """Open a session; the end of the block commits it."""
        async with self.maker.begin() as opened:
            yield opened


@dataclass(frozen=True, slots=True)
class SessionDependency:
    """The dependency of `session` for sync sessions."""

    maker: sessionmaker[Session]

    def __call__(self) -> Iterator[Any]:
        """Open a session; the end of the block commits it."""
        with self.maker.begin() as opened:
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
