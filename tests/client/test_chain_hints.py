"""What is done to chains from outside is told to whom it concerns: after the commit, or with it."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.records import PRIORITIES, Claim, LeaseClass, Probe
from holdfast.notify.base import Hint
from holdfast.storage.id_generator import new_id
from tests.client.conftest import Heard
from tests.client.connection_types.held import Undo
from tests.client.test_hints import listening
from tests.client.test_savepoints import Witness

postgresql = pytest.mark.parametrize("dialect", ["postgresql"])


def run_by(app: Holdfast, worker: str, type: str) -> None:
    """Let a worker hold the job that is due."""
    token = new_id()
    probes = tuple(Probe(type, priority, token, 1, 0, str(token)) for priority in PRIORITIES)
    claim = Claim(
        worker=worker, limit=1, probes=probes, classes=(LeaseClass(token, 60_000, 0, 1, 1),)
    )
    assert app.database.run(app.database.store.jobs.claim(claim))


def test_an_end_from_outside_is_told_to_the_worker_to_waiters_and_to_dependents(
    app: Holdfast, heard: Heard
) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        chain = app.start(tx, "slow")
        app.start(tx, "next", blockers=[chain])
    run_by(app, "w-1", "slow")
    heard.hints.clear()
    with app.transaction() as tx:
        app.chains.complete(tx, chain.id, "done")
        assert heard.hints == []
    assert heard.hints == [
        Hint("lost", worker="w-1", ids=(str(chain.id),)),
        Hint("ended", ids=(str(chain.id),)),
        Hint("due", "next"),
    ]
    assert (witness.told("job_completed"), witness.told("job_unblocked")) == (["slow"], ["next"])


def test_every_other_move_is_told_too(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        chain = app.start(tx, "first", after="1h")
    heard.hints.clear()
    with app.transaction() as tx:
        app.chains.trigger(tx, chain.id)
        app.chains.continue_with(tx, chain.id, "second")
    assert heard.hints == [Hint("due", "first"), Hint("due", "second")]
    assert witness.told("job_continued") == ["first"]
    heard.hints.clear()
    with app.transaction() as tx:
        app.chains.cancel(tx, chain.id, "not wanted")
    with app.transaction() as tx:
        app.chains.delete(tx, chain.id)
    assert heard.hints == [Hint("ended", ids=(str(chain.id),))] * 2
    assert witness.told("job_cancelled") == ["second"]


def test_a_change_that_was_undone_is_told_to_nobody(app: Holdfast, heard: Heard) -> None:
    witness = Witness(app)
    with app.transaction() as tx:
        chain = app.start(tx, "first")
    heard.hints.clear()
    with suppress(Undo), app.transaction() as tx:
        app.chains.cancel(tx, chain.id)
        raise Undo
    with app.transaction() as tx:
        tx.execute("savepoint part")
        app.chains.complete(tx, chain.id)
        tx.execute("rollback to part")
    assert (heard.hints, witness.told("job_cancelled"), witness.told("job_completed")) == (
        [],
        [],
        [],
    )
    assert app.chains.get(chain.id).state == "pending"


@postgresql
def test_on_a_raw_connection_the_hints_are_part_of_the_transaction(url: str) -> None:
    app = Holdfast(url, open_types=True)
    with psycopg.connect(url) as connection:
        chain = app.start(connection, "slow")
        app.start(connection, "next", blockers=[chain])
    with listening(url) as ear, psycopg.connect(url) as connection:
        app.chains.complete(connection, chain.id)
        assert ear.heard() == []
        connection.rollback()
        assert ear.heard() == []
        app.chains.complete(connection, chain.id)
        connection.commit()
        assert ear.heard() == [Hint("ended", ids=(str(chain.id),)), Hint("due", "next")]
    app.close()


def test_a_type_that_no_chain_begins_with_may_be_continued_with(app: Holdfast) -> None:
    app.declare("begin")

    @app.job("inner", entry=False)
    def inner(job: object) -> None: ...

    with app.transaction() as tx:
        chain = app.start(tx, "begin")
        assert app.chains.continue_with(tx, chain.id, inner).state == "pending"
