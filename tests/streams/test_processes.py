"""Consumers in processes that are killed, stopped past their lease, and started: each event counts once."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

import psycopg
import pytest

from holdfast_streams.reader_store import READERS
from tests.streams.scene import ON_EVERY_SERVER, Scene
from tests.support.until import PATIENCE_S, until
from tests.support.warm_python import WarmProcess
from tests.support.worker_process import worker_process

APPLICATION = """
import os, time
from pathlib import Path

from holdfast import Holdfast
from holdfast_streams import StreamEvent, add_streams

app = Holdfast()
streams = add_streams(app)
sign = "%s" if os.environ["HOLDFAST_URL"].startswith("postgres") else "?"
WRITE = f"insert into taken (n, key, place, at_process) values ({sign}, {sign}, {sign}, {sign})"

@streams.consumer("order.*", name="revenue", batch=int(os.environ["BATCH"]))
def take(events: list[StreamEvent], tx) -> None:
    for event in events:
        tx.execute(WRITE, (event.data["n"], event.key, event.place, os.getpid()))
    if os.environ.get("HOLD"):
        Path(f"began-{os.getpid()}").touch()
        while not Path("go").exists():
            time.sleep(0.01)
"""

APPEND = """
insert into holdfast.log (line, place, event, key, data, id, at, part)
select line, nextval(('holdfast.log_line_' || line)::regclass), 'order.paid', 'k' || n %% 1000,
       json_build_object('n', n), gen_random_uuid(), now(), (select max(part) from holdfast.log_part)
  from (select %s + place - 1 as n, line from unnest(%s::int[]) with ordinality as x (line, place)) as chosen
"""

LEASE_MS = 1_500


@contextmanager
def working(
    folder: Path, url: str, name: str, hold: bool = False, batch: int = 20
) -> Iterator[WarmProcess]:
    """Have a worker at work; it does not outlive the block, stopped or not."""
    (folder / "shop.py").write_text(APPLICATION)
    variables = {
        "HOLDFAST_URL": url,
        "HOLDFAST_STREAMS_TAKEOVER_MS": str(LEASE_MS),
        "BATCH": str(batch),
    }
    if hold:
        variables["HOLD"] = "1"
    with worker_process(folder, name, "shop:app", **variables) as process:
        yield process


def workers(scene: Scene) -> list[int]:
    """How many lines each process holds."""
    counts: dict[str, int] = {}
    for each in scene.lines("revenue"):
        if each.worker is not None:
            counts[each.worker] = counts.get(each.worker, 0) + 1
    return sorted(counts.values())


def register(scene: Scene) -> None:
    scene.app.database.run(READERS.register("revenue", "consumer", ["order.*"], None))


@ON_EVERY_SERVER
async def test_sums_are_exact_however_often_processes_are_killed(
    scene: Scene, tmp_path: Path
) -> None:
    register(scene)
    total = 1_500

    def publish() -> None:
        for n in range(0, total, 10):
            with scene.app.transaction() as tx:
                for each in range(n, n + 10):
                    scene.app.publish(tx, "order.paid", {"n": each}, key=f"k{each % 50}")

    publishing = asyncio.create_task(asyncio.to_thread(publish))
    for turn in range(4):
        with ExitStack() as stack:
            for side in ("left", "right"):
                stack.enter_context(working(tmp_path, scene.url, f"{side}{turn}"))
            before = len(scene.taken())
            await until(lambda before=before: len(scene.taken()) > before or before == total)  # type: ignore[misc]
            # Leaving the block kills both, whatever they are doing.
    await publishing
    with working(tmp_path, scene.url, "last"):
        await until(lambda: len(scene.taken()) >= total)
        await until(lambda: all(each.lag == 0 for each in scene.lines("revenue")))
    assert sorted(scene.taken()) == list(range(total))
    scene.app.close()


@pytest.mark.lasting
@pytest.mark.timeout(1800)
async def test_sums_of_a_million_events_are_exact_with_a_kill_every_two_seconds(
    postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`HOLDFAST_CONSUMER_EVENTS` says how many, if not a million."""
    total = int(os.environ.get("HOLDFAST_CONSUMER_EVENTS", "1000000"))
    scene = Scene(postgres_url)
    register(scene)

    def publish() -> None:
        """Append by thousands, as publishers do one by one, with the last of each transaction by `publish` itself."""
        for start in range(0, total, 5_000):
            last = min(total, start + 5_000) - 1
            lines = [crc32(f"k{n % 1_000}".encode()) % 16 for n in range(start, last)]
            with scene.app.transaction() as tx:
                tx.execute(APPEND, (start, lines))
                scene.app.publish(tx, "order.paid", {"n": last}, key=f"k{last % 1_000}")

    def count() -> tuple[int, int, int]:
        with psycopg.connect(postgres_url) as connection:
            row = connection.execute(
                "select count(*), count(distinct n), coalesce(sum(n), 0)::bigint from taken"
            ).fetchone()
            assert row is not None
            return row

    publishing = asyncio.create_task(asyncio.to_thread(publish))
    began, kills = time.monotonic(), 0
    while (await asyncio.to_thread(count))[0] < total:
        with ExitStack() as stack:
            for side in ("left", "right"):
                stack.enter_context(working(tmp_path, scene.url, f"{side}{kills}", batch=2_000))
            before = count()[0]
            await until(lambda before=before: count()[0] > before or before == total)  # type: ignore[misc]
            await asyncio.sleep(2)
        kills += 2
        if publishing.done():
            await publishing
    took = time.monotonic() - began
    await publishing
    assert count() == (total, total, total * (total - 1) // 2)
    with capsys.disabled():
        print(f"\nconsumer: {total} events, {kills} kills, {total / took:,.0f} events/s")
    scene.app.close()


@pytest.mark.parametrize("url", ["postgres", "other_postgres"], indirect=True)
async def test_the_writes_of_a_process_that_was_stopped_past_its_lease_are_refused(
    scene: Scene, tmp_path: Path
) -> None:
    register(scene)
    scene.publish(*range(40), key="a")
    log = tmp_path / "first"
    with working(tmp_path, scene.url, "first", hold=True) as first:
        await until(lambda: bool(list(tmp_path.glob("began-*"))))
        first.send_signal(signal.SIGSTOP)
        with working(tmp_path, scene.url, "second") as second:
            await until(lambda: len(scene.taken()) == 40)
            (tmp_path / "go").touch()
            first.send_signal(signal.SIGCONT)
            await until(lambda: bool(re.search("stream_refused", log.read_text())))
            for process in (first, second):
                process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(process.wait, PATIENCE_S)
    assert scene.taken() == list(range(40))
    scene.app.close()


async def test_lines_are_shared_out_evenly_and_move_within_a_lease_when_a_process_dies(
    scene: Scene, tmp_path: Path
) -> None:
    register(scene)
    with working(tmp_path, scene.url, "first") as first:
        await until(lambda: workers(scene) == [16])
        with working(tmp_path, scene.url, "second"):
            await until(lambda: workers(scene) == [8, 8])
            with working(tmp_path, scene.url, "third") as third:
                await until(lambda: workers(scene) == [5, 5, 6])
                third.send_signal(signal.SIGTERM)
                await until(lambda: workers(scene) == [8, 8])
            first.kill()
            began = asyncio.get_running_loop().time()
            await until(lambda: workers(scene) == [16])
            took = asyncio.get_running_loop().time() - began
            scene.publish(1, 2, 3)
            await scene.until_taken(1, 2, 3)
    assert took < LEASE_MS / 1000 + 1
    scene.app.close()


async def test_a_process_that_is_asked_to_stop_ends_its_block_and_begins_no_other(
    scene: Scene, tmp_path: Path
) -> None:
    register(scene)
    scene.publish(*range(100), key="a")
    with working(tmp_path, scene.url, "first", hold=True) as process:
        await until(lambda: bool(list(tmp_path.glob("began-*"))))
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        (tmp_path / "go").touch()
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
    assert scene.taken() == list(range(20))
    assert workers(scene) == []
    scene.app.close()
