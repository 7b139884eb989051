"""The steps that only SQLite takes, and what people read in its views."""

import sqlite3
from collections.abc import Mapping

import pytest

from holdfast.core.records import Claim, LeaseClass, Probe
from holdfast.storage.id_generator import new_id
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.tally import glob_of
from holdfast.storage.store.pagination import JobQuery
from tests.storage.sqlite.scene import MAIL, claim_of, finish_of, new_job

NOW = 1_700_000_000_000_000
SECOND = 1_000_000


def test_a_claim_takes_the_most_urgent_and_then_the_oldest(database: SqliteDatabase) -> None:
    jobs = database.store.jobs
    later = new_job(at=NOW + SECOND)
    urgent, plain, old = new_job(priority=1), new_job(), new_job("other")
    database.run(jobs.insert([old], now=NOW - SECOND))
    database.run(jobs.insert([later, plain, urgent], now=NOW))
    token = new_id()
    probes = [
        Probe(type, priority, token, 10, 0, "")
        for type in (MAIL, "other")
        for priority in range(10)
    ]
    claim = Claim("w", 10, tuple(probes), (LeaseClass(token, 60_000, 3, 1000, 60_000),))
    claimed = database.run(jobs.claim(claim, now=NOW))
    assert [each.id for each in claimed] == [urgent.id, old.id, plain.id]
    assert {each.attempt for each in claimed} == {1}
    assert {each.fence for each in claimed} == {NOW // 1000}


def test_a_claim_begins_after_its_mark_and_ends_at_its_limit(database: SqliteDatabase) -> None:
    jobs = database.store.jobs
    rows = sorted((new_job() for _ in range(5)), key=lambda job: job.id)
    database.run(jobs.insert(rows, now=NOW))
    token = new_id()
    mark = Probe(MAIL, 5, token, 10, NOW, rows[1].id)
    claim = Claim("w", 2, (mark,), (LeaseClass(token, 60_000, 3, 1000, 60_000),))
    claimed = database.run(jobs.claim(claim, now=NOW))
    assert [each.id for each in claimed] == [rows[2].id, rows[3].id]


def test_a_claim_of_more_than_one_text_keeps_its_order_and_every_character(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.storage.sqlite.jobs.READ_AT_ONCE", 2)
    jobs, odd = database.store.jobs, '{"a":"\\"\\\\\\u0001 \\ud83d\\ude00 \U0001f600 é <b>"}'
    rows = sorted((new_job(input=odd) for _ in range(5)), key=lambda job: job.id)
    database.run(jobs.insert(rows, now=NOW))
    claimed = database.run(jobs.claim(claim_of(), now=NOW))
    assert [each.id for each in claimed] == [each.id for each in rows]
    assert {each.input for each in claimed} == {odd}


def test_two_finishes_of_one_job_are_told_apart_by_their_tokens(database: SqliteDatabase) -> None:
    jobs, job = database.store.jobs, new_job()
    database.run(jobs.insert([job], now=NOW))
    (lost,) = database.run(jobs.claim(claim_of(), now=NOW))
    database.run(database.store.leases.reap(10, 3, now=NOW + 61 * SECOND))
    (held,) = database.run(jobs.claim(claim_of(), now=NOW + 120 * SECOND))
    both = [
        finish_of(lost, "retry", error="late"),
        finish_of(lost, "complete", output='"late"'),
        finish_of(held, "complete", output='"right"'),
    ]
    assert [done.id for done in database.run(jobs.finish(both))] == [job.id]
    (record,) = database.read(jobs.get([job.id]))
    assert (record.state, record.output, record.fence) == ("completed", '"right"', held.fence)
    assert [each.kind for each in database.read(database.store.attempts.of(job.id))] == ["reap"]


def test_a_reaped_job_waits_for_its_backoff_and_fails_when_poisoned(
    database: SqliteDatabase,
) -> None:
    store, job, now = database.store, new_job(), NOW
    database.run(store.jobs.insert([job], now=now))
    for crashes in (1, 2, 3):
        (claimed,) = database.run(store.jobs.claim(claim_of(), now=now))
        assert (claimed.crashes, claimed.attempt) == (crashes - 1, crashes)
        assert database.run(store.leases.isolate(claimed.token))
        now += 60 * SECOND
        page = database.run(store.leases.reap(10, 3, now=now))
        now += 2 * SECOND
    assert [(each.state, each.crashes) for each in page.reaped] == [("failed", 3)]
    (record,) = database.read(store.jobs.get([job.id]))
    assert (record.state, record.fingerprint) == ("failed", "worker-died")
    totals, _ = database.read(store.workers.totals(10, now=now))
    assert (totals.live, totals.failed, totals.running) == (0, 1, 0)


def test_folding_keeps_the_sums_of_the_tally(database: SqliteDatabase) -> None:
    store = database.store
    for second in range(5):
        database.run(store.jobs.insert([new_job()], now=NOW + second * SECOND))
    later = NOW + 600 * SECOND
    before = database.read(store.workers.type_totals(now=later))
    database.run(store.workers.fold_tally(3, now=later))
    database.run(store.workers.fold_tally(100, now=later))
    with database.transaction() as transaction:
        rows: Mapping[str, int] = dict(
            transaction.execute("select type, count(*) from holdfast_tally group by type")
        )
    # One for each batch: what was folded once is not folded again.
    assert rows == {MAIL: 2}
    assert database.read(store.workers.type_totals(now=later)) == before


def test_patterns_of_types_tell_upper_from_lower_case(database: SqliteDatabase) -> None:
    jobs = database.store.jobs
    named = [new_job(type) for type in ("Order.paid", "order.paid", "order%paid", "order*paid")]
    database.run(jobs.insert(named))

    def found(pattern: str) -> set[str]:
        page = database.read(jobs.page(JobQuery(type_like=pattern)))
        return {each.type for each in page}

    assert found("order.%") == {"order.paid"}
    assert found("order_paid") == {"order.paid", "order%paid", "order*paid"}
    assert found(r"order\%paid") == {"order%paid"}
    assert found("order*%") == {"order*paid"}


@pytest.mark.parametrize(
    ("like", "glob"),
    [("a%", "a*"), ("_b", "?b"), (r"\_\%", "_%"), ("[a]*?", "[[]a][*][?]"), ("\\", "\\")],
)
def test_a_like_pattern_becomes_a_glob(like: str, glob: str) -> None:
    assert glob_of(like) == glob


def test_people_read_instants_as_text(database: SqliteDatabase) -> None:
    database.run(database.store.jobs.insert([new_job()], now=NOW))
    with database.transaction() as transaction:
        transaction.connection.row_factory = sqlite3.Row
        (row,) = transaction.execute("select * from holdfast_outbox").fetchall()
        transaction.connection.row_factory = None
    assert (row["status"], row["created_at"]) == ("PENDING", "2023-11-14T22:13:20.000Z")


def test_the_clock_agrees_with_the_system(database: SqliteDatabase) -> None:
    first = database.read(database.store.schema.clock())
    made = int(new_id().replace("-", "")[:12], 16) * 1000
    assert first - 2000 <= made <= database.read(database.store.schema.clock()) + 2000
