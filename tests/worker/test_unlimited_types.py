"""Workers of types without limits pay nothing for those that have them: no statement of theirs is about partitions."""

from collections import Counter
from typing import Any, TypeVar

import psycopg
import pytest

from holdfast.storage.database import Database, Link
from holdfast.storage.operation import Op, Row, Statement
from holdfast.storage.postgres.store import PACKAGE, postgres_statements
from holdfast.storage.sql_loader import DEFAULT_SCHEMA, load_statements
from holdfast.storage.sqlite.store import sqlite_statements
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import RunningWorker, Workshop

T = TypeVar("T")

BEAT = {
    "identity_get",
    "identity_note_server",
    "lease_held",
    "lease_renew",
    "type_setting_list",
} | {"worker_put"}
REAPER = {"clock", "lease_list", "lease_reap", "lease_free", "unreadable_page", "redrive_find"}
CLAIM = {"job_claim", "job_claim_queues", "job_next_due"}
CLAIM_SQLITE = {"job_claim_poll", "job_claim_take", "job_claim_lease", "job_claim_read"}
END = {"job_complete", "job_complete_one"}
END_SQLITE = {"job_finish_end", "job_finish_held", "queue_drop", "lease_drop", "tally_add"}
PLAIN = BEAT | REAPER | CLAIM | CLAIM_SQLITE | END | END_SQLITE
"""All that a worker of plain types sends: what it sent before there were limits."""
AT_START = {"signal_route", "signal_fresh", "keep_rules"}
"""It routes the signals that were sent while no worker ran, and looks whether its types are kept as its code says."""
AFTER_SLOW_CLAIMS = {"unreadable_newer"}
"""A claim that took long may have passed over jobs that only newer workers read."""


class SentStatements:
    """A database that notes what a worker sends on its links."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.names: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> "NotingLink":
        return NotingLink(self._database.link(purpose, statement_timeout_ms), self)

    def noting(self, op: Op[T]) -> Op[T]:
        """An operation whose statements are noted."""
        try:
            statement: Statement = next(op)
            while True:
                self.names[statement.name] += 1
                rows: list[Row] = yield statement
                statement = op.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result

    def take(self) -> set[str]:
        """Return the names of what was sent since the last time."""
        found = set(self.names)
        self.names.clear()
        return found


class NotingLink:
    """See `storage.database.Link`."""

    def __init__(self, link: Link, sent: SentStatements) -> None:
        self._link, self._sent = link, sent
        self.purpose = link.purpose

    async def run(self, op: Op[T]) -> T:
        return await self._link.run(self._sent.noting(op))

    async def run_atomic(self, op: Op[T]) -> T:
        return await self._link.run_atomic(self._sent.noting(op))

    async def close(self) -> None:
        await self._link.close()


@pytest.fixture
def sent(workshop: Workshop, worker_url: str) -> SentStatements:
    """What a worker sends to a database where no job has ever waited in a partition's queue."""
    with psycopg.connect(worker_url, autocommit=True) as connection:
        connection.execute("truncate holdfast.gate, holdfast.wakeup")
    return SentStatements(workshop.database)


async def idle_for_minutes(workshop: Workshop, running: RunningWorker) -> None:
    """Let five minutes pass for a worker, with hints that find nothing."""
    for _ in range(20):
        await running.advance_to_a_beat(15)
        workshop.have_due()


async def test_a_worker_of_plain_types_sends_no_statement_about_limits(
    workshop: Workshop, sent: SentStatements
) -> None:
    workshop.handle_quick()
    running = workshop.begin(ManualClock(), database=sent, notifier=workshop.notifier, slots=2)
    await until(lambda: running.worker.counters.heartbeats > 0)
    await workshop.start("quick", count=30)
    workshop.have_due()
    await workshop.events.seen("job_completed", count=30)
    busy = sent.take()
    await idle_for_minutes(workshop, running)
    idle = sent.take()
    assert not idle & AT_START
    assert (busy | idle) - PLAIN - AT_START - AFTER_SLOW_CLAIMS == set()
    assert busy & (END | END_SQLITE)
    assert {"job_next_due", "lease_reap", "worker_put"} <= idle


async def test_a_worker_asks_for_lines_once_a_job_waits_at_a_gate(
    workshop: Workshop, sent: SentStatements
) -> None:
    workshop.handle_quick()
    running = workshop.begin(ManualClock(), database=sent, notifier=workshop.notifier, slots=2)
    await until(lambda: running.worker.counters.heartbeats > 0)
    await workshop.start("other", gate="other#a")
    await running.advance_to_a_beat(15)
    await until(lambda: sent.names["limit_queued_types"] > 0)
    await idle_for_minutes(workshop, running)
    # Once a minute, and once a second at most where hints find nothing.
    assert sent.names["limit_queued_types"] <= 22
    assert sent.names["limit_claim"] == 0


def test_only_heartbeats_and_reaps_speak_of_gates() -> None:
    postgres = postgres_statements("dollar", DEFAULT_SCHEMA)
    sqlite = sqlite_statements()

    def speaks(name: str) -> bool:
        texts = [postgres[name].text] if name in load_statements(PACKAGE) else []
        texts += [sqlite[name]] if name in sqlite else []
        return any(word in text for text in texts for word in ("gate", "wakeup", "limit_setting"))

    assert {each for each in PLAIN if speaks(each)} == {"worker_put", "lease_reap"}
