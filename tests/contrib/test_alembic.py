"""Alembic's autogenerate, with Holdfast's tables in the same database."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table, Text, create_engine

from holdfast import Holdfast
from holdfast.contrib.alembic import include_name
from tests.contrib.conftest import alchemy_url

OWN = MetaData()
Table("orders", OWN, Column("id", Integer, primary_key=True), Column("holdfast_chain", Text))


def proposals(url: str, **options: Any) -> list[Any]:
    """What autogenerate would write, given models and a database."""
    engine = create_engine(alchemy_url(url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"target_metadata": OWN, **options})
        found: list[Any] = compare_metadata(context, OWN)
    engine.dispose()
    return found


def names(found: list[Any]) -> list[tuple[str, str]]:
    """Each proposal and the table or index that it is about."""
    return [(each[0], each[1].name) for each in found]


@pytest.fixture(params=[False, True], ids=["default_schema", "all_schemas"])
def schemas(request: pytest.FixtureRequest) -> bool:
    """Whether Alembic looks at every schema."""
    return bool(request.param)


def test_only_the_tables_of_the_application_are_proposed(any_url: str, schemas: bool) -> None:
    Holdfast(any_url).migrate()
    found = proposals(any_url, include_name=include_name, include_schemas=schemas)
    assert names(found) == [("add_table", "orders")]


def test_a_column_of_the_application_may_begin_with_holdfast(any_url: str, schemas: bool) -> None:
    Holdfast(any_url).migrate()
    engine = create_engine(alchemy_url(any_url))
    OWN.create_all(engine)
    engine.dispose()
    assert proposals(any_url, include_name=include_name, include_schemas=schemas) == []


def test_without_the_filter_alembic_would_drop_the_tables(any_url: str) -> None:
    Holdfast(any_url).migrate()
    dropped = {name for what, name in names(proposals(any_url, include_schemas=True))}
    assert len(dropped & {"job", "outcome", "holdfast_job", "holdfast_outcome"}) == 2


def test_a_schema_of_another_name_and_its_tests_are_left_out(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for schema in ("queue", "queue_test", "queue_test_gw0"):
        Holdfast(postgres_url, schema=schema).migrate()
    monkeypatch.setenv("HOLDFAST_SCHEMA", "queue")
    found = proposals(postgres_url, include_name=include_name, include_schemas=True)
    holdfast = {each[1].schema for each in found if each[0] == "remove_table"}
    assert holdfast <= {
        "holdfast"
    }  # what the prepared database of the test has, and no setting names
    assert ("add_table", "orders") in names(found)
