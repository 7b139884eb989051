"""Migrations: numbered SQL files, forward only. Reading and checking them needs no connection."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import TypeAlias

import msgspec

from holdfast.core.errors import SchemaChanged, SchemaTooNew, SchemaTooOld
from holdfast.core.records import AppliedMigration

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_OLDEST_CODE = re.compile(r"^-- oldest code: (\d+)\s*$", re.MULTILINE)

log = logging.getLogger("holdfast.migrate")

Tell: TypeAlias = Callable[[str], None]
"""Says what a migration waits for."""

WAIT = "10m"
"""How long a migration waits for other transactions in all by default."""


def log_wait(text: str) -> None:
    """Log what a migration waits for."""
    log.warning(text)


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema.

    Code that knows at least version `oldest_code` runs on the result: expand, then contract, so it is raised only when
    something is taken away.
    """

    version: int
    name: str
    text: str
    oldest_code: int

    @property
    def record(self) -> AppliedMigration:
        """What the database remembers of this step."""
        checksum = hashlib.sha256(self.text.encode()).hexdigest()
        return AppliedMigration(self.version, self.name, checksum, self.oldest_code)


@cache
def load_migrations(package: str) -> tuple[Migration, ...]:
    """Read a dialect's migrations in order."""
    found = []
    for entry in files(package).joinpath("migrations").iterdir():
        match = _FILE.fullmatch(entry.name)
        if match is None:
            continue
        text = entry.read_text(encoding="utf-8")
        oldest = _OLDEST_CODE.search(text)
        found.append(
            Migration(
                version=int(match[1]),
                name=match[2],
                text=text,
                oldest_code=int(oldest[1]) if oldest else 1,
            )
        )
    return tuple(sorted(found, key=lambda each: each.version))


def list_pending(
    known: Sequence[Migration], applied: Sequence[AppliedMigration]
) -> tuple[Migration, ...]:
    """The steps still to be taken."""
    done = {each.version for each in applied}
    return tuple(each for each in known if each.version not in done)


def check_unchanged(known: Sequence[Migration], applied: Sequence[AppliedMigration]) -> None:
    """Refuse a database to which other steps were applied than those that bear the same numbers here."""
    ours = {each.version: each for each in known}
    for each in applied:
        step = ours.get(each.version)
        if step is not None and step.record.checksum != each.checksum:
            raise SchemaChanged(
                f"migration {each.version:04}_{step.name} is not the one that was applied",
                details=[f"applied {each.checksum[:12]}   here {step.record.checksum[:12]}"],
            )


def check_schema(known: Sequence[Migration], applied: Sequence[AppliedMigration]) -> None:
    """Refuse a schema that this code does not understand: another, an older, or one contracted beyond what it knows.

    Raises: SchemaChanged, SchemaTooOld, SchemaTooNew.
    """
    check_unchanged(known, applied)
    newest = known[-1].version
    have = max((each.version for each in applied), default=0)
    if have < newest:
        raise SchemaTooOld(f"the schema is at version {have}, this code needs {newest}")
    oldest_code = max(each.oldest_code for each in applied)
    if oldest_code > newest:
        raise SchemaTooNew(
            f"the schema is at version {have} and needs code that knows version {oldest_code} or "
            f"newer; this code knows {newest}"
        )
