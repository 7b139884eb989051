"""Asks every host of a URL for its part in replication, all at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import psycopg
from psycopg.conninfo import make_conninfo

from holdfast.core.errors import HoldfastError
from holdfast.core.replication import HostStatus, Replication, StandbyStatus, with_failover_loss
from holdfast.storage.operation import Statement
from holdfast.storage.postgres.connection import PsycopgExecutor, connection_string, parse_url
from holdfast.storage.postgres.hosts import HOST_TIMEOUT_S, hosts_of

_TIMEOUT_MS = 5_000
_MOST_HOSTS = 16
_USUAL_PORT = "5432"


class _Answer(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    is_standby: bool
    timeline: int | None
    synchronous_standby_names: str
    synchronous_commit: str
    standbys: list[StandbyStatus]


def read_replication(url: str, schema: str) -> Replication:
    """Ask every host; one that gives no answer is in the result with the reason."""
    known = parse_url(url)
    # Addresses beside the names cannot be asked one by one; the server that answers still knows its standbys.
    hosts = hosts_of(known)[: 1 if "hostaddr" in known else _MOST_HOSTS]
    with ThreadPoolExecutor(len(hosts)) as threads:
        answers = list(threads.map(lambda each: _ask(url, schema, *each), hosts))
    statuses = [
        _status(host, port, answer) for (host, port), answer in zip(hosts, answers, strict=True)
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


def _ask(url: str, schema: str, host: str, port: str) -> _Answer | str:
    """Return one host's answer, or the reason why there is none."""
    text = connection_string(url, "doctor", _TIMEOUT_MS)
    if "hostaddr" not in parse_url(url):
        text = make_conninfo(
            text,
            host=host,
            port=port or _USUAL_PORT,
            connect_timeout=HOST_TIMEOUT_S,
            target_session_attrs="any",
        )
    try:
        with psycopg.connect(text, autocommit=True) as connection:
            ((document,),) = PsycopgExecutor(connection, schema).execute(
                Statement("replication", {})
            )
        return msgspec.json.decode(document, type=_Answer)
    except (psycopg.Error, OSError, HoldfastError) as error:
        return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__


def _status(host: str, port: str, answer: _Answer | str) -> HostStatus:
    name = f"{host}:{port}" if port else host
    if isinstance(answer, str):
        return HostStatus(name, error=answer)
    return HostStatus(name, "standby" if answer.is_standby else "primary", answer.timeline)
