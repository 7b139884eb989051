"""What a poll of partitions costs on SQLite, in steps of its virtual machine: a saturated key slows no other."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.core.partitions import LimitedAnswer
from holdfast.core.records import Finish
from holdfast.storage.operation import run
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.sqlite.transaction import SqliteExecutor
from tests.contract.partition_polls import ALLOWED, poll_partitions

SATURATED = int(os.environ.get("HOLDFAST_SATURATED_JOBS", "20000"))
FEW = 1_000
KEYS, EACH, LIMIT = 1_000, 3, 50

FILL = (
    """
create temp table made as
with recursive numbers (i) as (select 1 union all select i + 1 from numbers where i < :rows)
select :prefix || printf('-%09d', i) as id, 'mail#' || :prefix || (i % :keys) as gate, c.now - 3600000000 + i as at
  from numbers cross join holdfast_clock c""",
    """
insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
select id, id, 0, 'mail', '{}', 5, 0, at from made""",
    """
insert into holdfast_queue (job_id, type, priority, available_at, gate, gate_at)
select id, 'mail', 5, 253402214400000000, gate, at from made""",
    """
insert into holdfast_wakeup (type, priority, at, gate, since)
select 'mail', 5, min(at), gate, min(at) from made group by gate""",
    "drop table made",
)


class Counted:
    """A database whose work is counted in steps, which are the same on every machine."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("pragma synchronous = off")
        self.store, self.executor = SqliteStore(), SqliteExecutor(self.connection)
        self.steps = 0

    def fill(self, prefix: str, keys: int, rows: int) -> None:
        """Have jobs wait, shared out among so many keys."""
        self.connection.execute("begin immediate")
        for text in FILL:
            given = {"prefix": prefix, "keys": keys, "rows": rows}
            self.connection.execute(text, given if ":rows" in text else {})
        self.connection.execute("commit")

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the steps of a block, which is a transaction."""

        def count() -> int:
            self.steps += 1
            return 0

        self.steps = 0
        self.connection.execute("begin immediate")
        self.connection.set_progress_handler(count, 1)
        yield
        self.connection.set_progress_handler(None, 0)
        self.connection.execute("commit")

    def look(self, limit: int) -> LimitedAnswer:
        """Poll partitions once."""
        with self.counting():
            return run(self.store.jobs.claim_limited(poll_partitions(limit)), self.executor)

    def saturate(self, rows: int) -> None:
        """Have so many jobs of one key wait, and as many run as may; then one ends, and the next is let in."""
        self.fill("big", 1, rows)
        jobs = self.look(10).jobs
        assert len(jobs) == ALLOWED
        finish = Finish(
            jobs[0].id, jobs[0].token, "complete", "w", jobs[0].chain_id, gate=jobs[0].gate
        )
        with self.counting():
            run(self.store.jobs.finish([finish]), self.executor)
        assert len(self.look(10).jobs) == 1

    def close(self) -> None:
        """Give the connection up."""
        self.connection.close()


class Costs:
    """What looks cost beside a saturated key of so many jobs."""

    def __init__(self, counted: Counted, saturated: int) -> None:
        counted.saturate(saturated)
        self.next = counted.steps
        counted.connection.execute(
            "insert into holdfast_wakeup (type, priority, at, gate) values ('mail', 5, 0, 'mail#big0')"
        )
        assert counted.look(10).jobs == []
        self.full = counted.steps
        counted.fill("t", KEYS, KEYS * EACH)
        # The first poll makes the partitions.
        for _ in range(2):
            answer = counted.look(LIMIT)
            assert len(answer.jobs) == LIMIT
        self.others = counted.steps
        counted.close()


@pytest.fixture
def costs(sqlite_url: str, tmp_path: Path) -> tuple[Costs, Costs]:
    """Beside few jobs, and beside many."""
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    other = tmp_path / "other.db"
    other.write_bytes(path.read_bytes())
    return Costs(Counted(str(other)), FEW), Costs(Counted(str(path)), SATURATED)


def test_a_saturated_key_slows_no_other_and_costs_little_itself(costs: tuple[Costs, Costs]) -> None:
    few, many = costs
    print(f"beside {FEW:,} jobs {vars(few)}, beside {SATURATED:,} {vars(many)}")
    assert many.others <= 1.2 * few.others
    assert many.full <= 1.2 * few.full
    assert many.next <= 1.2 * few.next
    assert many.full < 0.2 * few.others


def test_a_line_that_is_read_as_a_whole_is_seen_in_the_steps(sqlite_url: str) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    counted = Counted(path)
    counted.connection.execute("drop index holdfast_queue_gate")
    assert Costs(counted, FEW).others > 100 * FEW
