"""One sentence sums the queue up, the worst first."""

from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.commands.health import Health, read_health, summarize
from holdfast.commands.workers import pause_type
from holdfast.core.records import Identity, TypeSetting
from holdfast.core.statistics import QueueTotals
from tests.conformance.workers import SIGN

NOW = 1_800_000_000_000_000
QUIET = QueueTotals(
    live=0,
    blocked=0,
    running=0,
    due=0,
    oldest_due_at=None,
    stuck=0,
    completed=0,
    failed=0,
    cancelled=0,
    bounded=False,
)


PAUSED = [TypeSetting("mail.send", True, "ana", NOW), TypeSetting("pdf", True)]


def health(totals: dict[str, Any] | None = None, **fields: Any) -> Health:
    quiet = Health(
        now=NOW,
        totals=msgspec.structs.replace(QUIET, **totals or {}),
        types=(),
        workers=1,
        slots=4,
        silent=0,
        unhandled=(),
        identity=None,
    )
    return msgspec.structs.replace(quiet, **fields)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (health(), "Healthy: nothing to do"),
        (health({"running": 1}), "Healthy: jobs are running"),
        (health({"failed": 1}), "Healthy, with 1 dead letter"),
        (health({"failed": 2}), "Healthy, with 2 dead letters"),
        (health(paused=PAUSED[:1]), "Healthy: nothing to do; mail.send is paused"),
        (health({"failed": 1}, paused=PAUSED), "Healthy, with 1 dead letter; 2 types are paused"),
        (
            health({"due": 1, "oldest_due_at": NOW - 61_000_000}, paused=PAUSED[:1]),
            "Behind: the oldest due job has waited 1 min; mail.send is paused",
        ),
        (health(unreadable=1), "1 job is waiting for code that can read its input or records"),
        (
            health(unreadable=1_200),
            "1,200 jobs are waiting for code that can read their input or records",
        ),
        (health(workers=0), "No live workers; nothing is due"),
        (health({"due": 1}, workers=0), "No live workers; 1 job is due"),
        (
            health({"due": 1, "oldest_due_at": NOW - 61_000_000}),
            "Behind: the oldest due job has waited 1 min",
        ),
        (
            health({"due": 1}, unhandled=["resize"]),
            "No live worker handles resize, and jobs are due",
        ),
        (
            health({"due": 1, "oldest_due_at": NOW - 61_000_000}, workers=6, short=2),
            "2 of 6 workers are short of database connections; see holdfast doctor",
        ),
        (health({"stuck": 3}, unhandled=["resize"]), "3 jobs are stuck on expired leases"),
        (
            health({"stuck": 3}, identity=Identity("i", "d", "d", True, "ana", NOW)),
            "Everything is paused by ana",
        ),
    ],
)
def test_the_worst_is_said_first(found: Health, sentence: str) -> None:
    assert summarize(found) == sentence


def test_what_is_neither_due_nor_held_comes_later() -> None:
    assert health({"live": 10, "blocked": 1, "running": 2, "due": 3}).later == 4
    assert health({"live": 1, "due": 3}).later == 0


def test_a_count_that_stopped_is_told_as_a_lower_bound() -> None:
    found = health({"live": 90_000, "due": 10_000, "bounded": True}, workers=0)
    assert summarize(found) == "No live workers; 10,000+ jobs are due"
    assert (found.words()["due"], found.words()["later"]) == ("10,000+", "unknown")
    # What was not counted may be due or not: it is not said to come later.
    assert (found.figures()["bounded"], found.figures()["later"]) == (True, None)


@pytest.mark.parametrize("url", ["sqlite_url", "postgres_url"])
def test_a_worker_counts_however_many_came_and_went_after_it(
    url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("health", "workers"):
        monkeypatch.setattr(f"holdfast.commands.{module}.MAX_WORKERS", 2)
    app = Holdfast(request.getfixturevalue(url))
    app.migrate()
    app.declare("mail")
    database, workers = app.database, app.database.store.workers
    for number in range(4):
        types = '["report"]' if number else SIGN.types
        sign = msgspec.structs.replace(SIGN, id=f"worker-{number}", types=types)
        database.run(workers.sign(sign))
        if number:
            database.run(workers.stop(f"worker-{number}", "{}"))
    database.run(pause_type(database.store, "mail", False, None))
    with app.transaction() as tx:
        app.start(tx, "mail")
    found = database.read(read_health(database.store))
    assert (found.workers, found.slots, found.silent, found.unhandled) == (1, SIGN.slots, 0, [])
    app.close()
