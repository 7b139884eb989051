"""A state machine makes the same random moves on the model, on SQLite and on PostgreSQL, and compares all three."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.storage.database import Database
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.model.attempts import Attempts
from tests.model.functions import Functions
from tests.model.outside import Outside
from tests.model.publishing import Publishing
from tests.model.starting import Starting
from tests.support.postgres import PostgresServer

EXAMPLES = int(os.environ.get("HOLDFAST_MODEL_EXAMPLES", "12"))
EMPTY = """
truncate holdfast.job, holdfast.queue, holdfast.lease, holdfast.outcome, holdfast.attempt, holdfast.blocker,
         holdfast.chain_key, holdfast.subscription, holdfast.tally, holdfast.step, holdfast.signal
"""
# As in a file, which has no timeline.
FENCES_BY_CLOCK = """
insert into holdfast.identity (id, database_name, fence_base)
values (gen_random_uuid(), current_database(), - holdfast.timeline())
on conflict (only_row) do update set fence_base = excluded.fence_base
"""


class StoresAgainstModel(Starting, Attempts, Functions, Outside, Publishing):
    """All rules together."""


@pytest.fixture
def fresh_pair(
    postgres_server: PostgresServer, tmp_path: Path
) -> Iterator[Callable[[], list[Database]]]:
    """Makes an empty SQLite and an empty PostgreSQL for each example."""
    with postgres_server.database() as url:
        cleaner = PostgresDatabase(url)
        with cleaner.transaction() as transaction:
            transaction.execute(FENCES_BY_CLOCK)

        def fresh() -> list[Database]:
            folder = tempfile.mkdtemp(dir=tmp_path)
            sqlite = SqliteDatabase(Path(folder) / "model.db")
            sqlite.migrate()
            with cleaner.transaction() as transaction:
                transaction.execute(EMPTY)
            return [sqlite, PostgresDatabase(url)]

        yield fresh
        cleaner.close()


@pytest.mark.timeout(120 + 20 * EXAMPLES)
def test_both_stores_do_what_the_model_does(fresh_pair: Callable[[], list[Database]]) -> None:
    machine = type("Machine", (StoresAgainstModel,), {"fresh": staticmethod(fresh_pair)})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
