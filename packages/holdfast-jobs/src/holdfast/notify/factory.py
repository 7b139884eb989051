"""Chooses the notifier for a URL; without one, the database's own way of notifying."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from holdfast.core.errors import ConfigError, MissingExtra
from holdfast.core.schemes import BROKER_EXTRAS, POSTGRES_SCHEMES
from holdfast.extensions import import_name, merge
from holdfast.notify.base import Notifier
from holdfast.notify.local import LocalNotifier, NullNotifier
from holdfast.notify.sqlite import SqliteNotifier
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from holdfast.storage.url import without_driver

OpenNotifier: TypeAlias = Callable[[str, str, str | None], Notifier]
"""Opens a notifier, given its URL, the schema and HOLDFAST_LISTEN_URL; it connects at its first use."""

NOTIFIERS = dict.fromkeys(POSTGRES_SCHEMES, "holdfast.notify.postgres:postgres_notifier")
"""Their `OpenNotifier`, by scheme; extensions add to it."""


def open_notifier(
    url: str | None = None,
    *,
    database_url: str,
    schema: str = DEFAULT_SCHEMA,
    listen_url: str | None = None,
) -> Notifier:
    """Return the notifier for `local`, `none` or a postgresql://, redis:// or nats:// URL.

    `listen_url` is a direct PostgreSQL URL for LISTEN, if the other goes through a pooler.
    The notifier connects at its first use. Raises: ConfigError, MissingExtra, UnusableUrl.
    """
    if url == "none":
        return NullNotifier()
    url = None if url is None else without_driver(url)
    database_url = without_driver(database_url)
    listen_url = None if listen_url is None else without_driver(listen_url)
    if url is None or url == "local":
        if _scheme(database_url) == "sqlite":
            return _sqlite_notifier(database_url)
        if url == "local":
            return LocalNotifier()
        url = database_url
    return _server_notifier(url, schema, listen_url)


def _server_notifier(url: str, schema: str, listen_url: str | None) -> Notifier:
    """Import only what the URL asks for: each notifier has an extra of its own."""
    scheme = _scheme(url)
    target = {**NOTIFIERS, **merge("notifiers")}.get(scheme)
    if target is not None:
        open: OpenNotifier = import_name(target)
        return open(url, schema, listen_url)
    if scheme in BROKER_EXTRAS:
        extra = BROKER_EXTRAS[scheme]
        raise MissingExtra(
            f"hints over {scheme}:// need an extra", help=f'pip install "holdfast-jobs[{extra}]"'
        )
    # The rest of the URL may hold a password.
    raise ConfigError(
        f"there is no notifier for {scheme or 'a URL without a scheme'!r}",
        help="use local, none, or a postgresql://, redis:// or nats:// URL",
    )


def _sqlite_notifier(url: str) -> Notifier:
    name = url.partition("///")[2].partition("?")[0]
    if name in ("", ":memory:"):
        return LocalNotifier()
    return SqliteNotifier(Path(name))


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    return scheme if found else ""
