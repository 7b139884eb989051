"""An application's database and notifier, each opened at its first use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any

from holdfast.client.url import Address, Pooling, open_database
from holdfast.notify.base import Notifier
from holdfast.notify.encoding import channel_name
from holdfast.notify.factory import POSTGRES_SCHEMES, open_notifier
from holdfast.storage.database import Database
from holdfast.storage.sql_loader import check_identifier

VARIABLES = (
    "HOLDFAST_URL",
    "HOLDFAST_SCHEMA",
    "HOLDFAST_NOTIFIER",
    "HOLDFAST_LISTEN_URL",
    "HOLDFAST_HINTS",
    "HOLDFAST_CONNECTIONS",
    "HOLDFAST_PREPARE",
    "HOLDFAST_SYNCHRONOUS",
)
"""The settings that say how a database and a notifier are opened."""


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """How an application opens what it needs: arguments before environment before file."""

    schema: str
    notifier: str | Notifier | None
    listen_url: str | None
    hints: bool
    pooling: Pooling

    @classmethod
    def of(cls, values: Mapping[str, Any], notifier: Notifier | None) -> ResourceOptions:
        """Return the options; a notifier that is passed in overrides the settings. Raises: InvalidIdentifier."""
        return cls(
            schema=check_identifier(values["HOLDFAST_SCHEMA"]),
            notifier=notifier or values["HOLDFAST_NOTIFIER"],
            listen_url=values["HOLDFAST_LISTEN_URL"],
            hints=values["HOLDFAST_HINTS"],
            pooling=Pooling(
                connections=values["HOLDFAST_CONNECTIONS"],
                prepare=values["HOLDFAST_PREPARE"],
                synchronous=values["HOLDFAST_SYNCHRONOUS"],
            ),
        )

    def channel(self, address: Address) -> str | None:
        """Return the channel for hints inside a raw connection's transaction, None if hints take another way."""
        if not self.hints or address.dialect != "postgresql":
            return None
        if self.notifier is None or (
            isinstance(self.notifier, str) and self.notifier.partition("://")[0] in POSTGRES_SCHEMES
        ):
            return channel_name(self.schema)
        return None


class Resources:
    """The database and the notifier at one address."""

    def __init__(self, address: Address, options: ResourceOptions) -> None:
        self._address = address
        self._options = options
        self._opening = RLock()
        self._database: Database | None = None
        self._notifier: Notifier | None = None

    @property
    def database(self) -> Database:
        """The database, opened at its first use. Raises: MissingExtra."""
        with self._opening:
            if self._database is None:
                options = self._options
                self._database = open_database(self._address, options.schema, options.pooling)
            return self._database

    @property
    def notifier(self) -> Notifier:
        """The notifier, created at its first use. Raises: ConfigError, MissingExtra."""
        with self._opening:
            if self._notifier is None:
                self._notifier = self._make_notifier(self._options.notifier)
            return self._notifier

    def _make_notifier(self, wanted: str | Notifier | None) -> Notifier:
        if wanted is not None and not isinstance(wanted, str):
            return wanted
        return open_notifier(
            wanted,
            database_url=self._address.url,
            schema=self._options.schema,
            listen_url=self._options.listen_url,
        )

    def close(self) -> None:
        """Close all connections; the next use opens them again."""
        database, notifier = self._take()
        if notifier is not None:
            notifier.close()
        if database is not None:
            database.close()

    async def aclose(self) -> None:
        """Close all connections, those of the running loop included."""
        database, notifier = self._take()
        if notifier is not None:
            await asyncio.to_thread(notifier.close)
        if database is not None:
            await database.close_async()

    def _take(self) -> tuple[Database | None, Notifier | None]:
        with self._opening:
            database, self._database = self._database, None
            notifier, self._notifier = self._notifier, None
        return database, notifier
