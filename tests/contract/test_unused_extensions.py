"""Jobs that use no extension cost what they cost without any: counted in bytecodes, statements and rows, which no other
load changes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast_context import add_context
from holdfast_files import add_large_values
from holdfast_output import add_output
from holdfast_schedules import add_schedules
from tests.contract.plain_jobs import Taken
from tests.support.until import until

ROOT = Path(__file__).parents[2]
MORE_TO_START = 0.01
"""What a start may cost more beside extensions that it doesn't use."""
CAPTURE = 16
"""Bytecodes beyond that for asking `capture()` of a start, which is then empty: 1.6 % in total."""
MORE_TO_RUN = 30
"""Bytecodes of an attempt, of the 2,000 and more that a worker takes for a job in our modules alone."""
WARM, JOBS = 20, 200

OF_AN_ATTEMPT = (
    *("worker/executor.py", "worker/attempt.py", "worker/job.py", "worker/resolve_outcome.py"),
    *("core/registry.py", "core/sealing.py", "core/codec.py", "core/job_context.py"),
    *("holdfast_context", "holdfast_files", "holdfast_output"),
)
"""Where each job passes; the worker's loops turn more or less often."""

EXTENSIONS: dict[str, Callable[[Holdfast, Path], object]] = {
    "files": lambda app, place: add_large_values(app, str(place)),
    "output": lambda app, _: add_output(app),
    "schedules": lambda app, _: add_schedules(app),
    "context": lambda app, _: add_context(app, capture=dict),
}


class Bytecodes:
    """Counts what is executed in some files, in all threads that begin meanwhile."""

    def __init__(self, files: tuple[str, ...] = ("holdfast",)) -> None:
        self._files = files
        self._is_counted: dict[str, bool] = {}
        self.count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        before, before_in_threads = sys.gettrace(), threading.gettrace()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before_in_threads)

    def _enter(self, frame: FrameType, _event: str, _value: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._is_counted:
            self._is_counted[name] = any(each in name for each in self._files)
        if not self._is_counted[name]:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, _frame: FrameType, event: str, _value: Any) -> Any:
        self.count += event == "opcode"
        return self._step


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[Callable[..., Holdfast]]:
    """Make applications with a plain type, and some extensions that it doesn't use."""
    made: list[Holdfast] = []

    def make(*names: str, url: str | None = None) -> Holdfast:
        app = Holdfast(url or f"sqlite:///{tmp_path / f'{len(made)}.db'}")
        made.append(app)
        for name in names:
            EXTENSIONS[name](app, tmp_path / "files")

        @app.job("plain")
        async def plain(job: Job[int]) -> int:
            ended.append(job.input)
            return job.input

        app.migrate()
        return app

    yield make
    for each in made:
        each.close()


ended: list[int] = []
"""What the plain type was called with."""


def start(app: Holdfast) -> None:
    with app.transaction() as tx:
        app.start(tx, "plain", 7)


def cost_of_start(app: Holdfast) -> int:
    for _ in range(WARM):
        start(app)
    counts = []
    for _ in range(5):
        counter = Bytecodes()
        with counter.counting():
            start(app)
        counts.append(counter.count)
    return min(counts)


def cost_of_attempt(app: Holdfast) -> float:
    """What each job costs more: a drain of many, less one of few."""
    drain(app, WARM)
    # The least of three: how many jobs end together depends on what else the machine does.
    few, many = (min(drain(app, jobs) for _ in range(3)) for jobs in (WARM, WARM + JOBS))
    return (many - few) / JOBS


def drain(app: Holdfast, jobs: int) -> int:
    with app.transaction() as tx:
        app.start_many(tx, "plain", range(jobs))
    worker, counter = app.make_worker(), Bytecodes(OF_AN_ATTEMPT)
    ended.clear()

    async def work() -> None:
        running = asyncio.create_task(worker.run())
        await until(lambda: len(ended) == jobs)
        worker.stop()
        await running

    with counter.counting():
        asyncio.run(work())
    return counter.count


def test_a_start_costs_no_more_beside_extensions(make_app: Callable[..., Holdfast]) -> None:
    plain = cost_of_start(make_app())
    for names, more in (
        (("files", "output", "schedules"), plain * MORE_TO_START),
        (("context",), plain * MORE_TO_START + CAPTURE),
    ):
        assert cost_of_start(make_app(*names)) <= plain + more, names


def test_an_attempt_costs_no_more_beside_extensions(make_app: Callable[..., Holdfast]) -> None:
    plain = cost_of_attempt(make_app())
    for names in (("output", "schedules"), ("files",), ("context",)):
        assert cost_of_attempt(make_app(*names)) <= plain + MORE_TO_RUN, names


def test_a_start_writes_the_same_log_beside_extensions(
    make_app: Callable[..., Holdfast], postgres_url: str
) -> None:
    apps = [make_app(url=postgres_url), make_app(*EXTENSIONS, url=postgres_url)]
    costs: list[list[int]] = [[], []]
    with psycopg.connect(postgres_url, autocommit=True) as other:
        # In turn, and the least of many: others write to the same log.
        for _ in range(60):
            for app, of_app in zip(apps, costs, strict=True):
                before = other.execute("select pg_current_wal_insert_lsn()").fetchone()
                start(app)
                row = other.execute("select pg_current_wal_insert_lsn() - %s", before).fetchone()
                assert row is not None
                of_app.append(int(row[0]))
    assert min(costs[1]) <= min(costs[0]) + 16


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_a_job_takes_the_same_statements_and_rows_as_where_no_extension_is_installed(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    url = request.getfixturevalue(f"{store}_url")

    def take(kind: str) -> Taken:
        words = [sys.executable, "-m", "tests.contract.plain_jobs", url, kind, str(tmp_path)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return msgspec.json.decode(done.stdout, type=Taken)

    bare, used = take("bare"), take("with")
    print(bare, used, sep="\n")
    assert any(name.startswith("job_insert") for name in bare.start)
    assert any(name.startswith(("job_finish", "job_complete")) for name in bare.run)
    for each in (bare, used):
        # It is asked until the worker ends: how often depends on how long that takes.
        assert each.run.pop("signal_fresh", 0) <= 3
    assert (used.start, used.run, used.rows) == (bare.start, bare.run, bare.rows)
