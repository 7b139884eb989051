"""Opens psycopg connections with every limit set: connecting, waiting for locks, running, keeping alive."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.core.errors import ConfigError, DatabaseUnreachable, UnusableUrl
from holdfast.storage.postgres.store import OLDEST_VERSION, TESTED_VERSION

CONNECT_TIMEOUT_S = 10
STATEMENT_TIMEOUT_MS = 30_000
LOCK_TIMEOUT_MS = 5_000

# Every statement of a worker finds its rows by an index and in its order. A plan is kept until the table is analysed
# again: one made while the table was small would read all of it once it is large, and one made from statistics that say
# that nothing is due would collect and sort the whole backlog at every claim (docs/adr/0008). Parameters change nothing
# about these plans, so making one anew for each call would be a waste.
_ONLY_BY_INDEX = (
    "-c enable_seqscan=off -c enable_bitmapscan=off -c plan_cache_mode=force_generic_plan"
)


_NO_ROOM = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "no more connections allowed",
)


def parse_url(url: str) -> dict[str, Any]:
    """Read a PostgreSQL URL, or say what is wrong with it."""
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UnusableUrl(f"PostgreSQL does not understand the URL: {str(error).strip()}") from None


def shown_url(url: str) -> str:
    """The URL for people: where, without the password."""
    known = parse_url(url)
    host = known.get("host") or "localhost"
    port = f":{known['port']}" if known.get("port") else ""
    user = f"{known['user']}@" if known.get("user") else ""
    return f"postgresql://{user}{host}{port}/{known.get('dbname') or ''}"


def connection_string(
    url: str,
    purpose: str,
    statement_timeout_ms: int,
    only_by_index: bool = False,
    durable: bool = True,
) -> str:
    """The connection string of a connection of ours; the server sees its purpose and enforces its limits."""
    # None of our statements runs long enough to be worth compiling. A pooler may drop all of these: the statements' own
    # estimates stay below what a server compiles by default.
    options = (
        f"-c statement_timeout={statement_timeout_ms} -c lock_timeout={LOCK_TIMEOUT_MS} "
        "-c timezone=UTC -c default_transaction_isolation=read\\ committed -c jit=off"
    )
    if only_by_index:
        options = f"{options} {_ONLY_BY_INDEX}"
    if not durable:
        options = f"{options} -c synchronous_commit=off"
    own = parse_url(url)
    return make_conninfo(
        url,
        connect_timeout=own.get("connect_timeout") or CONNECT_TIMEOUT_S,
        application_name=f"holdfast {purpose}",
        options=f"{own.get('options') or ''} {options}".strip(),
        # What the environment or the database would choose may not be able to say every text.
        client_encoding="utf8",
        keepalives_idle=own.get("keepalives_idle") or 15,
        keepalives_interval=own.get("keepalives_interval") or 5,
        keepalives_count=own.get("keepalives_count") or 3,
        # Keepalives do not run while something sent waits for its receipt.
        tcp_user_timeout=own.get("tcp_user_timeout") or 30_000,
    )


def check_version(number: int) -> None:
    """Refuse a server that lacks what our schema and statements need; `number` is its server_version_num."""
    if number < OLDEST_VERSION * 10_000:
        raise ConfigError(
            f"the server is PostgreSQL {number // 10_000}; {OLDEST_VERSION} or newer is needed",
            help=f"upgrade the server; PostgreSQL {OLDEST_VERSION} to {TESTED_VERSION} are supported",
        )


def has_no_room(error: Exception) -> bool:
    """Say whether the server, a database or a role has all the sessions that it may have.

    An error at connecting bears no SQLSTATE, only the server's words; a pooler has words of its own.
    """
    return any(word in str(error) for word in _NO_ROOM)


def unreachable(url: str, error: Exception) -> DatabaseUnreachable:
    """The error for a server that does not answer."""
    reason = str(error).strip().splitlines()
    help = None
    if "unsupported startup parameter" in str(error):
        help = "add `ignore_startup_parameters = options` to the pooler's configuration"
    elif has_no_room(error):
        help = "raise max_connections, or run fewer workers: `holdfast doctor` says what they need"
    return DatabaseUnreachable(
        f"no connection to {shown_url(url)}",
        details=tuple(reason[:3]) if reason else (),
        help=help,
    )
