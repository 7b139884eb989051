"""Each law of an archive finds what breaks it, on both databases, and finds nothing where nothing is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from holdfast import Continue, Job, Permanent
from holdfast.cli.exit_codes import Exit
from holdfast.cli.main import cli
from holdfast.worker.options import WorkerOptions
from holdfast_archive.manifest import ArchivedObject, Manifest
from holdfast_verify.archive_laws import ARCHIVE_LAWS, check_archive, work_on
from holdfast_verify.laws import LAWS
from tests.archive.conftest import Place, place

__all__ = ["place"]

Edit = Callable[[pa.Table], pa.Table]


async def say(word: str) -> str:
    return word


async def archived(place: Place, drop: bool = False) -> None:
    """Archive a chain of two jobs, the second with a step, and one that failed; leave the rows, or not."""
    app = place.app

    @app.job("first")
    async def first(job: Job[Any]) -> Continue:
        return Continue("second", job.input)

    @app.job("second")
    async def second(job: Job[Any]) -> Any:
        return await job.step("say", say, job.input)

    @app.job("refuse")
    async def refuse(job: Job[Any]) -> None:
        raise Permanent("no")

    with app.transaction() as tx:
        app.start(tx, "first", "a")
        app.start(tx, "refuse", "b")
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    place.now = datetime.now(UTC) + timedelta(days=2)
    place.archive.jobs(keep="30d")
    assert place.archive.run().failed == 0
    if drop:
        place.later(days=60)
        place.archive.run()
        assert place.rows(table(place, "job")) == []


def id_of(place: Place, type: str) -> str:
    ((id,),) = place.execute(
        "select id::text from holdfast.job where type = ?",
        "select id from holdfast_job where type = ?",
        (type,),
    )
    found: str = id
    return found


def change(place: Place, statement: str, *params: Any) -> None:
    """Change rows of the database."""
    place.execute(statement, statement.replace("holdfast.", "holdfast_"), params)


def table(place: Place, name: str) -> str:
    return f"holdfast_{name}" if place.is_sqlite else f"holdfast.{name}"


def manifest_of(place: Place, source: str) -> Manifest:
    (found,) = place.archive.list(source)
    return found


def edit(place: Place, source: str, name: str, change: Edit) -> None:
    """Change the rows of an object, and its manifest so that the object is what it says."""
    manifest = manifest_of(place, source)
    (found,) = (each for each in manifest.objects if each.table == name)
    edited = change(pq.read_table(place.root / found.key))
    path = place.root.with_name("edited.parquet")
    pq.write_table(edited, path)
    place.files.put(found.key, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    new = ArchivedObject(name, found.key, edited.num_rows, path.stat().st_size, digest)
    objects = [new if each == found else each for each in manifest.objects]
    text = msgspec.json.encode(objects).decode()
    place.execute(
        "update holdfast.archive_manifest set objects = ?::jsonb where id = ?::uuid",
        "update holdfast_archive_manifest set objects = ? where id = ?",
        (text, manifest.id),
    )


def broken(place: Place) -> dict[str, list[tuple[str, str]]]:
    verdicts = check_archive(work_on(place.app, str(place.root)), 20)
    return {
        each.law.name: [(b.subject, b.text) for b in each.breaches]
        for each in verdicts
        if each.breaches
    }


def with_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values.cast(rows.schema.field(at).type))


@pytest.mark.parametrize("drop", [False, True], ids=["kept", "dropped"])
async def test_an_archive_that_nothing_happened_to_keeps_all_laws(place: Place, drop: bool) -> None:
    await archived(place, drop)
    assert broken(place) == {}


async def test_a_failed_chain_that_went_on_since_breaks_nothing(place: Place) -> None:
    await archived(place)
    ((id,),) = place.execute(
        "select job_id::text from holdfast.outcome where state = 'failed'",
        "select job_id from holdfast_outcome where state = 'failed'",
    )
    database = place.app.database
    assert database.run(database.store.jobs.redrive([id]))
    await place.app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    assert broken(place) == {}


async def test_a_failed_chain_that_was_redriven_and_cancelled_breaks_nothing(place: Place) -> None:
    await archived(place)
    app, id = place.app, id_of(place, "refuse")
    with app.transaction() as tx:
        app.dead_letters.redrive(tx, id)
    assert broken(place) == {}
    with app.transaction() as tx:
        app.jobs.cancel(tx, id)
    assert broken(place) == {}


async def test_the_older_end_of_a_chain_that_was_archived_twice_can_be_restored(
    place: Place,
) -> None:
    await archived(place)
    app, id = place.app, id_of(place, "refuse")
    with app.transaction() as tx:
        app.dead_letters.redrive(tx, id)
    with app.transaction() as tx:
        app.jobs.cancel(tx, id)
    place.later(days=2)
    place.archive.run()
    assert broken(place) == {}
    place.later(days=60)
    place.archive.run()
    assert place.rows(table(place, "job")) == []
    place.archive.restore(manifest_of(place, "dead_letters").id)
    assert app.jobs.get(id).state == "failed"
    assert broken(place) == {}


async def test_a_damaged_object_is_named(place: Place) -> None:
    await archived(place)
    manifest = manifest_of(place, "jobs")
    path = place.object_path(manifest)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    found = broken(place)
    assert found.keys() == {"archive-intact"}
    ((subject, text),) = found["archive-intact"]
    assert subject == manifest.objects[0].key
    assert text.startswith("it has the SHA-256 ")


async def test_an_object_that_is_gone_is_named(place: Place) -> None:
    await archived(place, drop=True)
    manifest = manifest_of(place, "dead_letters")
    place.object_path(manifest).unlink()
    key = manifest.objects[0].key
    assert broken(place) == {"archive-intact": [(key, "it is missing")]}


async def test_a_chain_that_lost_its_first_job_has_a_gap(place: Place) -> None:
    await archived(place, drop=True)

    def cut(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.field("chain_index").cast(pa.int64()) > 0)

    edit(place, "jobs", "job", cut)
    assert broken(place).keys() == {"archive-chains", "archive-whole"}


async def test_a_place_that_archive_and_database_fill_differently_is_a_fork(place: Place) -> None:
    await archived(place)
    place.execute(
        "update holdfast.job set chain_index = 2 where chain_index = 1",
        "update holdfast_job set chain_index = 2 where chain_index = 1",
    )
    found = broken(place)
    assert found.keys() == {"archive-chains", "archive-agrees"}
    assert "chain_index" in found["archive-agrees"][0][1]


async def test_an_attempt_with_a_higher_fence_is_named(place: Place) -> None:
    await archived(place, drop=True)

    def raise_fence(rows: pa.Table) -> pa.Table:
        fences = pc.add(rows["fence"].cast(pa.int64()), 1).combine_chunks()
        return with_column(rows, "fence", fences)

    edit(place, "dead_letters", "attempt", raise_fence)
    found = broken(place)
    assert found.keys() == {"archive-fences"}
    assert "a row of attempt has the fence" in found["archive-fences"][0][1]


async def test_rows_without_their_job_and_jobs_without_an_end_are_torn(place: Place) -> None:
    await archived(place, drop=True)
    edit(place, "jobs", "outcome", lambda rows: rows.slice(1))
    found = broken(place)
    assert found.keys() == {"archive-whole"}
    assert found["archive-whole"][0][1].endswith("it has no outcome")


async def test_a_job_that_was_changed_in_the_database_disagrees(place: Place) -> None:
    await archived(place)
    place.execute(
        "update holdfast.job set key = 'other' where type = 'second'",
        "update holdfast_job set key = 'other' where type = 'second'",
    )
    found = broken(place)
    assert found.keys() == {"archive-agrees"}
    assert found["archive-agrees"][0][1].endswith("has other values than the archive: key")


@pytest.mark.parametrize("type", ["second", "refuse"])
@pytest.mark.parametrize("by", [1, -1])
async def test_the_end_of_a_job_under_another_fence_disagrees(
    place: Place, type: str, by: int
) -> None:
    await archived(place)
    change(place, "update holdfast.outcome set fence = fence + ? where type = ?", by, type)
    text = "outcome has other values than the archive: fence"
    assert broken(place) == {"archive-agrees": [(id_of(place, type), text)]}


async def test_a_step_and_an_attempt_that_were_changed_disagree(place: Place) -> None:
    await archived(place)
    change(place, "update holdfast.step set output = '7'")
    change(place, "update holdfast.attempt set error = 'none'")
    refused = (id_of(place, "refuse"), "attempt 1 has other values than the archive: error")
    said = id_of(place, "second")
    found = broken(place)
    assert found.keys() == {"archive-agrees"}
    assert sorted(found["archive-agrees"]) == sorted(
        [refused, (said, "step say has other values than the archive: output")]
    )
    change(place, "delete from holdfast.step")
    assert (said, "step say is in the archive only") in broken(place)["archive-agrees"]


async def test_what_belongs_to_a_job_that_was_redriven_since_is_not_compared(place: Place) -> None:
    await archived(place)
    app, id = place.app, id_of(place, "refuse")
    with app.transaction() as tx:
        app.dead_letters.redrive(tx, id)
    change(place, "update holdfast.attempt set error = 'none'")
    change(place, "update holdfast.job set input = '7' where id = ?", id)
    assert broken(place) == {}
    change(place, "update holdfast.job set key = 'other' where id = ?", id)
    assert broken(place) == {"archive-agrees": [(id, "job has other values than the archive: key")]}


async def test_more_rows_than_the_limit_are_said_to_be_more(place: Place) -> None:
    await archived(place)
    change(place, "update holdfast.job set key = 'other'")
    for limit, is_more in ((2, True), (3, False)):
        verdicts = check_archive(work_on(place.app, str(place.root)), limit)
        found = {each.law.name: each for each in verdicts}
        assert len(found["archive-agrees"].breaches) == limit
        assert found["archive-agrees"].has_more is is_more
        assert not found["archive-whole"].has_more


async def ask(place: Place, *words: str) -> Result:
    command = ["verify", "--url", place.url, *words]
    return await asyncio.to_thread(CliRunner().invoke, cli, command)


async def test_the_command_reads_the_archive_when_it_is_asked_to(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(place)
    count = len(LAWS) + len(ARCHIVE_LAWS)
    answer = await ask(place, "--archive", str(place.root))
    assert (answer.exit_code, answer.stderr.splitlines()[-1]) == (Exit.OK, f"all {count} laws hold")
    monkeypatch.setenv("HOLDFAST_ARCHIVE", str(place.root))
    answer = await ask(place, "--archive")
    assert answer.stderr.splitlines()[-1] == f"all {count} laws hold"


async def test_the_command_names_what_is_wrong_with_the_archive(place: Place) -> None:
    await archived(place)
    manifest = manifest_of(place, "jobs")
    place.object_path(manifest).unlink()
    answer = await ask(place, "--archive", str(place.root), "-o", "json")
    assert answer.exit_code == Exit.CHECK_NOT_MET
    laws = {each["law"]: each["breaches"] for each in json.loads(answer.stdout)}
    assert [each["subject"] for each in laws["archive-intact"]] == [manifest.objects[0].key]


async def test_an_archive_that_is_nowhere_named_is_an_error(place: Place) -> None:
    answer = await ask(place, "--archive")
    assert answer.exit_code == Exit.USAGE
    assert "HF114" in answer.stderr


async def test_rows_of_other_tables_are_only_compared_with_their_manifest(place: Place) -> None:
    place.archive.table("deliveries", key="id", at="completed_at")
    place.fill([(1, "a", datetime(2026, 9, 1, tzinfo=UTC))])
    assert place.archive.run().failed == 0
    assert broken(place) == {}
    place.object_path(manifest_of(place, "deliveries")).write_bytes(b"")
    assert broken(place).keys() == {"archive-intact"}


async def test_without_the_package_of_the_archive_the_command_says_what_to_install(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "holdfast_verify.archive_laws")
    monkeypatch.setitem(sys.modules, "holdfast_archive.engine", None)
    answer = await ask(place, "--archive", str(place.root))
    assert answer.exit_code == Exit.USAGE
    assert 'pip install "holdfast-jobs[archive]"' in answer.stderr
