"""`holdfast worker --processes 2` as a person runs it, and as the first process of a container."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.absent import skip_because_absent
from tests.support.until import PATIENCE_S
from tests.worker.workshop import Workshop

APPLICATION = """
import asyncio
from pathlib import Path

from holdfast import Holdfast, Job

app = Holdfast()

@app.job("hello")
async def hello(job: Job[None]) -> str:
    return "hello"

@app.job("held")
async def held(job: Job[None]) -> str:
    while not Path("gate").exists():
        await asyncio.sleep(0.01)
    return "let go"
"""
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")


class Supervised:
    """A supervisor and what is said by it and its children, line by line."""

    def __init__(self, process: "subprocess.Popen[str]", is_first: bool) -> None:
        self._process = process
        self._is_first = is_first
        self._said: list[str] = []
        self.orphans: list[psutil.Process] = []

    def hear(self, pattern: str, count: int = 1) -> None:
        """Read on until so many lines say something."""
        assert self._process.stderr is not None
        while sum(re.search(pattern, line) is not None for line in self._said) < count:
            line: str = self._process.stderr.readline()
            assert line, f"ended before saying {pattern}: {self._said}"
            self._said.append(line)

    def kill(self) -> None:
        """Kill the supervisor with -9, and it alone."""
        self.orphans = self.itself.children()
        self._process.kill()
        self._process.wait(PATIENCE_S)

    @property
    def itself(self) -> psutil.Process:
        """The supervisor."""
        outer = psutil.Process(self._process.pid)
        return outer.children()[0] if self._is_first else outer

    def ended(self) -> int:
        """Read to the end and return the exit code."""
        _, rest = self._process.communicate(timeout=PATIENCE_S)
        self._said += rest.splitlines()
        return self._process.returncode


@contextmanager
def supervised(folder: Path, url: str, is_first: bool) -> Iterator[Supervised]:
    """Have a supervisor at work; neither it nor a child of it outlives the block."""
    (folder / "shop.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "holdfast", "worker", "shop:app", "--processes", "2"]
    process = subprocess.Popen(
        [*(NAMESPACE if is_first else ()), *command, "--log-format", "json", "--log-jobs"],
        cwd=folder,
        env=os.environ | {"HOLDFAST_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Supervised(process, is_first)
    try:
        yield running
    finally:
        left = running.orphans
        if process.poll() is None:
            left += psutil.Process(process.pid).children(recursive=True)
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.kill()
        process.communicate()


def namespace_or_skip() -> None:
    """Skip, and say so, where processes may not be numbered anew."""
    unshare = shutil.which(NAMESPACE[0])
    done = unshare and subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True)
    if not done or done.returncode != 0:
        skip_because_absent("a PID namespace", "run the tests as root, on Linux with unshare")


@pytest.mark.parametrize("is_first", [False, True], ids=["any process", "first process"])
async def test_a_killed_child_is_reported_and_replaced_and_a_signal_ends_all(
    workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path, is_first: bool
) -> None:
    if is_first:
        namespace_or_skip()
    is_postgres = workshop.store.dialect == "postgresql"
    url = (
        request.getfixturevalue("worker_url")
        if is_postgres
        else f"sqlite:///{tmp_path}/holdfast.db"
    )
    with supervised(tmp_path, url, is_first) as running:
        running.hear('"event": "worker_started"', count=2)
        first, second = running.itself.children()
        first.kill()
        running.hear('"event": "child_died".*-9')
        running.hear('"event": "worker_started"', count=3)
        third = next(each for each in running.itself.children() if each != second)
        job_id = await workshop.start_one("hello")
        running.hear('"event": "job_completed"')
        running.itself.send_signal(signal.SIGTERM)
        assert running.ended() == 0
        assert not psutil.wait_procs([second, third], timeout=PATIENCE_S)[1]
    assert (await workshop.job(job_id)).output == '"hello"'
    assert workshop.ledger.leases() == []


@pytest.mark.parametrize("is_stopping", [False, True], ids=["at work", "as it stops"])
async def test_workers_of_a_killed_supervisor_finish_what_they_run_and_end(
    workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path, is_stopping: bool
) -> None:
    is_postgres = workshop.store.dialect == "postgresql"
    url = (
        request.getfixturevalue("worker_url")
        if is_postgres
        else f"sqlite:///{tmp_path}/holdfast.db"
    )
    with supervised(tmp_path, url, is_first=False) as running:
        running.hear('"event": "worker_started"', count=2)
        job_id = await workshop.start_one("held")
        running.hear('"event": "job_started"')
        if is_stopping:
            running.itself.send_signal(signal.SIGTERM)
            running.hear('"event": "worker_stopping"', count=2)
        running.kill()
        running.hear('"event": "worker_stopping"', count=2)
        (tmp_path / "gate").touch()
        running.hear('"event": "job_completed"')
        assert not psutil.wait_procs(running.orphans, timeout=PATIENCE_S)[1]
    assert (await workshop.job(job_id)).output == '"let go"'
    assert workshop.ledger.leases() == []
