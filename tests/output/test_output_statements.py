"""What each statement about output reads and changes: that of one chain, job and epoch, under the job's token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.storage.operation import Op, run
from holdfast_output.output_store import (
    BatchRecord,
    HeldJob,
    NewBatch,
    OutputTail,
    SaidByStep,
    append,
    read_batches,
    read_epochs,
    read_recent,
    read_said,
    read_tail,
    trim,
    void_step,
)
from tests.output.scene import OutputScene
from tests.support.tables import IMPATIENT, Row, Tables, id_of, is_locked, row_lock

NOW = 1_800_000_000_000_000
TOKEN, OTHER = id_of(1), id_of(2)
KEY = ("chain_id", "last")
CHAIN, JOB = id_of(50), id_of(51)
HELD, STRANGER = HeldJob(CHAIN, JOB, TOKEN), HeldJob(CHAIN, JOB, OTHER)


def batch(chain: str, last: int, **values: Any) -> Row:
    usual = {
        "chain_id": chain, "last": last, "first": last, "job_id": JOB, "epoch": 3, "step": None, "data": f"[{last}]",
        "at": NOW,
    }  # fmt: skip
    return usual | values


class Chains:
    """The output of chains, and the queue."""

    def __init__(self, url: str) -> None:
        self.scene = OutputScene(url)
        self.tables = Tables(url)

    def plant(self, *rows: Row) -> None:
        self.tables.plant("output", *rows)

    def live(self, job: str, token: str | None) -> None:
        row = {"job_id": job, "type": "t", "priority": 0, "available_at": NOW, "token": token}
        self.tables.plant("queue", row)

    def run(self, op: Op[Any]) -> Any:
        return self.scene.app.database.run(op)

    def changes(self, op: Op[Any]) -> dict[Any, Row | None]:
        """Run an operation; return which batches it changed to what, by the numbers of chain and batch."""
        _, found = self.tables.changes("output", KEY, lambda: self.run(op))
        return {(int(chain[-12:]), last): row for (chain, last), row in found.items()}


@pytest.fixture(params=["postgres", "sqlite"])
def chains(request: pytest.FixtureRequest) -> Iterator[Chains]:
    chains = Chains(request.getfixturevalue(f"{request.param}_url"))
    yield chains
    chains.tables.close()
    chains.scene.app.close()


def test_a_batch_is_appended_by_the_job_that_bears_its_token(chains: Chains) -> None:
    chains.live(JOB, TOKEN)
    chains.live(id_of(52), OTHER)
    mine = NewBatch(CHAIN, JOB, TOKEN, 4, 7, 2, "step", "[4]")
    theirs = [NewBatch(CHAIN, JOB, OTHER, 8, 9, 2, None, "[8]")]
    theirs += [NewBatch(CHAIN, id_of(52), TOKEN, 10, 11, 2, None, "[10]")]
    chains.tables.plant("output", batch(id_of(60), 7))
    found = chains.changes(append([mine, *theirs], NOW + 5))
    row = batch(CHAIN, 7, first=4, epoch=2, step="step", data="[4]", at=NOW + 5)
    assert found == {(50, 7): row}


def test_a_batch_that_is_there_already_was_written_if_it_is_the_same(chains: Chains) -> None:
    chains.live(JOB, TOKEN)
    chains.live(id_of(52), TOKEN)
    again = NewBatch(CHAIN, JOB, TOKEN, 4, 7, 2, None, "[4]")
    later = NewBatch(CHAIN, JOB, TOKEN, 4, 7, 3, None, "[4]")
    another = NewBatch(CHAIN, id_of(52), TOKEN, 4, 7, 2, None, "[4]")
    assert chains.run(append([again], NOW)) == {(CHAIN, 7)}
    before = chains.tables.rows("output", *KEY)
    assert chains.run(append([again], NOW + 5)) == {(CHAIN, 7)}
    assert chains.run(append([later], NOW + 5)) == set()
    assert chains.run(append([another], NOW + 5)) == set()
    assert chains.tables.rows("output", *KEY) == before


def said(chains: Chains) -> None:
    """Three chains; in one of them the output of two jobs in several epochs."""
    batches = [
        batch(id_of(40), 90, epoch=9),
        batch(CHAIN, 1, epoch=1),
        batch(CHAIN, 2, epoch=2, step="a"),
        batch(CHAIN, 4, first=3, step="a", data='["ä"]'),
        batch(CHAIN, 5, step="a"),
        batch(CHAIN, 6, step="b"),
        batch(CHAIN, 9, first=8),
        batch(CHAIN, 7, job_id=id_of(52), epoch=1),
        batch(CHAIN, 10, job_id=id_of(52), epoch=8),
        batch(CHAIN, 11, job_id=id_of(52), epoch=3, step="a"),
        batch(id_of(60), 99, epoch=9),
        batch(id_of(60), 2, epoch=1),
        batch(id_of(60), 3, step="a"),
    ]
    chains.plant(*batches[1::2], *batches[::2])
    chains.live(JOB, TOKEN)
    chains.live(id_of(52), OTHER)


def test_where_a_chain_ends_and_how_much_an_epoch_has_is_told(chains: Chains) -> None:
    said(chains)
    assert chains.run(read_tail(HELD)) == OutputTail(11, 3)
    assert chains.run(read_tail(HeldJob(CHAIN, id_of(59), TOKEN))) == OutputTail(11, 0)
    assert chains.run(read_tail(HeldJob(id_of(59), JOB, TOKEN))) == OutputTail(0, 0)
    steps = {each.step: each for each in chains.run(read_said(HELD, 3))}
    assert steps == {
        None: SaidByStep(None, 2, 3),
        "a": SaidByStep("a", 3, 9),
        "b": SaidByStep("b", 1, 3),
    }
    found = chains.run(read_epochs([CHAIN, id_of(40)]))
    assert found == {JOB: 9, id_of(52): 8}
    assert chains.run(read_epochs([CHAIN])) == {JOB: 3, id_of(52): 8}


@pytest.mark.parametrize(
    ("op", "change"),
    [
        (lambda held: trim(held, 3), {(50, 1): None}),
        (
            lambda held: void_step(held, 3, "a", 20),
            {
                **{(50, last): None for last in (4, 5, 6, 9)},
                (50, 26): batch(CHAIN, 26, epoch=4, step="b", data="[6]"),
                (50, 29): batch(CHAIN, 29, first=28, epoch=4, data="[9]"),
            },
        ),
    ],
    ids=["trim", "void"],
)
def test_an_epoch_is_changed_by_the_job_that_bears_its_token(
    chains: Chains, op: Callable[[HeldJob], Op[Any]], change: dict[Any, Row | None]
) -> None:
    said(chains)
    assert chains.changes(op(STRANGER)) == {}
    assert chains.changes(op(HELD)) == change


def test_a_job_that_is_not_held_changes_nothing_by_the_token_of_another(chains: Chains) -> None:
    said(chains)
    # Jobs of one claim bear one token.
    other = HeldJob(CHAIN, id_of(53), TOKEN)
    chains.plant(
        batch(CHAIN, 12, job_id=id_of(53), epoch=1), batch(CHAIN, 13, job_id=id_of(53), step="a")
    )
    assert chains.changes(trim(other, 3)) == {}
    assert chains.changes(void_step(other, 3, "a", 20)) == {}


def test_batches_are_read_in_order_behind_a_number_of_each_chain(chains: Chains) -> None:
    said(chains)
    found = chains.run(read_batches({id_of(60): 3, CHAIN: 9}))
    assert {chain: [each.last for each in some] for chain, some in found.items()} == {
        CHAIN: [10, 11],
        id_of(60): [99],
    }
    assert found[CHAIN][1] == BatchRecord(CHAIN, 11, 11, id_of(52), 3, "[11]")
    (some,) = chains.run(read_batches({CHAIN: 0}, 3)).values()
    assert [each.last for each in some] == [1, 2, 4]


def test_the_last_batches_of_the_newest_epoch_are_read_up_to_some_bytes(chains: Chains) -> None:
    said(chains)
    found = chains.run(read_recent(HELD, 10, 100))
    assert [each.last for each in found] == [9, 6, 5, 4]
    assert found[0] == BatchRecord(CHAIN, 9, 8, JOB, 3, "[9]")
    assert [each.last for each in chains.run(read_recent(HELD, 2, 100))] == [9, 6]
    # As many as begin within the bytes: three are in each of the first three.
    assert [each.last for each in chains.run(read_recent(HELD, 10, 6))] == [9, 6]
    assert [each.last for each in chains.run(read_recent(HELD, 10, 7))] == [9, 6, 5]


@pytest.fixture
def impatient(postgres_url: str) -> Iterator[Chains]:
    """Output in PostgreSQL, for which no lock is waited."""
    chains = Chains(f"{postgres_url}{IMPATIENT}")
    said(chains)
    yield chains
    chains.tables.close()
    chains.scene.app.close()


NEW = NewBatch(CHAIN, JOB, TOKEN, 12, 12, 3, None, "[12]")


def test_a_batch_of_a_job_that_somebody_has_locked_is_not_written(
    impatient: Chains, postgres_url: str
) -> None:
    with row_lock(postgres_url, "queue", job_id=JOB):
        assert impatient.run(append([NEW], NOW)) == set()
    assert impatient.run(append([NEW], NOW)) == {(CHAIN, 12)}


@pytest.mark.parametrize(
    "op",
    [lambda: append([NEW], NOW), lambda: trim(HELD, 3), lambda: void_step(HELD, 3, "a", 20)],
    ids=["append", "trim", "void"],
)
def test_no_worker_takes_a_job_over_whose_output_is_being_written(
    impatient: Chains, postgres_url: str, op: Callable[[], Op[Any]]
) -> None:
    with impatient.scene.app.database.transaction() as tx:
        run(op(), tx)
        assert is_locked(postgres_url, "queue", job_id=JOB)
        assert not is_locked(postgres_url, "queue", job_id=id_of(52))
    assert not is_locked(postgres_url, "queue", job_id=JOB)
