"""Roles that the server allows only a few sessions."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
from psycopg import sql


@dataclass(frozen=True, slots=True)
class LimitedRole:
    """A role with a limit; `url` is the database as the role reaches it."""

    url: str
    name: str
    owner_url: str

    def allow(self, sessions: int) -> None:
        """Change the limit."""
        statement = sql.SQL("alter role {} connection limit {}")
        with psycopg.connect(self.owner_url, autocommit=True) as owner:
            owner.execute(statement.format(sql.Identifier(self.name), sessions))

    def forbid(self) -> None:
        """Let the role begin no other session."""
        statement = sql.SQL("alter role {} nologin")
        with psycopg.connect(self.owner_url, autocommit=True) as owner:
            owner.execute(statement.format(sql.Identifier(self.name)))


@contextmanager
def limited_role(url: str, sessions: int) -> Iterator[LimitedRole]:
    """Make a role that may have so many sessions; it goes with the block."""
    # Roles belong to the server, which other tests use at the same time.
    name, password = f"few_{secrets.token_hex(8)}", secrets.token_urlsafe(16)
    role = sql.Identifier(name)
    place = urlsplit(url)
    address = place._replace(netloc=f"{name}:{password}@{place.hostname}:{place.port}").geturl()
    create = "create role {0} login password {1} connection limit {2}; grant usage on schema holdfast to {0}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(sql.SQL(create).format(role, password, sessions))
        yield LimitedRole(address, name, url)
        owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))
