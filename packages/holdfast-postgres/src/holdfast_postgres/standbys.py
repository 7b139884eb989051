"""Asks every host of a URL for its part in replication, all at once."""

from __future__ import annotations

import asyncio

import msgspec
import psycopg
from psycopg.conninfo import make_conninfo

from holdfast.core.errors import HoldfastError
from holdfast.storage.database import Database
from holdfast.storage.operation import Op, Statement, run
from holdfast.storage.postgres.connection import PsycopgExecutor, connection_string, parse_url
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.hosts import HOST_TIMEOUT_S, hosts_of
from holdfast_postgres.replication import HostStatus, Replication, StandbyStatus, with_failover_loss

_TIMEOUT_MS = 5_000
_MAX_HOSTS = 16
_USUAL_PORT = "5432"


class _Answer(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    is_standby: bool
    timeline: int | None
    synchronous_standby_names: str
    synchronous_commit: str
    standbys: list[StandbyStatus]


async def read_replication(database: Database) -> Replication | None:
    """Ask every host of the URL; one that gives no answer is in the result with the reason. A single host is asked on
    a connection of the pool, and none where the database is a test's own connection.
    """
    if not isinstance(database, PostgresDatabase):
        return None
    url, schema = database.url_with_password(), database.schema
    known = parse_url(url)
    hosts = hosts_of(known)
    if "hostaddr" in known:
        # Addresses beside the names cannot be asked one by one; the server that answers still knows its standbys.
        del hosts[1:]
    if len(hosts) == 1:
        answers = [await _read_answer(database)]
    else:
        asked = (asyncio.to_thread(_ask, url, schema, *each) for each in hosts[:_MAX_HOSTS])
        answers = await asyncio.gather(*asked)
    statuses = [
        _status(host, port, answer) for (host, port), answer in zip(hosts, answers, strict=False)
    ]
    servers = [each for each in answers if isinstance(each, _Answer)]
    primary = next((each for each in servers if not each.is_standby), None)
    if primary is None:
        return with_failover_loss(Replication(statuses))
    return with_failover_loss(
        Replication(
            statuses,
            primary.standbys,
            primary.synchronous_standby_names,
            primary.synchronous_commit,
        )
    )


async def _read_answer(database: Database) -> _Answer | str:
    """Return the answer of the server that every connection goes to, or the reason why there is none."""
    try:
        return await database.read_async(_answer(), _TIMEOUT_MS)
    except HoldfastError as error:
        return _reason(error)


def _ask(url: str, schema: str, host: str, port: str) -> _Answer | str:
    """Return one host's answer, or the reason why there is none."""
    text = make_conninfo(
        connection_string(url, "doctor", _TIMEOUT_MS),
        host=host,
        port=port or _USUAL_PORT,
        connect_timeout=HOST_TIMEOUT_S,
        target_session_attrs="any",
    )
    try:
        with psycopg.connect(text, autocommit=True) as connection:
            return run(_answer(), PsycopgExecutor(connection, schema))
    except (psycopg.Error, OSError, HoldfastError) as error:
        return _reason(error)


def _answer() -> Op[_Answer]:
    ((document,),) = yield Statement("replication", {})
    return msgspec.json.decode(document, type=_Answer)


def _reason(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[-1] if text else type(error).__name__


def _status(host: str, port: str, answer: _Answer | str) -> HostStatus:
    name = f"{host}:{port}" if port else host
    if isinstance(answer, str):
        return HostStatus(name, error=answer)
    return HostStatus(name, "standby" if answer.is_standby else "primary", answer.timeline)
