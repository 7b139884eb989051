"""A database made by the version before the fold is migrated with everything in it, and its jobs run on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.commands.health import read_health
from holdfast.storage.id_generator import new_id
from tests.storage.earlier import DIALECTS, Earlier, earlier_database

APP = """
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("mail.send")
def send(job: Job[str]) -> str:
    return f"sent {job.input}"

@app.job("mail.count")
def count(job: Job[str]) -> list[object]:
    return [each.output for each in job.blockers]

@app.on("order.placed", name="mail")
def placed(job: Job[int]) -> int:
    return job.input
"""

STEPS = {"holdfast.storage.postgres": 5, "holdfast.storage.sqlite": 3}
"""The migrations of that version."""


@pytest.fixture(params=DIALECTS)
def earlier(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Earlier]:
    (tmp_path / "app.py").write_text(APP)
    with earlier_database(request, monkeypatch, tmp_path, STEPS) as found:
        yield found


def fill(earlier: Earlier) -> dict[str, str]:
    """Write the rows as that version did; return the ids of the jobs."""
    ids = {name: new_id() for name in ("waiting", "lost", "blocked", "failed", "done")}
    at, token = earlier.write.long_ago, new_id()
    with earlier.connect() as tx:
        for name, id in ids.items():
            type = "mail.count" if name == "blocked" else "mail.send"
            blockers = int(name == "blocked")
            values = f"'{id}', '{id}', 0, '{type}', '\"{name}\"', 5, {blockers}, {at}"
            columns = "id, chain_id, chain_index, type, input, priority, blockers, created_at"
            earlier.insert(tx, "job", columns, values)
        queue = "job_id, type, priority, available_at, attempt, token, awaited"
        for name, rest in {
            "waiting": f"{at}, 0, null, {earlier.write.true}",
            "lost": f"{at}, 1, '{token}', {earlier.write.false}",
            "blocked": f"{earlier.write.never}, 0, null, {earlier.write.false}",
        }.items():
            type = "mail.count" if name == "blocked" else "mail.send"
            earlier.insert(tx, "queue", queue, f"'{ids[name]}', '{type}', 5, {rest}")
        earlier.insert(
            tx,
            "lease",
            "token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms,"
            " backoff_cap_ms, job_ids",
            f"'{token}', 'w-1', {at}, {at}, 60000, 25, 1, 1, {earlier.write.ids(ids['lost'])}",
        )
        edge = f"'{ids['blocked']}', 0, '{ids['waiting']}', {earlier.write.true}"
        earlier.insert(tx, "blocker", "job_id, position, chain_id, open", edge)
        outcome = "job_id, type, state, output, error, attempts, crashes, fence, finished_at"
        for name, result in {
            "failed": "'failed', null, 'SMTPError: mailbox full'",
            "done": "'completed', '\"sent done\"', null",
        }.items():
            values = f"'{ids[name]}', 'mail.send', {result}, 1, 0, 1, {at}"
            earlier.insert(tx, "outcome", outcome, values)
        attempt = f"'{ids['failed']}', 1, 1, 'fail', 'w-1', {at}, 'SMTPError: mailbox full'"
        columns = "job_id, fence, attempt, kind, worker, ended_at, error"
        earlier.insert(tx, "attempt", columns, attempt)
        key = f"'mail.send', 'order:7', '{ids['waiting']}'"
        earlier.insert(tx, "chain_key", "type, key, chain_id", key)
        subscription = f"'order.placed', 'mail', {at}"
        earlier.insert(tx, "subscription", "event, handler, created_at", subscription)
    return ids


def test_a_database_of_the_version_before_is_migrated_and_its_jobs_run_on(earlier: Earlier) -> None:
    ids = fill(earlier)
    assert "up to date" not in earlier.run("migrate", "--app", "app:app")
    earlier.run("reap")
    earlier.run("worker", "app:app", "--drain")

    jobs = {name: earlier.app.jobs.get(id) for name, id in ids.items()}
    assert {name: job.state for name, job in jobs.items()} == {
        "waiting": "completed",
        "lost": "completed",
        "blocked": "completed",
        "failed": "failed",
        "done": "completed",
    }
    assert (jobs["waiting"].output, jobs["waiting"].version) == ("sent waiting", 1)
    assert (jobs["lost"].output, jobs["lost"].crashes) == ("sent lost", 1)
    assert jobs["blocked"].output == ["sent waiting"]
    assert jobs["done"].output == "sent done"

    (dead,) = earlier.app.dead_letters.list().items
    assert (str(dead.id), dead.error) == (ids["failed"], "SMTPError: mailbox full")
    with earlier.app.transaction() as tx:
        earlier.app.dead_letters.redrive(tx, dead.id)
        (delivery,) = earlier.app.publish(tx, "order.placed", 7)
        again = earlier.app.start(tx, "mail.send", "again", key="order:7")
    assert delivery.type == "order.placed/mail"
    assert not again.deduplicated  # its chain has completed
    earlier.run("worker", "app:app", "--drain")
    assert earlier.app.chains.get(dead.id).output == "sent failed"
    assert earlier.app.chains.get(delivery.id).output == 7


def test_a_key_of_the_version_before_still_deduplicates(earlier: Earlier) -> None:
    ids = fill(earlier)
    earlier.run("migrate", "--app", "app:app")
    with earlier.app.transaction() as tx:
        again = earlier.app.start(tx, "mail.send", "again", key="order:7")
    assert (str(again.id), again.deduplicated) == (ids["waiting"], True)


def test_an_event_that_the_version_before_fanned_out_is_no_longer_sent_or_counted(
    earlier: Earlier,
) -> None:
    event, delivery, done = new_id(), new_id(), new_id()
    at, prefix = earlier.write.long_ago, earlier.write.prefix
    outputs = {event: f'{{"delivered":["{delivery}"]}}', done: '"by hand"'}
    with earlier.connect() as tx:
        for id, output in outputs.items():
            job = f"'{id}', '{id}', 0, 'order.placed', '7', 5, 0, {at}"
            columns = "id, chain_id, chain_index, type, input, priority, blockers, created_at"
            earlier.insert(tx, "job", columns, job)
            columns = "job_id, type, state, output, attempts, crashes, fence, finished_at"
            ended = f"'{id}', 'order.placed', 'completed', '{output}', 0, 0, 0, {at}"
            earlier.insert(tx, "outcome", columns, ended)
            earlier.insert(
                tx, "tally", "at, type, started, completed", f"{at}, 'order.placed', 1, 1"
            )
    earlier.app.migrate()
    with earlier.connect() as tx:
        sent = tx.execute(f"select id from {prefix}outbox where status = 'SENT'").fetchall()  # noqa: S608
        assert [str(id) for (id,) in sent] == [done]
    totals = earlier.app.database.read(read_health(earlier.app.database.store)).totals
    assert (totals.live, totals.completed) == (0, 1)
    assert earlier.app.chains.get(event).state == "completed"
