"""What mistakes are made in a text, and that the statements they are made in are those that run."""

import pytest

from holdfast.storage.sql_loader import dialect_statements, without_comments
from tests.mutants.__main__ import SUITES, exit_code
from tests.mutants.mutations import mutations
from tests.mutants.statements import StoreName, expanded, mutants, users
from tests.mutants.survivors import argued, unknown

STORES: tuple[StoreName, ...] = ("sqlite", "postgres")


def made(text: str, kind: str) -> list[str]:
    return [" ".join(each.text.split()) for each in mutations(text) if each.kind == kind]


def test_each_condition_is_dropped_once() -> None:
    text = "select a from t where b = 1 and (c < 2 or d is null) and e between 3 and 4"
    assert made(text, "drop and") == [
        "select a from t where (c < 2 or d is null) and e between 3 and 4",
        "select a from t where b = 1 and e between 3 and 4",
        "select a from t where b = 1 and (c < 2 or d is null)",
    ]
    assert made(text, "drop or") == [
        "select a from t where b = 1 and ( d is null) and e between 3 and 4",
        "select a from t where b = 1 and (c < 2 ) and e between 3 and 4",
    ]


def test_an_only_condition_becomes_true() -> None:
    assert made("delete from t where id = :id", "always") == ["delete from t where true"]


def test_comparisons_move_by_one_and_assignments_are_none() -> None:
    text = "update t set a = b, c = 2 where d <= 3"
    assert made(text, "compare") == ["update t set a = b, c = 2 where d < 3"]
    assert made(text, "drop set") == [
        "update t set c = 2 where d <= 3",
        "update t set a = b where d <= 3",
    ]


def test_an_only_assignment_changes_nothing() -> None:
    assert made("update t set a = 1", "drop set") == ["update t set a = a"]


def test_a_fragment_that_is_a_list_of_assignments_loses_each() -> None:
    assert made("a = case when b = 1 then 2 end, c = 3", "drop set") == [
        "c = 3",
        "a = case when b = 1 then 2 end",
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("drop order", "select a from t limit 1 for update skip locked"),
        ("reverse", "select a from t order by b desc, c limit 1 for update skip locked"),
        ("no limit", "select a from t order by b, c limit 1000000000 for update skip locked"),
        ("wait", "select a from t order by b, c limit 1 for update"),
        ("drop lock", "select a from t order by b, c limit 1"),
        ("null", "select null from t order by b, c limit 1 for update skip locked"),
    ],
)
def test_clauses_are_lost(kind: str, text: str) -> None:
    assert made("select a from t order by b, c limit 1 for update skip locked", kind) == [text]


def test_values_are_lost_and_places_are_not() -> None:
    text = "insert into t (a, b) values (:a, coalesce(:b, c + 1))"
    assert made(text, "null") == [
        "insert into t (a, b) values (null, coalesce(:b, c + 1))",
        "insert into t (a, b) values (:a, null)",
    ]
    assert made(text, "one arm") == [
        "insert into t (a, b) values (:a, (:b))",
        "insert into t (a, b) values (:a, (c + 1))",
    ]
    assert made(text, "plus nothing") == ["insert into t (a, b) values (:a, coalesce(:b, c + 0))"]


def test_strings_and_parameters_are_not_read() -> None:
    assert mutations("delete from t -- where a = 1 and b = 2\n") == []
    assert made("select ' and a = 1 ' from t", "compare") == []


def test_mutants_that_read_alike_have_names_of_their_own() -> None:
    found = [each.name for each in mutations("select a from t where b < c and b < c and b < c")]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("store", STORES)
def test_the_statements_are_those_that_a_process_loads(store: StoreName) -> None:
    loaded = {name: without_comments(text) for name, text in dialect_statements(store).items()}
    assert expanded(store, {}) == loaded


@pytest.mark.parametrize("store", STORES)
def test_every_mutant_changes_a_statement(store: StoreName) -> None:
    assert [each.name for each in mutants(store) if not users(store, each.statement)] == []


@pytest.mark.parametrize("store", STORES)
def test_every_survivor_is_a_mutant_and_has_a_reason(store: StoreName) -> None:
    assert unknown(store) == set()
    assert [name for name, why in argued().items() if not why.strip().endswith(".")] == []


def test_a_mutant_whose_statement_no_test_executes_fails_the_run() -> None:
    assert exit_code(0, [], [], {}) == 0
    assert exit_code(0, [], [], {"reader_commit": 3}) == 1


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_statements_of_streams_are_asked_about_by_their_own_tests(store: StoreName) -> None:
    assert "tests/streams" in SUITES[store]
