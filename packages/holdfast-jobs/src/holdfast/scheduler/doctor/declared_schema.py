"""Checks that the indexes and table options of the migrations are still there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.storage.migrations import load_migrations

_STATEMENT = re.compile(
    r"(?P<create>create\s+(?:unique\s+)?index\s+(?:concurrently\s+)?(?:if\s+not\s+exists\s+)?(?P<index>\w+)\s+on\s[^;]+)"
    r"|drop\s+index\s+(?:concurrently\s+)?(?:if\s+exists\s+)?(?:\w+\.)?(?P<dropped>\w+)"
    r"|create\s+table\s+(?:\w+\.)?(?P<table>\w+)\s*\([^;]*?\)\s*with\s*\((?P<with>[^;)]*)\)\s*;"
    r"|alter\s+table\s+(?:\w+\.)?(?P<altered>\w+)\s+set\s*\((?P<set>[^;)]*)\)",
    re.IGNORECASE,
)
PACKAGES = {"sqlite": "holdfast.storage.sqlite", "postgresql": "holdfast.storage.postgres"}
"""Where the migrations of a dialect are."""

_COMMENT = re.compile(r"--[^\n]*")


@dataclass(slots=True)
class DeclaredSchema:
    """The indexes of a dialect's migrations with the statement that makes each, and the options of its tables."""

    indexes: dict[str, str] = field(default_factory=dict)
    options: dict[str, dict[str, str]] = field(default_factory=dict)

    def apply(self, text: str) -> None:
        """Take over what a migration makes, sets and drops."""
        for found in _STATEMENT.finditer(_COMMENT.sub("", text)):
            if found["index"]:
                self.indexes[found["index"]] = " ".join(found["create"].split())
            elif found["dropped"]:
                self.indexes.pop(found["dropped"], None)
            else:
                table = found["table"] or found["altered"]
                self.options.setdefault(table, {}).update(_pairs(found["with"] or found["set"]))


@cache
def read_declared(dialect: str) -> DeclaredSchema:
    """Read what a dialect's migrations declare."""
    declared = DeclaredSchema()
    for each in load_migrations(PACKAGES[dialect]):
        declared.apply(each.text)
    return declared


def newest_version(dialect: str) -> int:
    """Return the version of the schema that this code makes."""
    return load_migrations(PACKAGES[dialect])[-1].version


def _pairs(text: str) -> dict[str, str]:
    parts = (each.partition("=") for each in text.split(","))
    return {name.strip(): value.strip() for name, _, value in parts}


def check_indexes(dialect: str, present: Iterable[str], schema: str = "") -> Finding:
    """Check that every index is there and valid; `schema` is that of a server's tables."""
    declared, have = read_declared(dialect).indexes, set(present)
    missing = [name for name in declared if name not in have]
    if not missing:
        return ok("indexes", f"all {len(declared)} are there")
    return problem(
        "indexes",
        f"missing or invalid: {', '.join(missing)}",
        "without an index, claims and lists read whole tables",
        " ".join(_rebuild(name, declared[name], schema) for name in missing),
    )


def _rebuild(name: str, statement: str, schema: str) -> str:
    """Return the statement that makes an index; on a server it drops an invalid one first and lets writers go on."""
    if not schema:
        return f"{statement};"
    built = re.sub(r"index\s+(?:concurrently\s+)?", "index concurrently ", statement, count=1)
    return f'drop index if exists "{schema}".{name}; {built.replace("holdfast.", f"{schema}.", 1)};'


def check_options(dialect: str, present: Mapping[str, Iterable[str]], schema: str) -> Finding:
    """Check that tables have the options that the migrations set; others are their owner's own business."""
    changed = [
        (table, name, value, found.get(name))
        for table, wanted in read_declared(dialect).options.items()
        if table in present
        for found in [_pairs(",".join(present[table]))]
        for name, value in wanted.items()
        if not _is_same(value, found.get(name))
    ]
    if not changed:
        return ok("table_options", "as the migrations set them")
    return warning(
        "table_options",
        ", ".join(f"{table}: {name}={found or 'unset'}" for table, name, _, found in changed),
        "fillfactor and autovacuum settings keep the busy tables small and their updates cheap",
        " ".join(
            f'alter table "{schema}".{table} set ({name} = {value});'
            for table, name, value, _ in changed
        ),
    )


def _is_same(wanted: str, found: str | None) -> bool:
    if found is None:
        return False
    try:
        return float(wanted) == float(found)
    except ValueError:
        return wanted.lower() == found.lower()
