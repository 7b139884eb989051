"""Django's transactions: a start goes over Django's own connection where that leads to the application's database.

It joins the transaction that is open there and commits at once where none is. Django itself is never imported here.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.storage.url import parse_url

_MEMORY = ":memory:"
_PORT = "5432"


def django_connection(url: str) -> Any | None:
    """Return Django's connection to a database, None where Django has none or must not use it, as on a loop."""
    database = _configured_django()
    if database is None or _is_on_loop():
        return None
    for alias in database.connections:
        connection = database.connections[alias]
        if _place_of(connection) == _place(url):
            return connection
    return None


def in_transaction(connection: Any) -> AbstractContextManager[object]:
    """Open a transaction unless one is open: a savepoint of ours would cost two statements more."""
    if connection.in_atomic_block or not connection.get_autocommit():
        return nullcontext()
    opened: AbstractContextManager[object] = sys.modules["django.db"].transaction.atomic(
        using=connection.alias
    )
    return opened


def on_django_commit(function: Callable[[], object]) -> bool:
    """Call a function after the commit of Django's default database, or at once; return False without Django."""
    database = _configured_django()
    if database is None:
        return False
    database.transaction.on_commit(function)
    return True


def settings_are_being_read() -> bool:
    """Whether Django's settings are being imported just now: what they do not have yet may come below."""
    module = sys.modules.get(os.environ.get("DJANGO_SETTINGS_MODULE", ""))
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _configured_django() -> Any | None:
    database, conf = sys.modules.get("django.db"), sys.modules.get("django.conf")
    return database if conf is not None and conf.settings.configured else None


def _is_on_loop() -> bool:
    """Whether a loop runs in this thread, where Django refuses to use its connections."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@lru_cache(maxsize=8)
def _place(url: str) -> tuple[str, ...] | None:
    """Return what identifies a database: its file, or host, port and name."""
    address = parse_url(url)
    if address.url.startswith("sqlite"):
        return _file(address.url.removeprefix("sqlite:///"))
    parts = urlsplit(address.url)
    query = dict(parse_qsl(parts.query))
    name = query.get("dbname") or unquote(parts.path.removeprefix("/"))
    port = query.get("port") or str(parts.port or _PORT)
    return ("postgresql", query.get("host") or parts.hostname or "", port, name)


def _place_of(connection: Any) -> tuple[str, ...] | None:
    """Return the same of a connection, by the vendor of its engine: there are many wrappers of Django's own."""
    settings = connection.settings_dict
    name = str(settings["NAME"] or "")
    if connection.vendor == "sqlite":
        return _file(_MEMORY if name == _MEMORY or "mode=memory" in name else name)
    if connection.vendor == "postgresql":
        port = str(settings.get("PORT") or _PORT)
        return ("postgresql", str(settings.get("HOST") or ""), port, name)
    return None


@lru_cache(maxsize=32)
def _file(path: str) -> tuple[str, ...]:
    return ("sqlite", path if path == _MEMORY else str(Path(path).resolve()))
