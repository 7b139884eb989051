"""Migrations are numbered files; reading and judging them needs no database."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.core.errors import SchemaChanged, SchemaTooNew, SchemaTooOld
from holdfast.storage.migrations import Migration, check_schema, list_pending, load_migrations

PACKAGES = ["holdfast.storage.postgres", "holdfast.storage.sqlite"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of its own with three migrations, one of them odd in every way."""
    name = f"dialect_{uuid4().hex}"
    folder = tmp_path / name / "migrations"
    folder.mkdir(parents=True)
    (tmp_path / name / "__init__.py").touch()
    (folder / "0002_index.sql").write_text("create index …;\n")
    (folder / "0010_contract.sql").write_text("-- oldest code: 9\ndrop table t;\n")
    (folder / "0001_tables.sql").write_text("create table t ();\n")
    (folder / "notes.txt").write_text("not a step")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def step(version: int, oldest_code: int = 1) -> Migration:
    return Migration(version, f"step_{version}", f"select {version}", oldest_code)


def test_steps_are_read_in_the_order_of_their_numbers(package: str) -> None:
    first, second, third = load_migrations(package)
    assert (first.version, first.name, first.oldest_code) == (1, "tables", 1)
    assert (second.version, second.name) == (2, "index")
    assert (third.version, third.oldest_code) == (10, 9)


def test_a_step_is_remembered_with_the_checksum_of_its_text(package: str) -> None:
    first, second, _ = load_migrations(package)
    assert (first.record.version, first.record.name) == (1, "tables")
    assert first.record.checksum != second.record.checksum
    assert first.record.checksum == first.record.checksum


def test_steps_not_taken_yet_are_pending() -> None:
    known = [step(1), step(2), step(3)]
    assert list_pending(known, [known[0].record]) == (known[1], known[2])
    assert list_pending(known, [each.record for each in known]) == ()


@pytest.mark.parametrize("applied", [[], [step(1).record]])
def test_an_older_schema_is_refused(applied: list[object]) -> None:
    records = [step(1).record] if applied else []
    with pytest.raises(SchemaTooOld, match="needs 2") as caught:
        check_schema([step(1), step(2)], records)
    assert "holdfast migrate" in str(caught.value.help)


def test_a_newer_schema_that_still_serves_this_code_is_accepted() -> None:
    applied = [step(1).record, step(2).record, step(3, oldest_code=2).record]
    check_schema([step(1), step(2)], applied)


def test_a_newer_schema_that_no_longer_serves_this_code_is_refused() -> None:
    applied = [step(1).record, step(2).record, step(3, oldest_code=2).record]
    with pytest.raises(SchemaTooNew, match="knows 1"):
        check_schema([step(1)], applied)


@pytest.mark.parametrize("package_name", PACKAGES)
def test_our_own_steps_have_no_gap(package_name: str) -> None:
    steps = load_migrations(package_name)
    assert [each.version for each in steps] == list(range(1, len(steps) + 1))
    assert all(each.oldest_code <= each.version for each in steps)


def test_a_step_that_was_changed_after_it_was_applied_is_refused() -> None:
    other = Migration(1, "step_1", "select 'another'", 1)
    with pytest.raises(SchemaChanged, match="0001_step_1 is not the one") as caught:
        check_schema([step(1), step(2)], [other.record, step(2).record])
    assert other.record.checksum[:12] in str(caught.value.details)


def test_a_step_this_code_does_not_know_is_not_its_business() -> None:
    check_schema([step(1)], [step(1).record, Migration(2, "later", "?", 1).record])


@pytest.mark.parametrize("package_name", PACKAGES)
def test_a_step_that_takes_something_away_no_longer_serves_the_code_before_it(
    package_name: str,
) -> None:
    taking = re.compile(r"\b(drop\s+(table|column|view|function)|rename)\b", re.IGNORECASE)
    # What is made in the same step, as SQLite needs it, is still there or never was.
    made = re.compile(r"^create (?:table|view) (\w+)", re.MULTILINE)
    for each in load_migrations(package_name)[1:]:
        names = "|".join(made.findall(each.text)) or "-"
        if taking.search(re.sub(rf"drop (table|view) ({names});", "", each.text)):
            assert each.oldest_code > 1, f"{each.name}: say `-- oldest code: N` in it"


def test_how_an_index_is_built_is_left_to_the_migration() -> None:
    for each in load_migrations("holdfast.storage.postgres"):
        assert "concurrently" not in each.text.lower(), each.name
