"""What the migrations declare: indexes and options of tables; checks that the indexes are still there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from holdfast.scheduler.doctor import Finding, ok, problem
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
                self.options.setdefault(table, {}).update(
                    parse_options(found["with"] or found["set"])
                )


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


def parse_options(text: str) -> dict[str, str]:
    """Read what is in the brackets of `with (…)` or `set (…)`."""
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
