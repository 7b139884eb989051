"""Readers follow a chain while its handlers run, and end when the chain does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Holdfast, Job, Permanent, Retry
from holdfast.core.errors import ChainNotFound, WaitTimeout
from holdfast_output import OutputItem, add_output
from holdfast_output.errors import OutputPositionInvalid
from holdfast_output.output import OutputEnd
from tests.output.scene import OutputScene
from tests.support.until import SLOWNESS
from tests.support.warm_python import WarmProcess
from tests.support.worker_process import worker_process

WAIT_S = 20 * SLOWNESS


class Talk:
    """A handler that says a word when it is asked for one."""

    def __init__(self, scene: OutputScene) -> None:
        self.asked = threading.Semaphore(0)

        @scene.job("talk")
        def talk(job: Job[list[Any]]) -> None:
            for word in job.input:
                assert self.asked.acquire(timeout=WAIT_S)
                job.emit(word)


def test_a_reader_gets_each_item_while_the_handler_runs(scene: OutputScene) -> None:
    talk = Talk(scene)
    chain = scene.start("talk", ["a", "b", "c"])
    got: list[Any] = []
    with scene.working():
        talk.asked.release()
        for item in scene.output.follow(chain, timeout=WAIT_S):
            # The handler waits for this reader before it says the next word.
            got.append((item.id, item.data))
            talk.asked.release()
    assert got == [(1, "a"), (2, "b"), (3, "c")]
    assert list(scene.output.follow(chain)) == scene.output.read(chain)


def test_dozens_of_readers_get_all_of_it_from_their_own_places(scene: OutputScene) -> None:
    talk = Talk(scene)
    words = [f"word {number}" for number in range(40)]
    chain = scene.start("talk", words)

    def read(after: int) -> list[int]:
        return [each.id for each in scene.output.follow(chain, after=after, timeout=WAIT_S)]

    with scene.working(), ThreadPoolExecutor(30) as readers:
        found = [readers.submit(read, after) for after in range(30)]
        for _ in words:
            talk.asked.release()
        for after, each in enumerate(found):
            assert each.result(WAIT_S) == list(range(after + 1, 41))


def test_an_async_reader_follows_to_the_end(scene: OutputScene) -> None:
    talk = Talk(scene)
    chain = scene.start("talk", ["a", "b"])

    async def read() -> list[Any]:
        got = []
        talk.asked.release()
        async for item in scene.output.aio.follow(chain, timeout=WAIT_S):
            got.append(item.data)
            talk.asked.release()
        assert [each.data for each in await scene.output.aio.read(chain, after=1)] == ["b"]
        await scene.app.aclose()
        return got

    with scene.working():
        assert asyncio.run(read()) == ["a", "b"]


def test_a_reader_sees_a_retry_as_a_new_epoch(scene: OutputScene) -> None:
    go_on = threading.Event()

    @scene.job("chat", retry=Retry(base="10ms", cap="10ms"))
    def chat(job: Job[Any]) -> None:
        job.emit(f"attempt {job.attempt}")
        if job.attempt == 1:
            assert go_on.wait(WAIT_S)
            raise ValueError("cut off")

    chain = scene.start("chat")
    got: list[OutputItem] = []
    with scene.working():
        for item in scene.output.follow(chain, timeout=WAIT_S):
            got.append(item)
            go_on.set()
    assert [(each.epoch, each.data) for each in got] == [(1, "attempt 1"), (2, "attempt 2")]
    assert scene.output.read(chain) == got[1:]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_reader_ends_however_the_chain_ends(scene: OutputScene, end: str) -> None:
    @scene.job("chat")
    def chat(job: Job[Any]) -> None:
        job.emit("a")
        if end == "failed":
            raise Permanent("no")
        job.wait_for_abort(WAIT_S)
        job.checkpoint()

    chain = scene.start("chat")
    got: list[Any] = []
    with scene.working():
        for some in scene.output.follow_batches(chain, within_s=WAIT_S):
            got.append(some)
            if end == "cancelled" and len(got) == 1:
                with scene.app.transaction() as tx:
                    scene.app.chains.cancel(tx, chain)
    assert got[1:] == [OutputEnd(end)]  # type: ignore[arg-type]


def test_a_reader_of_a_chain_that_says_nothing_waits_no_longer_than_it_wants(
    scene: OutputScene,
) -> None:
    scene.job("idle")(_idle)
    chain = scene.start("idle")
    with pytest.raises(WaitTimeout):
        list(scene.output.follow(chain, timeout="50ms"))

    async def read() -> None:
        try:
            with pytest.raises(WaitTimeout):
                async for _ in scene.output.aio.follow(chain, timeout="50ms"):
                    pass
        finally:
            await scene.app.aclose()

    asyncio.run(read())


async def _idle(job: Job[Any]) -> None:
    """Say nothing."""


def test_a_chain_that_is_not_there_and_a_position_that_is_none_are_refused(
    scene: OutputScene,
) -> None:
    with pytest.raises(ChainNotFound):
        list(scene.output.follow(uuid4(), timeout=WAIT_S))
    with pytest.raises(ChainNotFound):
        scene.output.read(uuid4())
    for position in (-1, "x", "1.5", 2**63, True, None):
        with pytest.raises(OutputPositionInvalid, match="HF208"):
            scene.output.read(uuid4(), after=position)  # type: ignore[arg-type]


def test_the_threads_end_with_what_they_do(scene: OutputScene) -> None:
    scene.job("idle")(_idle)
    chain = scene.start("idle")
    with pytest.raises(WaitTimeout):
        next(scene.output.follow(chain, timeout="10ms"))
    deadline = time.monotonic() + WAIT_S
    while any(each.name == "holdfast following" for each in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


APPLICATION = """
import os, signal
from holdfast import Holdfast, Job
from holdfast_output import add_output

app = Holdfast()
output = add_output(app)

@app.job("chat", lease="2s")
async def chat(job: Job[str]) -> None:
    import asyncio
    for number in range(60):
        job.emit(f"{job.attempt}: {number}")
        await asyncio.sleep(0.01)
        if number == 40 and not os.path.exists(job.input):
            open(job.input, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def working(folder: Path, url: str) -> Iterator[WarmProcess]:
    """Have a worker at work in a process; it does not outlive the block."""
    (folder / "talker.py").write_text(APPLICATION)
    with worker_process(folder, "log", "talker:app", HOLDFAST_URL=url) as process:
        yield process


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_killed_worker_leaves_a_prefix_and_the_retry_follows_as_an_epoch(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    app = Holdfast(url, open_types=True)
    output = add_output(app)
    with app.transaction() as tx:
        chain = app.start(tx, "chat", str(tmp_path / "killed"))
    got: list[OutputItem] = []
    with working(tmp_path, url) as first, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: got.extend(output.follow(chain, timeout=WAIT_S * 2)))
        first.wait(WAIT_S)
        with working(tmp_path, url):
            reading.result(WAIT_S * 2)
    begun = [each.data for each in got if each.epoch == 1]
    whole = [each.data for each in got if each.epoch == 2]
    assert 0 < len(begun) <= 41
    attempts = [each.partition(":")[0] for each in (begun[0], whole[0])]
    assert begun == [f"{attempts[0]}: {number}" for number in range(len(begun))]
    assert whole == [f"{attempts[1]}: {number}" for number in range(60)]
    assert [each.data for each in output.read(chain)] == whole
    app.close()
