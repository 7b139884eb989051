"""Every store offers every port, method by method, with the same parameters."""

import inspect
from typing import Any, get_type_hints

import pytest

from holdfast.storage import port
from holdfast.storage.port import Store
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.sqlite.store import SqliteStore

MOST_METHODS = 14


def methods_of(protocol: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    }


AGGREGATES = {
    name: get_type_hints(member.fget)["return"]
    for name, member in inspect.getmembers(Store, lambda each: isinstance(each, property))
    if name != "dialect"
}
METHODS = [(name, method) for name, each in AGGREGATES.items() for method in methods_of(each)]


@pytest.mark.parametrize("store", [PostgresStore(), SqliteStore()], ids=lambda each: each.dialect)
@pytest.mark.parametrize(("aggregate", "method"), METHODS)
def test_a_store_takes_what_the_port_says(store: Store, aggregate: str, method: str) -> None:
    promised = inspect.signature(getattr(AGGREGATES[aggregate], method)).parameters
    offered = inspect.signature(getattr(getattr(store, aggregate), method)).parameters
    wanted = [(each.name, each.kind, each.default) for each in promised.values()]
    assert [(each.name, each.kind, each.default) for each in offered.values()] == wanted[1:]


@pytest.mark.parametrize("aggregate", sorted(AGGREGATES))
def test_a_port_stays_small(aggregate: str) -> None:
    assert 0 < len(methods_of(AGGREGATES[aggregate])) <= MOST_METHODS


@pytest.mark.parametrize(("aggregate", "method"), METHODS)
def test_a_port_says_what_it_promises(aggregate: str, method: str) -> None:
    text = inspect.getdoc(getattr(AGGREGATES[aggregate], method))
    assert text
    assert text.splitlines()[0].endswith((".", ":"))


def test_both_dialects_have_a_name() -> None:
    assert (PostgresStore().dialect, SqliteStore().dialect) == ("postgresql", "sqlite")
    assert port.__doc__
