"""Django's connections, as wrapper and as the proxy that `django.db.connection` is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from django.conf import settings
from django.db import connections, transaction
from django.utils.connection import ConnectionProxy

import django
from holdfast import Holdfast
from tests.client.connection_types.drivers import file_of
from tests.client.connection_types.held import Held, Kind, Opened, Undo


def _add(url: str) -> str:
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    alias = f"holdfast_{uuid4().hex}"
    known: dict[str, Any] = connections.settings
    known[alias] = connections.configure_settings({"default": {}, alias: _described(url)})[alias]
    return alias


def _described(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": file_of(url)}
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


class HeldDjango(Held):
    """A connection inside atomic()."""

    def __init__(self, tx: Any, alias: str) -> None:
        self.tx = tx
        self._alias = alias
        self._blocks: list[Any] = []
        self._enter()

    async def execute(self, sql: str) -> None:
        with self.tx.cursor() as cursor:
            cursor.execute(sql)

    async def commit(self) -> None:
        self._leave(None)

    async def rollback(self) -> None:
        self._undo()

    async def close(self) -> None:
        while self._blocks:
            self._undo()
        self.tx.close()

    async def savepoint(self) -> None:
        self._enter()

    async def undo_savepoint(self) -> None:
        self._undo()

    async def keep_savepoint(self) -> None:
        self._leave(None)

    def _enter(self) -> None:
        block = transaction.atomic(using=self._alias)
        block.__enter__()
        self._blocks.append(block)

    def _undo(self) -> None:
        with suppress(Undo):
            self._leave(Undo())

    def _leave(self, error: BaseException | None) -> None:
        self._blocks.pop().__exit__(type(error) if error else None, error, None)


@contextmanager
def database_of_django(url: str) -> Iterator[str]:
    """Make a database known to Django, usable though a loop is running, and yield its alias."""
    with patch.dict(os.environ, {"DJANGO_ALLOW_ASYNC_UNSAFE": "true"}):
        alias = _add(url)
        try:
            yield alias
        finally:
            connections[alias].close()
            del connections[alias]
            del connections.settings[alias]


@asynccontextmanager
async def open_wrapper(url: str, app: Holdfast) -> Opened:
    with database_of_django(url) as alias:
        held = HeldDjango(connections[alias], alias)
        yield held
        await held.close()


@asynccontextmanager
async def open_proxy(url: str, app: Holdfast) -> Opened:
    with database_of_django(url) as alias:
        held = HeldDjango(ConnectionProxy(connections, alias), alias)
        yield held
        await held.close()


DJANGO = [
    Kind("django-postgresql", "postgresql", open_wrapper, tells_of_commit=True),
    Kind("django-sqlite", "sqlite", open_wrapper, tells_of_commit=True),
    Kind("django-proxy", "postgresql", open_proxy, tells_of_commit=True),
]
