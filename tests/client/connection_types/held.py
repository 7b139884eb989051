"""The face of a held connection: a business table, a transaction and savepoints in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast import Chain, Holdfast

SELL = "insert into sale select count(*) + 1 from sale"


class Undo(Exception):
    """Leaves a block whose work is not wanted."""


class Held(ABC):
    """A connection with an open transaction, or one that begins with its first statement."""

    tx: Any
    """What is passed to `app.start`."""

    async def start(self, app: Holdfast, *arguments: Any, **options: Any) -> Chain:
        """Start a chain, in whichever colour the connection has."""
        answer: Any = app.start(self.tx, *arguments, **options)
        chain: Chain = answer if isinstance(answer, Chain) else await answer
        return chain

    async def signal(self, app: Holdfast, *arguments: Any, **options: Any) -> bool:
        """Send a signal, likewise."""
        answer: Any = app.signal(self.tx, *arguments, **options)
        is_new: bool = answer if isinstance(answer, bool) else await answer
        return is_new

    async def sell(self) -> None:
        """Write a business row."""
        await self.execute(SELL)

    @abstractmethod
    async def execute(self, sql: str) -> None:
        """Run a statement of the caller's own."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Close the connection before its time."""

    async def savepoint(self) -> None:
        """Open a savepoint."""
        await self.execute("savepoint part")

    async def undo_savepoint(self) -> None:
        """Roll back what was done since the savepoint."""
        await self.execute("rollback to savepoint part")

    async def keep_savepoint(self) -> None:
        """Give the savepoint up and keep what was done in it."""
        await self.execute("release savepoint part")


class HeldSync(Held):
    """A connection whose methods return at once, with the names of the DB-API."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx

    async def execute(self, sql: str) -> None:
        self.tx.execute(sql)

    async def commit(self) -> None:
        self.tx.commit()

    async def rollback(self) -> None:
        self.tx.rollback()

    async def close(self) -> None:
        self.tx.close()


class HeldAsync(Held):
    """One whose methods are awaited."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx

    async def execute(self, sql: str) -> None:
        await self.tx.execute(sql)

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()

    async def close(self) -> None:
        await self.tx.close()


Open: TypeAlias = Callable[[str, Holdfast], AbstractAsyncContextManager[Held]]


@dataclass(frozen=True)
class Kind:
    """How connections of one kind are opened, and what their library can tell of commits."""

    name: str
    dialect: str
    open: Open
    tells_of_commit: bool = False

    def __str__(self) -> str:
        return self.name


Opened: TypeAlias = AsyncIterator[Held]
