"""What each statement about costs counts and changes: the jobs and partitions that it names, under a job's token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.partitions import PartitionRule
from holdfast.storage.operation import Op, run
from holdfast_costs.settlement import settle
from tests.costs.test_costs import CostScene
from tests.support.tables import Tables, id_of, one
from tests.support.until import wait_until

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
TOKEN, OTHER = id_of(1), id_of(2)
CLAIMED = NOW + SECOND // 2
RULE = PartitionRule("ask#k", cost_rate=100, cost_period_ms=10_000)


class Ledger:
    """The queue, its partitions, and what they were charged."""

    def __init__(self, url: str) -> None:
        self.scene = CostScene(url)
        self.tables = Tables(url)
        self.is_postgres = url.startswith("postgres")

    def run(self, op: Op[Any]) -> Any:
        return self.scene.app.database.run(op)

    def ask(self, name: str, **params: Any) -> list[Any]:
        return [tuple(row) for row in self.run(one(name, **params))]

    def job(
        self,
        number: int,
        cost: int | None,
        *,
        gate: str | None = "ask#k",
        token: str | None = TOKEN,
        spent: int | None = None,
    ) -> None:
        id = id_of(number)
        common = {"type": "ask", "priority": 7}
        row = {"id": id, "chain_id": id, "chain_index": 0, "input": "null", "blockers": 0}
        self.tables.plant("job", {**row, **common, "created_at": NOW, "cost": cost})
        live = {"job_id": id, "available_at": NOW, "token": token, "gate": gate, "spent": spent}
        self.tables.plant("queue", {**live, **common})

    def gate(self, id: str, *holders: int) -> None:
        ids = [id_of(each) for each in holders]
        if self.is_postgres:
            before = [id_of(4)]
            self.tables.plant(
                "gate", {"id": id, "turn": 0}, {"id": id, "turn": 1, "holders": before}
            )
            self.tables.plant("gate", {"id": id, "turn": 2, "holders": ids})
        else:
            self.tables.plant("gate", {"id": id, "holders": json.dumps(ids)})

    def charge(self, gate: str, at: int, cost: int, step: int = 0) -> None:
        self.tables.plant("charge", {"gate": gate, "step": step, "at": at, "cost": cost})

    def charges(self) -> dict[Any, Any]:
        rows = self.tables.rows("charge", "gate", "step")
        return {key: (row["at"], row["cost"]) for key, row in rows.items()}

    def signals(self) -> list[Any]:
        rows = self.tables.rows("wakeup", "n").values()
        return [(row["type"], row["priority"], row["at"], row["gate"]) for row in rows]

    def spent(self) -> dict[int, int | None]:
        rows = self.tables.rows("queue", "job_id")
        return {int(id[-12:]): row["spent"] for (id,), row in rows.items()}

    def settled(
        self, spent: int, *rules: PartitionRule, job: int = 10, token: str = TOKEN
    ) -> Op[bool]:
        """Say what a job spent that was claimed a second ago."""
        claimed: Any = SimpleNamespace(id=id_of(job), token=token, claimed_at=CLAIMED)
        store = self.scene.app.database.store
        return settle(store, claimed, spent, rules or [RULE], CLAIMED + SECOND)

    def settle(self, *args: Any, **options: Any) -> bool:
        answer: bool = self.run(self.settled(*args, **options))
        return answer


@pytest.fixture(params=["postgres", "sqlite"])
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    ledger = Ledger(request.getfixturevalue(f"{request.param}_url"))
    yield ledger
    ledger.tables.close()
    ledger.scene.close()


def test_what_was_spent_takes_the_place_of_a_cost_and_is_signalled_if_it_is_less(
    ledger: Ledger,
) -> None:
    ledger.job(9, 30)
    ledger.job(10, 30)
    ledger.job(11, 30, token=OTHER)
    assert not ledger.settle(10, token=OTHER)
    assert not ledger.settle(10, job=99)
    assert (ledger.charges(), ledger.signals()) == ({}, [])
    ledger.settle(30)
    assert ledger.signals() == []
    ((key, step),) = ledger.charges() or {("ask#k", 0): None}
    ledger.tables.execute("delete from holdfast.charge", "delete from holdfast_charge")
    assert ledger.settle(40)
    ((key, step),) = ledger.charges()
    assert ledger.charges() == {("ask#k", step): (CLAIMED, 10)}
    assert (key, ledger.spent()) == ("ask#k", {9: None, 10: 40, 11: None})
    assert ledger.signals() == []
    # The last word counts, and what others were charged in the same step stays.
    ledger.tables.execute(
        "update holdfast.charge set cost = 50", "update holdfast_charge set cost = 50"
    )
    assert ledger.settle(35)
    assert ledger.charges() == {("ask#k", step): (CLAIMED, 45)}
    assert ledger.signals() == [("ask", 7, CLAIMED + SECOND, "ask#k")]
    assert ledger.settle(0)
    assert ledger.charges() == {("ask#k", step): (CLAIMED, 10)}
    assert ledger.spent() == {9: None, 10: 0, 11: None}


def test_a_step_is_never_charged_less_than_nothing(ledger: Ledger) -> None:
    ledger.job(10, 30)
    ledger.settle(40)
    ledger.settle(0)
    assert [cost for _, cost in ledger.charges().values()] == [0]


def test_a_job_that_says_no_cost_counts_one(ledger: Ledger) -> None:
    ledger.job(9, None)
    ledger.job(10, None)
    assert ledger.settle(5)
    assert [cost for _, cost in ledger.charges().values()] == [4]
    assert ledger.signals() == []
    assert ledger.settle(0, job=9)
    assert len(ledger.signals()) == 1


def test_the_first_word_of_an_attempt_is_compared_with_its_cost(ledger: Ledger) -> None:
    ledger.job(10, 30)
    assert ledger.settle(29)
    assert len(ledger.signals()) == 1


def test_steps_that_count_no_more_are_not_settled(ledger: Ledger) -> None:
    ledger.job(10, 30)
    # It was claimed a second ago.
    over = PartitionRule("@over", cost_rate=100, cost_period_ms=1_000)
    still = PartitionRule("@still", cost_rate=100, cost_period_ms=1_001)
    none = PartitionRule("@none", cost_allowed=5)
    assert ledger.settle(40, over, still, none)
    assert {gate for gate, _ in ledger.charges()} == {"@still"}


def test_a_job_without_a_partition_signals_nothing(ledger: Ledger) -> None:
    ledger.job(10, 30, gate=None)
    assert ledger.settle(10)
    assert ledger.signals() == []


def test_a_cost_of_a_job_is_told_with_what_it_spent(ledger: Ledger) -> None:
    ledger.job(9, 30, spent=7)
    ledger.job(10, None, gate=None)
    ledger.job(11, 5)
    assert ledger.ask("cost_of_job", id=id_of(9)) == [(30, "ask#k", 7)]
    assert ledger.ask("cost_of_job", id=id_of(10)) == [(1, None, None)]
    assert ledger.ask("cost_of_job", id=id_of(12)) == []
    row = {"id": id_of(12), "chain_id": id_of(12), "chain_index": 0, "input": "null"}
    row |= {"blockers": 0, "type": "ask", "priority": 7, "created_at": NOW}
    ledger.tables.plant("job", row)
    assert ledger.ask("cost_of_job", id=id_of(12)) == [(1, None, None)]


def test_the_steps_of_a_partition_are_told_in_their_order(ledger: Ledger) -> None:
    for at, cost, step in ((5, 50, 1), (3, 31, 2), (3, 30, 0)):
        ledger.charge("ask#k", at, cost, step)
    ledger.charge("ask#x", 4, 9)
    assert ledger.ask("cost_steps", gate="ask#k") == [(3, 30), (3, 31), (5, 50)]


def test_what_partitions_use_is_charged_within_the_period_and_running(ledger: Ledger) -> None:
    now = NOW + 60 * SECOND
    ledger.job(1, 30)
    ledger.job(2, None)
    ledger.job(3, 99, token=None)
    ledger.job(4, 7)
    for gate, holders in (("ask#b", [1, 2, 3]), ("ask#a", []), ("ask#c", [4]), ("asking#b", [])):
        ledger.gate(gate, *holders)
    ledger.gate("@all", 4)
    ledger.gate("ask#")
    ledger.gate("ask$")
    for step, (at, cost) in enumerate(
        [(now - 10 * SECOND, 9), (now - 10 * SECOND + 1, 5), (now, 6)]
    ):
        ledger.charge("ask#b", at, cost, step)
    ledger.charge("ask#c", now, 70)

    def usage(*ids: str, type: str | None = None, limit: int = 9) -> list[Any]:
        given = {"ids": json.dumps(ids), "type": type, "limit": limit}
        return ledger.ask("cost_usage", **given, period_ms=10_000, now=now)

    assert usage("@all", "@none") == [("@all", 0, 7)]
    of_type = [("ask#a", 0, 0), ("ask#b", 11, 31), ("ask#c", 70, 7)]
    assert usage(type="ask") == of_type
    assert usage(type="ask", limit=2) == of_type[:2]
    assert usage("ask#c", limit=2) == of_type[2:]


def test_of_two_words_of_an_attempt_at_once_the_later_one_counts(postgres_url: str) -> None:
    ledger = Ledger(postgres_url)
    ledger.job(10, 30)
    ledger.settle(40)
    ledger.tables.execute("update holdfast.charge set cost = 50", "")
    with ThreadPoolExecutor(1) as thread:
        with ledger.scene.app.database.transaction() as tx:
            run(ledger.settled(60), tx)
            later = thread.submit(ledger.settle, 25)
            wait_until(ledger.tables.someone_waits)
        assert later.result()
    assert [cost for _, cost in ledger.charges().values()] == [35]
    assert ledger.spent() == {10: 25}
    ledger.tables.close()
    ledger.scene.close()
