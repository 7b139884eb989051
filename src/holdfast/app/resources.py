"""What an application has open: its database and its notifier, each from the first use on."""

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

NAMES = (
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
class Chosen:
    """How an application opens what it needs: arguments before environment before file."""

    schema: str
    notifier: str | Notifier | None
    listen_url: str | None
    hints: bool
    pooling: Pooling

    @classmethod
    def of(cls, values: Mapping[str, Any], notifier: Notifier | None) -> Chosen:
        """Take what the settings say; a notifier that is ready stands before them. Raises: InvalidIdentifier."""
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
        """Return where a raw connection sends its hint within the transaction, if anybody hears it there."""
        if not self.hints or address.dialect != "postgresql":
            return None
        if self.notifier is None or (
            isinstance(self.notifier, str) and self.notifier.partition("://")[0] in POSTGRES_SCHEMES
        ):
            return channel_name(self.schema)
        return None


class Opened:
    """The database and the notifier of one address."""

    def __init__(self, address: Address, chosen: Chosen) -> None:
        self._address = address
        self._chosen = chosen
        self._opening = RLock()
        self._database: Database | None = None
        self._notifier: Notifier | None = None

    @property
    def database(self) -> Database:
        """The database, opened at its first use. Raises: MissingExtra."""
        with self._opening:
            if self._database is None:
                chosen = self._chosen
                self._database = open_database(self._address, chosen.schema, chosen.pooling)
            return self._database

    @property
    def notifier(self) -> Notifier:
        """What sends and receives hints, made at its first use. Raises: ConfigError, MissingExtra."""
        with self._opening:
            if self._notifier is None:
                self._notifier = self._made_notifier(self._chosen.notifier)
            return self._notifier

    def _made_notifier(self, chosen: str | Notifier | None) -> Notifier:
        if chosen is not None and not isinstance(chosen, str):
            return chosen
        return open_notifier(
            chosen,
            database_url=self._address.url,
            schema=self._chosen.schema,
            listen_url=self._chosen.listen_url,
        )

    def close(self) -> None:
        """Close what was opened; another use opens it again."""
        database, notifier = self._taken()
        if notifier is not None:
            notifier.close()
        if database is not None:
            database.close()

    async def aclose(self) -> None:
        """Close what was opened, connections of the running loop included."""
        database, notifier = self._taken()
        if notifier is not None:
            await asyncio.to_thread(notifier.close)
        if database is not None:
            await database.close_async()

    def _taken(self) -> tuple[Database | None, Notifier | None]:
        with self._opening:
            database, self._database = self._database, None
            notifier, self._notifier = self._notifier, None
        return database, notifier
