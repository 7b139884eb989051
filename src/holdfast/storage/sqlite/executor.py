"""Runs named statements on sqlite3 connections, ours and the users', through cursors of our own."""

from __future__ import annotations

import sqlite3

from holdfast.storage.sqlite.errors import translate
from holdfast.storage.sqlite.store import sqlite_statements
from holdfast.storage.statement import Row, Statement


class SqliteExecutor:
    """Runs statements on one connection, whatever row and text factories its owner has set."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._statements = sqlite_statements()

    def execute(self, statement: Statement) -> list[Row]:
        """Run one statement. Raises: the errors of `storage.sqlite.errors`."""
        connection = self.connection
        theirs = connection.text_factory
        try:
            connection.text_factory = str
            cursor = sqlite3.Cursor(connection)
            cursor.row_factory = None
            return cursor.execute(self._statements[statement.name], statement.params).fetchall()
        except sqlite3.Error as error:
            raise translate(error, statement.name) or error from error
        finally:
            connection.text_factory = theirs
