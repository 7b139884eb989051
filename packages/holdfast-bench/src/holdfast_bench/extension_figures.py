"""Plain jobs in an application that has every extension it could use, against the same jobs in one that has none.

What is compared is processor time, in many short rounds in turn, since a percent of a rate is less than what machines
differ by from one second to the next. How many statements and rows a job takes is tested, not measured.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from holdfast_bench.measurement import Bench, Contest, Result, make_result
from holdfast_bench.seeding import reset
from holdfast_bench.subject import WorkerCommand, drain
from holdfast_bench.workload import EXTENSIONS_VARIABLE, INPUT, fill, make_app, migrate

ROUNDS = 6
"""Rounds for each of the usual ones."""
JOBS = 2
"""Jobs for each of the usual ones, so that what runners of extensions do when a worker starts is a small part of it."""
WARM = 200
AGAINST = "no extensions in use"


def measure_beside_extensions(bench: Bench) -> list[Result]:
    """Measure those asked for on a server: a drain, and starts one by one."""
    with bench.server.database() as url, tempfile.TemporaryDirectory() as folder:

        def drain_anew(extensions: str) -> float:
            reset(url)
            return _drain_us(url, extensions, bench.scale.jobs * JOBS)

        results = []
        if "drain_beside_extensions" in bench.wanted:
            contest = _contest(bench, folder, drain_anew)
            results.append(_result(contest, "drain_beside_extensions"))
        if "start_beside_extensions" in bench.wanted:

            def start_anew(extensions: str) -> float:
                reset(url)
                return _start_us(url, extensions, bench.scale.jobs // 10)

            contest = _contest(bench, folder, start_anew)
            results.append(_result(contest, "start_beside_extensions"))
    return results


def measure_sqlite_beside_extensions(bench: Bench) -> list[Result]:
    """Measure a drain on SQLite, each round on a new file."""
    with tempfile.TemporaryDirectory() as folder:

        def drain_file(extensions: str) -> float:
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as place:
                url = f"sqlite:///{Path(place) / 'bench.db'}"
                migrate(url)
                return _drain_us(url, extensions, bench.scale.jobs * JOBS)

        contest = _contest(bench, folder, drain_file)
    return [_result(contest, "sqlite_beside_extensions")]


def _drain_us(url: str, extensions: str, jobs: int) -> float:
    settings = {EXTENSIONS_VARIABLE: extensions} if extensions else {}
    drained = drain(WorkerCommand(url, settings=settings), fill(url, "noop", jobs), jobs)
    return drained.worker_us + drained.server_us


def _start_us(url: str, extensions: str, jobs: int) -> float:
    with closing(make_app(url, ("noop",), extensions)) as app:
        for warm in (True, False):
            begun = time.thread_time()
            for _ in range(WARM if warm else jobs):
                with app.transaction() as tx:
                    app.start(tx, "noop", INPUT)
    return (time.thread_time() - begun) / jobs * 1e6


def _contest(bench: Bench, folder: str, measure: Callable[[str], float]) -> Contest:
    return Contest(
        bench.scale.rounds * ROUNDS,
        {"ours": lambda: measure(folder), "baseline": lambda: measure("")},
    )


def _result(contest: Contest, name: str) -> Result:
    """Compare the least of all rounds, to which others add nothing; the median of ratios is beside it."""
    ours, baseline = contest.samples["ours"], contest.samples["baseline"]
    ratios = (one / two for one, two in zip(ours, baseline, strict=True))
    return make_result(
        name,
        "CPU µs/job",
        [min(ours)],
        [min(baseline)],
        against=AGAINST,
        beside={"median_of_ratios": statistics.median(ratios)},
        floor=1.1,
        goal=1.01,
    )
