"""Both stores offer the same aggregates, method by method, with the same parameters."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.store import Store

MAX_METHODS = 16
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
def test_a_store_takes_the_parameters_of_the_contract(store: Store) -> None:
    for aggregate, method in METHODS:
        promised = parameters_of(getattr(AGGREGATES[aggregate], method))
        offered = parameters_of(getattr(getattr(store, aggregate), method))
        assert offered == promised, f"{aggregate}.{method}"


def parameters_of(method: Callable[..., Any]) -> list[tuple[object, ...]]:
    """Return the names, kinds and defaults of a method's parameters."""
    parameters = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


def test_an_aggregate_stays_small() -> None:
    sizes = {name: len(methods_of(each)) for name, each in AGGREGATES.items()}
    assert {name: size for name, size in sizes.items() if not 0 < size <= MAX_METHODS} == {}


def test_an_operation_says_what_it_promises() -> None:
    for aggregate, method in METHODS:
        text = inspect.getdoc(methods_of(AGGREGATES[aggregate])[method])
        assert text, f"{aggregate}.{method}"
        assert text.splitlines()[0].endswith((".", ":")), f"{aggregate}.{method}"


def test_both_dialects_have_a_name() -> None:
    assert [store.dialect for store in STORES] == ["postgresql", "sqlite"]
