"""Starting jobs in the caller's transaction, beside the same rows written by hand into the same tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import msgspec
import psycopg

from holdfast_bench.baselines import start_copied, start_one, start_unnested
from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.seeding import reset
from holdfast_bench.workload import AT_ONCE, INPUT, make_app


def measure_starts(bench: Bench) -> list[Result]:
    """Measure those asked for."""
    measured = {"start_one": _one, "start_many": _many}
    with bench.server.database() as url:
        return [measure(bench, url) for name, measure in measured.items() if name in bench.wanted]


def _one(bench: Bench, url: str) -> Result:
    count = bench.scale.jobs // 10
    with closing(make_app(url, ("noop",))) as app, psycopg.connect(url) as connection:

        def ours() -> None:
            app.start(connection, "noop", INPUT)
            connection.commit()

        def limit() -> None:
            start_one(connection, "noop", _text())
            connection.commit()

        contest = Contest(
            bench.scale.rounds,
            {"ours": lambda: _rate(url, ours, count), "baseline": lambda: _rate(url, limit, count)},
        )
    return contest.result("start_one", "jobs/s", against="same rows by hand", floor=0.9, goal=0.95)


def _many(bench: Bench, url: str) -> Result:
    calls = bench.scale.jobs // AT_ONCE
    with closing(make_app(url, ("noop",))) as app, psycopg.connect(url) as connection:

        def measure_starts(start: Callable[[], object]) -> Callable[[], float]:
            def call() -> None:
                start()
                connection.commit()

            return lambda: _rate(url, call, calls, AT_ONCE)

        inputs = [INPUT] * AT_ONCE
        contest = Contest(
            bench.scale.rounds,
            {
                "ours": measure_starts(lambda: app.start_many(connection, "noop", inputs)),
                "baseline": measure_starts(lambda: start_unnested(connection, "noop", _texts())),
                "copy": measure_starts(lambda: start_copied(connection, "noop", _texts())),
            },
        )
    return contest.result(
        "start_many",
        "jobs/s",
        against="unnest by hand",
        beside={"copy_by_hand": contest.median("copy")},
        floor=0.7,
        goal=1.0,
    )


def _text() -> str:
    return msgspec.json.encode(INPUT).decode()


def _texts() -> list[str]:
    return [_text() for _ in range(AT_ONCE)]


def _rate(url: str, call: Callable[[], None], calls: int, rows: int = 1) -> float:
    reset(url)
    call()
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    return calls * rows / (time.perf_counter() - begun)
