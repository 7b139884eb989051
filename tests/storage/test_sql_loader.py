"""Named statements are read from files, and their parameters become each driver's own."""

import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.core.errors import InvalidIdentifier
from holdfast.storage.sql_loader import (
    Compiled,
    ParamStyle,
    check_identifier,
    compile_statement,
    load_statements,
    place_schema,
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of its own with an empty `sql` folder."""
    name = f"dialect_{uuid4().hex}"
    (tmp_path / name / "sql").mkdir(parents=True)
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def write(tmp_path: Path, package: str, file: str, text: str) -> None:
    (tmp_path / package / "sql" / file).write_text(text)


def test_statements_of_all_files_are_found_by_name(tmp_path: Path, package: str) -> None:
    write(
        tmp_path, package, "job.sql", "-- name: job_get\n-- Why.\nselect 1;\n\n-- name: job_put\nx;"
    )
    write(tmp_path, package, "lease.sql", "-- name: lease_get\nselect 2\n")
    write(tmp_path, package, "notes.txt", "-- name: not_sql\nselect 3")
    assert load_statements(package) == {
        "job_get": "-- Why.\nselect 1",
        "job_put": "x",
        "lease_get": "select 2",
    }


def test_a_name_given_twice_is_refused(tmp_path: Path, package: str) -> None:
    write(tmp_path, package, "a.sql", "-- name: job_get\nselect 1;")
    write(tmp_path, package, "b.sql", "-- name: job_get\nselect 2;")
    with pytest.raises(ValueError, match="job_get is defined twice"):
        load_statements(package)


def test_a_fragment_is_written_once_and_used_in_every_file(tmp_path: Path, package: str) -> None:
    write(
        tmp_path,
        package,
        "job.sql",
        "-- fragment: job_columns\n-- Why.\nid, {now}\n\n-- name: job_get\nselect {job_columns} from job;",
    )
    write(
        tmp_path,
        package,
        "other.sql",
        "-- name: all\nselect '{1,2}', {job_columns};\n\n-- fragment: now\nclock()",
    )
    assert load_statements(package) == {
        "job_get": "select id, clock() from job",
        "all": "select '{1,2}', id, clock()",
    }


def test_a_fragment_that_does_not_exist_is_refused(tmp_path: Path, package: str) -> None:
    write(tmp_path, package, "job.sql", "-- name: job_get\nselect {job_colums};")
    with pytest.raises(KeyError, match="job_colums"):
        load_statements(package)


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("named", Compiled("select :id, :now, :id::uuid", ())),
        (
            "pyformat",
            Compiled(
                "select %(id)s::pg_catalog.text, %(now)s::pg_catalog.text, %(id)s::pg_catalog.text::uuid",
                (),
            ),
        ),
        (
            "dollar",
            Compiled(
                "select $1::pg_catalog.text, $2::pg_catalog.text, $1::pg_catalog.text::uuid",
                ("id", "now"),
            ),
        ),
    ],
)
def test_parameters_become_the_drivers_own(style: ParamStyle, expected: Compiled) -> None:
    assert compile_statement("select :id, :now, :id::uuid", style) == expected


@pytest.mark.parametrize(
    "text",
    [
        "select 'a:b', 'it''s :c'",
        'select ":d" from t',
        "select 1 -- not :e\n",
        "select now()::date",
        "select a[1:2]",
    ],
)
@pytest.mark.parametrize("style", ["named", "pyformat", "dollar"])
def test_a_colon_elsewhere_is_no_parameter(text: str, style: ParamStyle) -> None:
    assert compile_statement(text, style) == Compiled(text, ())


def test_percent_signs_are_doubled_only_where_the_driver_reads_them() -> None:
    text = "select 7 % 2, 'a%' where x like :p -- 5 %"
    doubled = "select 7 %% 2, 'a%%' where x like %(p)s::pg_catalog.text -- 5 %%"
    assert compile_statement(text, "pyformat").text == doubled
    assert compile_statement(text, "dollar").text == text.replace(":p", "$1::pg_catalog.text")


def test_names_are_pointed_at_the_chosen_schema() -> None:
    text = "create schema if not exists holdfast; select holdfast.us(a) from holdfast.job"
    assert place_schema(text, "acme_jobs") == (
        'create schema if not exists "acme_jobs"; select "acme_jobs".us(a) from "acme_jobs".job'
    )


@pytest.mark.parametrize("name", ["holdfast", "acme_jobs", "_x", "a" * 48, "t1"])
def test_plain_identifiers_are_accepted(name: str) -> None:
    assert check_identifier(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Acme",
        "1st",
        "a-b",
        "a b",
        'a"b',
        "a;drop schema public",
        "a.b",
        "é",
        "a\n",
        "a" * 49,
        "pg_jobs",
    ],
)
def test_other_identifiers_are_refused_with_the_fix(name: str) -> None:
    with pytest.raises(InvalidIdentifier) as caught:
        check_identifier(name)
    assert caught.value.code == "HF013"
    with pytest.raises(InvalidIdentifier):
        place_schema("select 1", name)
