"""The log is kept for as long as readers need it, and then for a while; its partitions come and go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast_streams.log_partitions import PartitionDdl
from holdfast_streams.log_upkeep import LogUpkeep, is_over
from holdfast_streams.reader_store import READERS, LogPart
from tests.streams.later import later
from tests.streams.scene import Scene

HOUR = 3_600_000_000


def upkeep(scene: Scene, hours_later: int = 0) -> LogUpkeep:
    """The upkeep of a process, as it would be so much later."""
    context = later(scene, timedelta(hours=hours_later))
    return LogUpkeep(scene.app, 24, 6, context)


def events(scene: Scene) -> int:
    table = "holdfast.log" if scene.is_postgres else "holdfast_log"
    with scene.app.transaction() as tx:
        row: Any = tx.execute(f"select count(*) from {table}").fetchone()  # noqa: S608
        return int(row[0])


def pass_all(scene: Scene, reader: str) -> None:
    scene.app.database.run(READERS.rewind(reader, None))


async def test_events_are_removed_once_they_are_old_and_every_reader_has_passed(
    scene: Scene,
) -> None:
    for name in ("fast", "slow"):
        scene.app.database.run(READERS.register(name, "consumer", ["order.*"], None))
    await upkeep(scene).run()
    scene.publish(*range(20))
    pass_all(scene, "fast")
    await upkeep(scene, hours_later=60).run()
    assert events(scene) == 20
    pass_all(scene, "slow")
    await upkeep(scene).run()
    assert events(scene) == 20
    for hours in (60, 120):
        await upkeep(scene, hours_later=hours).run()
    assert events(scene) == 0
    await scene.app.aclose()


def parts(scene: Scene) -> list[int]:
    return [each.part for each in scene.app.database.read(READERS.parts())]


def attached(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select inhrelid::regclass::text from pg_inherits where inhparent = 'holdfast.log'::regclass"
        ).fetchall()
        return {row[0] for row in rows}


async def test_the_log_goes_on_in_new_parts_and_old_ones_are_dropped_whole(
    postgres_url: str,
) -> None:
    scene = Scene(postgres_url)
    scene.app.database.run(READERS.register("revenue", "consumer", ["order.*"], None))
    await upkeep(scene).run()
    scene.publish(1, 2, 3)
    await upkeep(scene, hours_later=7).run()
    scene.publish(4, 5)
    first, second = parts(scene)[-2:]
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("select part, count(*) from holdfast.log group by 1 order by 1")
        assert rows.fetchall() == [(first, 3), (second, 2)]
    assert sum(each.lag for each in scene.lines("revenue")) == 5
    pass_all(scene, "revenue")
    await upkeep(scene, hours_later=60).run()
    await upkeep(scene, hours_later=120).run()
    assert first not in parts(scene)
    assert f"holdfast.log_{first}" not in attached(postgres_url)
    assert events(scene) == 0
    assert scene.told("log_trimmed")
    await scene.app.aclose()


async def test_a_publisher_that_was_open_when_a_part_began_goes_on_in_the_one_before(
    postgres_url: str,
) -> None:
    scene = Scene(postgres_url)
    scene.app.database.run(READERS.register("revenue", "consumer", ["order.*"], None))
    before = parts(scene)
    with scene.app.transaction() as tx:
        for n in range(9):  # so often that the statement is prepared, and looks nothing up
            scene.app.publish(tx, "order.paid", {"n": n})
        await upkeep(scene, hours_later=7).run()
        scene.app.publish(tx, "order.paid", {"n": 9})
    scene.publish(10)
    assert len(parts(scene)) == len(before) + 1
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("select part, count(*) from holdfast.log group by 1 order by 1")
        assert rows.fetchall() == [(before[-1], 10), (parts(scene)[-1], 1)]
    await scene.app.aclose()


async def test_a_part_is_begun_and_removed_beside_a_publisher_that_is_open(
    postgres_url: str,
) -> None:
    scene = Scene(postgres_url)
    scene.app.database.run(READERS.register("revenue", "consumer", ["order.*"], None))
    await upkeep(scene).run()
    before = parts(scene)
    with psycopg.connect(postgres_url, autocommit=True) as publisher:
        publisher.execute("begin")
        scene.app.publish(publisher, "order.paid", {"n": 1}, key="a")
        await upkeep(scene, hours_later=100).run()
        assert len(parts(scene)) == len(before) + 1
        scene.publish(2, key="a")
        publisher.execute("commit")
    assert sum(each.lag for each in scene.lines("revenue")) == 2
    await scene.app.aclose()


@pytest.mark.parametrize("has_dropped", [False, True], ids=["attached", "check dropped"])
async def test_a_part_whose_beginning_was_interrupted_is_begun_the_next_time(
    postgres_url: str, has_dropped: bool
) -> None:
    scene = Scene(postgres_url)
    scene.app.database.run(READERS.register("revenue", "consumer", ["order.*"], None))
    await upkeep(scene).run()
    before = parts(scene)
    new = before[-1] + 1
    with PartitionDdl(scene.app.url, scene.app.schema) as ddl:
        assert ddl.create(new)
    if not has_dropped:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(
                f"alter table holdfast.log_{new} add constraint log_{new}_part check (part = {new})"
            )
    await upkeep(scene, hours_later=7).run()
    assert parts(scene) == [*before, new]
    scene.publish(1)
    assert events(scene) == 1
    await scene.app.aclose()


async def test_upkeep_that_fails_goes_on_the_next_time(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(postgres_url)
    scene.app.database.run(READERS.register("revenue", "consumer", ["order.*"], None))
    await upkeep(scene).run()
    before = parts(scene)
    own = upkeep(scene, hours_later=7)

    def refuse(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError("the server is being restarted")

    with monkeypatch.context() as patches:
        patches.setattr("holdfast_streams.log_partitions.connect", refuse)
        await own.run()
    assert "the server is being restarted" in caplog.text
    assert parts(scene) == before
    await own.run()
    assert len(parts(scene)) == len(before) + 1
    await scene.app.aclose()


def test_a_part_that_a_reader_has_not_passed_is_never_over() -> None:
    assert is_over(LogPart(0, 1, 2, True), 3)
    assert not is_over(LogPart(0, 1, 2, False), 3)
    assert not is_over(LogPart(0, 1, None, True), 3)
    assert not is_over(LogPart(0, 1, 3, True), 3)
