"""What mistakes are made in a text, and that the statements they are made in are those that run."""

from importlib.resources import files

import pytest

from holdfast.extensions import modules_of
from holdfast.storage.sql_loader import dialect_statements, without_comments
from tests.mutants.__main__ import EXTENSIONS, SUITES, Tally, exit_code, ordered
from tests.mutants.mutations import mutations
from tests.mutants.statements import StoreName, expanded, mutants, users
from tests.mutants.survivors import argued, unknown
from tests.mutants.warm_session import Touch, Verdict

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


def test_a_statement_that_only_slow_tests_execute_is_asked_about_by_the_fastest() -> None:
    mutant = mutants("sqlite")[0]
    used = users("sqlite", mutant.statement)
    slow, slower = (Touch(f"test_{seconds}", seconds, used) for seconds in (40.0, 50.0))
    other = Touch("test_other", 0.1, frozenset())
    assert ordered(mutant, [slower, other, slow], Tally(1, None), 20.0) == [slow]
    quick = Touch("test_quick", 1.0, used)
    assert ordered(mutant, [slower, quick, slow], Tally(1, None), 20.0) == [quick]


@pytest.mark.parametrize("store", STORES)
def test_the_statements_of_each_extension_are_asked_about_by_its_own_tests(
    store: StoreName,
) -> None:
    own = {each for each in modules_of("statements") if has_statements(each, store)}
    assert own == EXTENSIONS.keys()
    assert set(EXTENSIONS.values()) <= set(SUITES[store])


def has_statements(module: str, store: StoreName) -> bool:
    folder = files(module).joinpath(f"sql/{store}")
    return folder.is_dir() and any(each.name.endswith(".sql") for each in folder.iterdir())


def test_tests_of_the_mutants_package_come_first_and_of_these_who_killed_most() -> None:
    mutant = next(each for each in mutants("sqlite") if each.package == "holdfast_costs")
    used = users("sqlite", mutant.statement)
    names = ["tests/worker/a", "tests/costs/b", "tests/costs/c", "tests/costs/d"]
    touches = [Touch(name, 1 + place / 10, used) for place, name in enumerate(names)]
    tally = Tally(1, None)
    assert [each.test for each in ordered(mutant, touches, tally, 20.0)] == [*names[1:], names[0]]
    other = next(
        each
        for each in mutants("sqlite")
        if each.package == "holdfast_costs" and each.statement != mutant.statement
    )
    tally.add(Verdict(other, names[3], is_slow=False, tests=1, seconds=0.1))
    tally.add(Verdict(mutant, names[2], is_slow=False, tests=1, seconds=0.1))
    found = [each.test for each in ordered(mutant, touches, tally, 20.0)]
    assert found == [names[2], names[3], names[1], names[0]]
