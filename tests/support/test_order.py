"""The order in which processes get their tests."""

from types import SimpleNamespace
from typing import Any, cast

from tests.conftest import pytest_collection_modifyitems


def item(name: str) -> Any:
    """Return a test; a name in capitals has a timeout of its own."""
    return SimpleNamespace(name=name, get_closest_marker=lambda _: name.isupper())


def order(names: str, processes: int) -> str:
    """Return the names in the order in which that many processes are given them."""
    items = [item(each) for each in names]
    config = SimpleNamespace(workerinput={"workercount": processes})
    pytest_collection_modifyitems(cast(Any, config), items)
    return "".join(each.name for each in items)


def test_each_process_begins_with_its_part_of_the_long_tests() -> None:
    assert order("abAcdBefC", 2) == "ACabcBdef"
    assert order("abAcdBefC", 3) == "AabBcdCef"


def test_one_process_takes_them_as_they_come() -> None:
    assert order("abAcd", 1) == "abAcd"
