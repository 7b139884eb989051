"""The lock of a singleton cycle on SQLite: the slot's own row is the lease, and claiming it is exclusive already."""

from __future__ import annotations


class SqliteSingleton:
    """See `storage.database.Singleton`. A claim sees every slot that runs, so there is nothing to add to it."""

    def __init__(self, key: str) -> None:
        self.key = key

    async def acquire(self) -> bool:
        return True

    async def ping(self) -> None:
        pass

    async def release(self) -> None:
        pass
