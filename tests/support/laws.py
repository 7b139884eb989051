"""The laws of rows: tests in which processes and servers die are asked whether what they left keeps them."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.core.errors import DatabaseUnreachable, WrongDatabase
from holdfast.storage.database import Database
from holdfast_verify.laws import LawVerdict, check_laws
from tests.support.process import PostgresProcess
from tests.worker.workshop import Workshop

ALWAYS = tuple(Path(__file__).parents[1] / each for each in ("chaos", "failover", "streams"))
"""The folders whose tests are all asked; elsewhere those that are marked `torture`."""
STARTED = pytest.StashKey[list[PostgresProcess]]()
"""The servers that a test has started for itself."""


def breaches_of(verdicts: list[LawVerdict]) -> list[str]:
    """Return what breaks the laws, in words."""
    return [
        f"{each.law.name}: {breach.subject}: {breach.text}"
        for each in verdicts
        for breach in each.breaches
    ]


def check_rows(database: Database) -> None:
    """Fail if a row of this database breaks a law."""
    breaches = breaches_of(database.run(check_laws()))
    assert not breaches, breaches


def is_asked(item: pytest.Item) -> bool:
    """Whether a test must leave rows that keep the laws."""
    if item.get_closest_marker("breaks_laws"):
        return False
    is_within = any(item.path.is_relative_to(each) for each in ALWAYS)
    return is_within or item.get_closest_marker("torture") is not None


def check_left_behind(item: pytest.Function) -> int:
    """Fail if a database that a test had breaks a law; return how many were asked.

    A server that is down is not, and neither is a database without our tables.
    """
    asked = 0
    for each in item.funcargs.values():
        if isinstance(each, Workshop):
            check_rows(each.database)
            asked += 1
    for address in sorted(set(_addresses(item))):
        with (
            closing(Holdfast(address, open_types=True)) as app,
            suppress(DatabaseUnreachable, WrongDatabase),
        ):
            check_rows(app.database)
            asked += 1
    return asked


def _addresses(item: pytest.Function) -> Iterator[str]:
    yield from (each.url for each in item.stash.get(STARTED, []))
    for value in item.funcargs.values():
        address = getattr(value, "url", value)
        if isinstance(value, Holdfast):
            address = value.database.url
        if not isinstance(address, str):
            continue
        file = address.removeprefix("sqlite:///")
        if address.startswith("postgresql://") or (file != address and Path(file).is_file()):
            yield address
