"""Both stores offer the same aggregates, method by method, with the same parameters."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.store import Store

MOST_METHODS = 16
STORES = (PostgresStore(), SqliteStore())


def methods_of(aggregate: object) -> dict[str, Callable[..., Any]]:
    return {
        name: member
        for name, member in inspect.getmembers(aggregate, inspect.ismethod)
        if not name.startswith("_")
    }


AGGREGATES = vars(Store())
METHODS = [(name, method) for name, each in AGGREGATES.items() for method in methods_of(each)]


@pytest.mark.parametrize("store", STORES, ids=lambda each: each.dialect)
def test_a_store_adds_no_operation_of_its_own(store: Store) -> None:
    assert {name: set(methods_of(each)) for name, each in vars(store).items()} == {
        name: set(methods_of(each)) for name, each in AGGREGATES.items()
    }


@pytest.mark.parametrize("store", STORES, ids=lambda each: each.dialect)
@pytest.mark.parametrize(("aggregate", "method"), METHODS)
def test_a_store_takes_the_parameters_of_the_contract(
    store: Store, aggregate: str, method: str
) -> None:
    promised = inspect.signature(getattr(AGGREGATES[aggregate], method)).parameters
    offered = inspect.signature(getattr(getattr(store, aggregate), method)).parameters
    assert [(each.name, each.kind, each.default) for each in offered.values()] == [
        (each.name, each.kind, each.default) for each in promised.values()
    ]


@pytest.mark.parametrize("aggregate", sorted(AGGREGATES))
def test_an_aggregate_stays_small(aggregate: str) -> None:
    assert 0 < len(methods_of(AGGREGATES[aggregate])) <= MOST_METHODS


@pytest.mark.parametrize(("aggregate", "method"), METHODS)
def test_an_operation_says_what_it_promises(aggregate: str, method: str) -> None:
    text = inspect.getdoc(methods_of(AGGREGATES[aggregate])[method])
    assert text
    assert text.splitlines()[0].endswith((".", ":"))


def test_both_dialects_have_a_name() -> None:
    assert [store.dialect for store in STORES] == ["postgresql", "sqlite"]
