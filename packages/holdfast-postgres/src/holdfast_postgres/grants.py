"""What each role may do with the tables: printed for people, repeated by migrations, checked by the doctor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, LiteralString, TypeAlias

import msgspec
from psycopg import sql

from holdfast.core.errors import InvalidOption
from holdfast.storage.migrations import load_migrations

GrantedRole: TypeAlias = Literal["producer", "worker", "operator", "readonly"]

_WRITE: LiteralString = "select, insert, update, delete"
_STATE = (
    *(
        "job",
        "queue",
        "lease",
        "outcome",
        "attempt",
        "progress",
        "blocker",
        "chain_key",
        "revision",
    ),
    *("subscription", "worker", "worker_runs", "cycle", "cycle_slot", "tally", "archive_manifest"),
    *("gate", "wakeup", "charge", "limit_setting", "unreadable", "redrive", "redrive_job"),
    *("on_failed", "failing", "step", "signal", "keep", "output"),
    *("log", "log_0", "log_part", "log_reader", "log_pattern"),
    *("log_position", "log_member", "log_parked"),
    *("inbox", "inbox_seen", "inbox_parked", "inbox_member", "inbox_line"),
    *("schedule", "schedule_slot", "schedule_context", "job_context"),
)
_LINES = tuple(f"log_line_{line}" for line in range(16))
"""The sequences that places in the log are drawn from."""
_VIEWS = ("jobs", "outbox", "archive_exports")

# In each line what is granted on which tables. A privilege on some columns is enough to lock a row.
GRANTS: Mapping[GrantedRole, tuple[tuple[LiteralString, tuple[str, ...]], ...]] = {
    "producer": (
        ("select, insert", ("job", "queue", "blocker", "chain_key", "revision", "signal")),
        ("insert", ("tally", "wakeup", "log", "job_context")),
        ("usage", _LINES),
        ("update", ("chain_key",)),
        ("update (awaited, expires_at)", ("queue",)),
        ("update (blockers, debounced)", ("job",)),
        ("update (crashes)", ("outcome",)),
        ("select", ("jobs", "lease", "outcome", "subscription", "schema_version", "identity")),
        ("select", ("log_pattern", "log_part", "output")),
        ("select, insert, update", ("inbox", "inbox_seen", "inbox_parked")),
        (_WRITE, ("schedule", "schedule_slot", "schedule_context")),
    ),
    "worker": (
        (_WRITE, _STATE),
        ("select, usage", _LINES),
        ("select", (*_VIEWS, "type_setting", "identity", "schema_version")),
        # The server it runs on, so that fences grow and copies are recognised.
        ("update (system_id, timeline, started_at, hosts)", ("identity",)),
    ),
    "operator": (
        (_WRITE, (*_STATE, "type_setting", "identity", "api_token")),
        ("select, usage", _LINES),
        ("select", (*_VIEWS, "schema_version")),
        # What happened is written once.
        ("select, insert", ("audit",)),
    ),
    "readonly": (
        ("select", (*_STATE, *_VIEWS, "type_setting", "identity", "schema_version", "audit")),
    ),
}
_WIDEST_FIRST: tuple[GrantedRole, ...] = ("operator", "worker", "producer", "readonly")
_TEXT: Mapping[GrantedRole, str] = {
    "producer": "starts jobs, publishes events, reads chains and waits for them",
    "worker": "runs jobs and cycles; has no access to tokens and the audit log",
    "operator": "also changes type settings and tokens, and writes the audit log",
    "readonly": "reads everything except tokens",
}
_HEAD = """-- What the roles need for schema version {version}. Run it as the owner of the schema; it is safe to repeat.
-- The owner, {owner}, runs `holdfast migrate`. Before the first time, as a superuser:
--   grant connect, create on database NAME to {owner};
"""
_GRANT = sql.SQL("grant {} on {} to {}")
_USAGE = sql.SQL("grant usage on schema {} to {}")
_CREATED = re.compile(r"^create (?:table|view) holdfast\.(\w+)", re.MULTILINE)


def grants_sql(schema: str, names: Mapping[str, str]) -> str:
    """The SQL that gives roles their privileges, by kind of role and its name. Raises: InvalidOption."""
    unknown = names.keys() - {*GRANTS, "owner"}
    if unknown:
        raise InvalidOption(
            f"{min(unknown)!r} is no role", help=f"roles are owner, {', '.join(GRANTS)}"
        )
    steps = load_migrations("holdfast.storage.postgres")
    owner = names.get("owner", "holdfast_owner")
    parts = [_HEAD.format(version=steps[-1].version, owner=owner)]
    for kind, lines in GRANTS.items():
        if kind in names:
            role = sql.Identifier(names[kind])
            usage = _USAGE.format(sql.Identifier(schema), role)
            statements = [usage, *(_statement(schema, *line, role) for line in lines)]
            parts.append(f"-- {names[kind]} {_TEXT[kind]}.")
            parts += [f"{each.as_string(None)};" for each in statements]
            parts.append("")
    return "\n".join(parts)


def _statement(
    schema: str, privileges: LiteralString, tables: tuple[str, ...], role: sql.Identifier
) -> sql.Composed:
    on = sql.SQL(", ").join(sql.Identifier(schema, each) for each in tables)
    return _GRANT.format(sql.SQL(privileges), on, role)


@dataclass(frozen=True, slots=True)
class MissingGrants:
    """What a role lacks that it needs for what it was made for."""

    role: str
    kind: GrantedRole
    grants: tuple[tuple[LiteralString, str], ...]

    def __str__(self) -> str:
        by_privilege = groupby(self.grants, key=lambda each: each[0])
        return "; ".join(
            f"{privilege} on {', '.join(table for _, table in group)}"
            for privilege, group in by_privilege
        )

    def statements(self, schema: str) -> Iterator[sql.Composed]:
        """The SQL that grants it."""
        for privileges, table in self.grants:
            yield _statement(schema, privileges, (table,), sql.Identifier(self.role))


def missing_grants(document: str) -> list[MissingGrants]:
    """Find roles that have what a kind of role needs of the first version's tables, and not all that it needs now."""
    held = msgspec.json.decode(document, type=dict[str, dict[str, set[str]]])
    first = set(_CREATED.findall(load_migrations("holdfast.storage.postgres")[0].text))
    found = []
    for role, privileges in sorted(held.items()):
        for kind in _WIDEST_FIRST:
            needed = [(each, table) for each, tables in GRANTS[kind] for table in tables]
            missing = [(each, table) for each, table in needed if not _has(privileges, table, each)]
            # Columns do not count: rights on single ones came later.
            if not missing or any(table in first and "(" not in each for each, table in missing):
                continue
            found.append(MissingGrants(role, kind, tuple(missing)))
            for each, table in missing:
                privileges.setdefault(table, set()).update(each.split(", "))
    return found


def _has(held: Mapping[str, set[str]], table: str, privileges: str) -> bool:
    names, _, columns = privileges.removesuffix(")").partition(" (")
    of_table = held.get(table, set())
    if columns:
        return names in of_table or all(
            names in held.get(f"{table}.{each}", ()) for each in columns.split(", ")
        )
    return of_table.issuperset(names.split(", "))
