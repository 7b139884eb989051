"""Holdfast's own chains: archived with everything they consist of, removed by the archive, restored as they were."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest

from holdfast import Holdfast, Job, Permanent, Retry
from holdfast.core.instants import to_instant
from holdfast.core.records import Claim, Finish, LeaseClass, NewJob, Probe
from holdfast.core.steps import NewStep
from holdfast.settings import load_settings
from holdfast.storage.id_generator import new_id
from holdfast_archive.errors import RestoreConflict
from holdfast_archive.progress import Progress
from holdfast_archive.table_access import MEMBERS
from tests.archive.conftest import Place
from tests.support.laws import check_rows
from tests.support.until import until

ALL = tuple(MEMBERS)


def _app(place: Place) -> Holdfast:
    app = place.app

    @app.job("greet")
    async def greet(job: Job[Any]) -> Any:
        if job.input == "twice" and job.attempt == 1:
            raise ValueError("once more")
        return "done"

    @app.job("refuse")
    async def refuse(job: Job[Any]) -> None:
        raise Permanent("no")

    return app


async def _finish(place: Place, app: Holdfast) -> None:
    """Run everything that is due, however often it is retried."""
    from holdfast.worker.options import WorkerOptions

    worker = app.make_worker(WorkerOptions(stop_when_idle=True))
    await worker.run()


def _table(place: Place, name: str) -> str:
    return f"holdfast_{name}" if place.is_sqlite else f"holdfast.{name}"


def _all(place: Place) -> dict[str, list[str]]:
    return {name: place.rows(_table(place, name)) for name in ALL}


async def _ended(place: Place) -> Holdfast:
    app = _app(place)
    with app.transaction() as tx:
        first = app.start(tx, "greet", "once")
        app.start(tx, "greet", "after", blockers=[first.id])
        app.start(tx, "refuse", "never")
    await _finish(place, app)
    place.now = datetime.now(UTC) + timedelta(days=2)
    return app


async def test_the_progress_of_an_upload_counts_the_rows_of_all_its_files(place: Place) -> None:
    await _ended(place)
    place.archive.jobs()
    heard: list[Progress] = []
    place.archive.run("jobs", on_progress=heard.append)
    # Two jobs with an outcome each, and what one of them waited for.
    uploads = [(each.rows, each.total) for each in heard if each.step == "upload"]
    assert uploads == [(0, 5), (2, 5), (4, 5), (5, 5)]


async def test_ended_chains_are_archived_removed_and_restored_as_they_were(place: Place) -> None:
    await _ended(place)
    place.archive.jobs(keep="30d")
    before = _all(place)
    assert [len(before[name]) for name in ("job", "outcome", "blocker")] == [3, 3, 1]
    report = place.archive.run()
    assert (report.items, report.failed) == (3, 0)
    assert _all(place) == before
    place.later(days=31)
    place.archive.run()
    assert _all(place) == {name: [] for name in ALL}
    for manifest in place.archive.list():
        place.archive.restore(manifest.id)
    assert _all(place) == before


async def test_the_records_of_a_function_are_archived_with_it(place: Place) -> None:
    database = place.app.database
    store = database.store
    id, token = new_id(), new_id()
    lease = LeaseClass(token, 60_000, 3, 1, 1)
    probe = Probe("greet", 5, token, 1, 0, "00000000-0000-0000-0000-000000000000")
    database.run(store.jobs.insert([NewJob(id, id, "greet", "null")]))
    database.run(store.jobs.claim(Claim("w", 1, (probe,), (lease,))))
    step = NewStep(id, token, "charge", "k", 0, 1, "step", "done", output="7", arguments=-1)
    wait = NewStep(id, token, "wait", "", 1, 2, "wait", "open", signal="s", signal_key="k")
    assert len(database.run(store.steps.record([step, wait]))) == 2
    database.run(store.jobs.finish([Finish(id, token, "complete", "w", id, output="1")]))
    place.now = datetime.now(UTC) + timedelta(days=2)
    place.archive.jobs(keep="30d")
    before = _all(place)
    assert len(before["step"]) == 2
    place.archive.run()
    place.later(days=31)
    place.archive.run()
    assert _all(place) == {name: [] for name in ALL}
    for manifest in place.archive.list():
        place.archive.restore(manifest.id)
    assert _all(place) == before


async def test_a_published_event_is_archived_with_the_attempts_of_its_delivery(
    place: Place,
) -> None:
    @place.app.on("order.paid", name="mail", retry=Retry(base="1ms", cap="1ms"))
    async def mail(job: Job[Any]) -> None:
        if job.attempt < 3:
            raise ValueError("once more")

    with place.app.transaction() as tx:
        place.app.publish(tx, "order.paid", "four chairs")

    async def is_delivered() -> bool:
        await _finish(place, place.app)
        return {each.state for each in place.app.jobs.list().items} == {"completed"}

    await until(is_delivered)
    place.now = datetime.now(UTC) + timedelta(days=2)
    place.archive.jobs(keep="30d")
    before = _all(place)
    place.archive.run()
    jobs, attempts = (
        duckdb.read_parquet(f"{place.root}/*/*/{each}-*.parquet") for each in ("job", "attempt")
    )
    types = jobs.project("type").order("type").fetchall()
    assert types == [("order.paid",), ("order.paid/mail",)]
    assert attempts.project("attempt").order("attempt").fetchall() == [(1,), (2,)]
    place.later(days=31)
    place.archive.run()
    assert _all(place) == {name: [] for name in ALL}
    for manifest in place.archive.list():
        place.archive.restore(manifest.id)
    assert _all(place) == before


def _totals(app: Holdfast) -> tuple[int, int]:
    whole, _ = app.database.read(app.database.store.workers.totals(1_000))
    return whole.completed, whole.failed


async def test_totals_are_the_same_after_a_restore(place: Place) -> None:
    app = await _ended(place)
    place.archive.jobs()
    before = _totals(app)
    place.archive.run()
    place.later(days=31)
    place.archive.run()
    assert _totals(app) == (0, 0)
    for manifest in place.archive.list():
        place.archive.restore(manifest.id)
    assert _totals(app) == before == (2, 1)


async def test_what_is_removed_and_restored_keeps_the_laws_of_rows(place: Place) -> None:
    app = place.app
    with app.transaction() as tx:
        app.publish(tx, "order.paid", "four chairs")

    @app.on("order.paid", name="mail")
    async def mail(job: Job[Any]) -> None: ...

    # The event itself is not counted: it was stored before there was a subscription.
    app.subscribe_handlers()
    await _ended(place)
    place.archive.jobs(keep="30d")
    before = _totals(app)
    assert before == (3, 1)
    place.archive.run()
    place.later(days=31)
    place.archive.run()
    assert _all(place) == {name: [] for name in ALL}
    check_rows(app.database)
    for manifest in place.archive.list():
        place.archive.restore(manifest.id)
    assert _totals(app) == before
    check_rows(app.database)


async def test_a_job_that_was_redriven_is_not_restored_beside_itself(place: Place) -> None:
    app = await _ended(place)
    place.archive.jobs(keep="30d")
    place.archive.run()
    (dead,) = app.dead_letters.list().items
    with app.transaction() as tx:
        app.dead_letters.redrive(tx, dead.id)
    (manifest,) = place.archive.list("dead_letters")
    with pytest.raises(RestoreConflict, match=f"job {dead.id} was redriven"):
        place.archive.restore(manifest.id)
    assert app.jobs.get(dead.id).state == "pending"
    check_rows(app.database)


async def test_failed_chains_stay_as_long_as_dead_letters_do(place: Place) -> None:
    await _ended(place)
    place.archive._dead_letter_ms = 90 * 86_400_000
    place.archive.jobs(keep="1d")
    place.archive.run()
    place.later(days=60)
    place.archive.run()
    assert len(place.rows(_table(place, "job"))) == 1
    place.later(days=31)
    place.archive.run()
    assert place.rows(_table(place, "job")) == []


async def test_a_redriven_chain_is_not_removed_with_what_was_archived_of_it(place: Place) -> None:
    app = await _ended(place)
    place.archive.jobs(keep="1d")
    place.archive.run()
    (dead,) = app.dead_letters.list().items
    with app.transaction() as tx:
        app.dead_letters.redrive(tx, dead.id)
    place.later(days=2)
    place.archive.run()
    assert len(place.rows(_table(place, "job"))) == 1
    assert app.jobs.get(dead.id).state == "pending"


async def test_a_chain_that_a_live_job_waits_for_stays(place: Place) -> None:
    app = await _ended(place)
    place.archive.jobs(keep="1d")
    place.archive.run()
    done = next(each for each in app.jobs.list().items if each.state == "completed")
    with app.transaction() as tx:
        app.start(tx, "greet", "late", blockers=[done.chain_id], after="30d")
    place.later(days=2)
    place.archive.run()
    left = {str(each.id) for each in app.jobs.list().items}
    assert str(done.id) in left


@pytest.mark.parametrize("archives", [True, False])
async def test_retention_leaves_chains_to_the_archive(place: Place, archives: bool) -> None:
    app = await _ended(place)
    if not archives:
        # Another application of this database archives them.
        place.archive.jobs()
        place.archive.run()
    later = to_instant(place.now + timedelta(days=35))
    settings = load_settings()
    assembly = replace(app.assembly(settings), leaves_chains=archives, now=lambda: later)
    tick = assembly.tick(("retention",))
    try:
        summary = await tick.run()
    finally:
        await tick.close()
    assert summary.runner_results["retention"].processed == 0
    assert len(place.rows(_table(place, "job"))) == 3
