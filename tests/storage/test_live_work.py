"""Live work of every kind ends as it should after the migration that gave it columns, whichever version wrote it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Job, Limit, Ordered
from holdfast.storage.id_generator import new_id
from tests.storage.earlier import DIALECTS, Earlier, earlier_database

APP = """
from pathlib import Path

from holdfast import Holdfast, Job, Limit, Ordered

app = Holdfast()

def note(job: Job[dict]) -> str:
    with Path("ran.txt").open("a") as file:
        file.write(job.input["name"] + "\\n")
    return job.input["name"]

@app.job("mail.send")
def send(job: Job[dict]) -> str:
    return note(job)

@app.job("file.convert", limits=[Limit(1, by="tenant")])
def convert(job: Job[dict]) -> str:
    return note(job)

@app.job("hook.deliver", ordered=Ordered(by="customer"))
def deliver(job: Job[dict]) -> str:
    if job.input["name"] == "first" and job.attempt == 1:
        raise ConnectionError("their server is away")
    return note(job)
"""

STEPS = {"holdfast.storage.postgres": 18, "holdfast.storage.sqlite": 13}
"""The migrations of the version before the columns."""

CONVERT, ACME, TINY = "file.convert#acme", "hook.deliver#acme", "hook.deliver#tiny"

SENTINELS = {
    "earlier.": "select count(*) from earlier.queue where token is null and (rests_until = '-infinity'"
    " or (available_at > '9000-01-01' and available_at < 'infinity') or (gate_at is null) = (available_at is null))",
    "holdfast_": "select count(*) from holdfast_queue where token is null and (rests_until = 0"
    " or available_at = 253402214400000000 or (gate_at is null) = (available_at is null))",
}
"""Counts the waiting jobs of which a value says what a column should."""


class Writer:
    """Writes rows as the version before did, in one transaction."""

    def __init__(self, earlier: Earlier, tx: Any) -> None:
        self._earlier = earlier
        self._tx = tx
        self.write = earlier.write
        self.ids: dict[str, str] = {}

    def job(self, name: str, type: str, blockers: int = 0, planned_at: str = "null") -> str:
        """Write a job, and nothing that is live."""
        id = self.ids[name] = new_id()
        input = f'{{"name":"{name}","tenant":"acme","customer":"acme"}}'
        self._insert(
            "job",
            "id, chain_id, chain_index, type, input, priority, blockers, planned_at, created_at",
            f"'{id}', '{id}', 0, '{type}', '{input}', 5, {blockers}, {planned_at}, {self.write.long_ago}",
        )
        return id

    def live(self, name: str, type: str, available_at: str, **values: Any) -> str:
        """Write a job that waits or runs."""
        blockers = values.pop("blockers", 0)
        id = self.job(name, type, blockers, values.pop("planned_at", "null"))
        columns = ", ".join(["job_id", "type", "priority", "available_at", *values])
        given = ", ".join([f"'{id}'", f"'{type}'", "5", available_at, *values.values()])
        self._insert("queue", columns, given)
        return id

    def in_line(self, name: str, gate: str, ordered: bool = False, **values: Any) -> str:
        """Write a job that waits in a partition's queue, and have the partition polled."""
        type = gate.partition("#")[0]
        rest = {"rests_until": self.write.no_rest} if ordered else {}
        place = {"gate": f"'{gate}'", "gate_at": self.write.long_ago}
        id = self.live(name, type, self.write.in_line, **{**place, **rest, **values})
        at = self.write.long_ago
        self._insert(
            "wakeup", "type, priority, at, gate, since", f"'{type}', 5, {at}, '{gate}', {at}"
        )
        return id

    def failed(self, name: str, type: str, blockers: int = 0, gate: str | None = None) -> str:
        """Write a job that failed, with its place if its line is ordered."""
        id = self.job(name, type, blockers)
        place = f"'{gate}', {self.write.long_ago}" if gate else "null, null"
        self._insert(
            "outcome",
            "job_id, type, state, error, attempts, crashes, fence, finished_at, gate, gate_at",
            f"'{id}', '{type}', 'failed', 'it broke', 1, 0, 1, {self.write.long_ago}, {place}",
        )
        return id

    def revise(self, id: str, name: str) -> None:
        """Write what a debounced job was last asked for with."""
        self._insert(
            "revision",
            "job_id, input, at, quiet_ms",
            f"'{id}', '{{\"name\":\"{name}\"}}', {self.write.long_ago}, 1000",
        )

    def hold(self, id: str, token: str, gate: str) -> None:
        """Write the lease of a worker that died, and the partition that let its job through."""
        at, ids = self.write.long_ago, self.write.ids(id)
        self._insert(
            "lease",
            "token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms, backoff_cap_ms, job_ids",
            f"'{token}', 'w-1', {at}, {at}, 60000, 25, 1, 1, {ids}",
        )
        self.admit(id, gate)

    def admit(self, id: str, gate: str) -> None:
        """Write a partition that has let a job through."""
        if self.write.prefix == "holdfast_":
            columns, turn = "id, mask, holders", ""
        else:
            columns, turn = "id, turn, mask, holders", "1, "
            self._insert("gate", "id, turn", f"'{gate}', 0")
        self._insert("gate", columns, f"'{gate}', {turn}32, {self.write.ids(id)}")

    def wait_for(self, id: str, chain_id: str) -> None:
        """Write that a job waits for a chain."""
        self._insert(
            "blocker",
            "job_id, position, chain_id, open",
            f"'{id}', 0, '{chain_id}', {self.write.true}",
        )

    def _insert(self, table: str, columns: str, values: str) -> None:
        self._earlier.insert(self._tx, table, columns, values)


def fill(earlier: Earlier) -> dict[str, str]:
    """Write live work of every kind as the version before did; return the ids of the jobs."""
    with earlier.connect() as tx:
        rows = Writer(earlier, tx)
        write = rows.write
        rows.live("delayed", "mail.send", write.later, planned_at=write.later)
        asked = rows.live(
            "asked once", "mail.send", write.long_ago, blockers=-1, awaited=write.true
        )
        rows.revise(asked, "asked again")
        dead = rows.failed("failed once", "mail.send", blockers=-1)
        rows.revise(dead, "failed and asked again")

        token = new_id()
        lost = rows.in_line("lost", CONVERT, token=f"'{token}'", attempt="1")
        rows.hold(lost, token, CONVERT)
        rows.in_line("limited", CONVERT)
        last = rows.live("blocked", "file.convert", write.never, gate=f"'{CONVERT}'", blockers=1)
        rows.wait_for(last, asked)

        rows.in_line("first", ACME, ordered=True)
        rows.in_line("second", ACME, ordered=True)
        held = rows.failed("held", "hook.deliver", gate=TINY)
        rows.admit(held, TINY)
        rows.in_line("behind", TINY, ordered=True)
    return rows.ids


@pytest.fixture(params=DIALECTS)
def earlier(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Earlier]:
    (tmp_path / "app.py").write_text(APP)
    with earlier_database(request, monkeypatch, tmp_path, STEPS) as found:
        yield found


def work(earlier: Earlier) -> list[str]:
    """Run what is due, and return the names of the jobs that ran so far, in their order."""
    earlier.run("worker", "app:app", "--drain", "--slots", "1")
    return (earlier.folder / "ran.txt").read_text().split("\n")[:-1]


def ends_as_it_should(earlier: Earlier, ids: dict[str, str]) -> None:
    """Follow work of every kind to its end."""
    states = {name: earlier.app.jobs.get(id).state for name, id in ids.items()}
    assert states == {
        **dict.fromkeys(("delayed", "asked once", "limited", "first"), "pending"),
        **dict.fromkeys(("second", "behind"), "pending"),
        **dict.fromkeys(("failed once", "held"), "failed"),
        "lost": "running",
        "blocked": "blocked",
    }
    earlier.run("reap")
    ran = work(earlier)
    assert sorted(ran) == ["asked again", "blocked", "limited", "lost"]
    assert earlier.app.jobs.get(ids["first"]).attempt == 1

    again = [ids[name] for name in ("failed once", "held")]
    with earlier.app.transaction() as tx:
        assert earlier.app.jobs.trigger(tx, ids["delayed"], ids["first"]) == 2
        assert earlier.app.dead_letters.redrive(tx, *again) == 2
    ran = work(earlier)[len(ran) :]
    assert sorted(ran) == sorted(
        ["delayed", "failed and asked again", "first", "second", "held", "behind"]
    )
    assert ran.index("first") < ran.index("second")
    assert ran.index("held") < ran.index("behind")
    assert {earlier.app.jobs.get(id).state for id in ids.values()} == {"completed"}


def ignore(job: Job[dict[str, str]]) -> None:
    """Do nothing."""


def count(earlier: Earlier, text: str) -> int:
    """Ask the database for a number."""
    with earlier.connect() as tx:
        return int(tx.execute(text).fetchone()[0])


def test_live_work_of_every_kind_ends_as_it_should_after_the_migration(earlier: Earlier) -> None:
    ids = fill(earlier)
    earlier.run("migrate", "--app", "app:app")
    assert count(earlier, SENTINELS[earlier.write.prefix]) == 0
    debounced = f"select count(*) from {earlier.write.prefix}job where debounced"  # noqa: S608
    ordered = f"select count(*) from {earlier.write.prefix}queue where ordered"  # noqa: S608
    assert (count(earlier, debounced), count(earlier, ordered)) == (2, 3)
    ends_as_it_should(earlier, ids)


def test_what_the_version_before_writes_into_the_new_schema_ends_as_it_should(
    earlier: Earlier,
) -> None:
    earlier.run("migrate", "--app", "app:app")
    ends_as_it_should(earlier, fill(earlier))


def test_the_version_before_finds_in_new_rows_what_it_looks_for(earlier: Earlier) -> None:
    earlier.run("migrate", "--app", "app:app")
    app = earlier.app
    app.job("file.convert", limits=[Limit(1, by="tenant")])(ignore)
    app.job("hook.deliver", ordered=Ordered(by="customer"))(ignore)
    with app.transaction() as tx:
        app.start(tx, "mail.send", {"name": "quiet"}, key="a", debounce="30s")
        app.start(tx, "file.convert", {"tenant": "acme"})
        app.start(tx, "hook.deliver", {"customer": "acme"})
    prefix = earlier.write.prefix
    placed = (
        f"select count(*) from {prefix}queue where rests_until is not null and gate_at is not null"  # noqa: S608
    )
    claimable = f"select count(*) from {prefix}queue where available_at <= {earlier.write.later}"  # noqa: S608
    assert (count(earlier, placed), count(earlier, claimable)) == (1, 1)
    assert count(earlier, SENTINELS[prefix]) == 0


@pytest.mark.parametrize("earlier", ["postgres_url"], indirect=True)
def test_a_long_line_is_changed_in_batches_so_that_no_job_is_locked_for_long(
    earlier: Earlier,
) -> None:
    with earlier.connect() as tx:
        tx.execute(
            "insert into earlier.queue (job_id, type, priority, available_at, gate, gate_at)"
            " select gen_random_uuid(), 'file.convert', 5, '9999-12-31 00:00:00+00', 'file.convert#' || i, now()"
            "   from generate_series(1, 20001) i"
        )
    earlier.app.migrate()
    assert count(earlier, SENTINELS[earlier.write.prefix]) == 0
    # Each row bears the transaction that wrote it.
    assert count(earlier, "select count(distinct xmin::text) from earlier.queue") == 3
