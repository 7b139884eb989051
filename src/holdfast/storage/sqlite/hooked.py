"""sqlite3 connections that tell the hooks of the present transaction of its savepoints."""

from __future__ import annotations

import sqlite3
from typing import Any

from holdfast.storage.hooks import Hooks


class HookedConnection(sqlite3.Connection):
    """A connection of ours; `hooks` are those of the caller's transaction it is lent for."""

    hooks: Hooks | None = None

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or HookedCursor)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        # The base class does not ask `cursor` for one in every version of Python.
        cursor: HookedCursor = self.cursor()
        return cursor.execute(sql, parameters)


class HookedCursor(sqlite3.Cursor):
    """What the owner of the transaction runs statements with."""

    def execute(self, sql: str, parameters: Any = (), /) -> HookedCursor:
        super().execute(sql, parameters)
        hooks = getattr(self.connection, "hooks", None)
        if hooks is not None:
            hooks.heed(sql)
        return self
