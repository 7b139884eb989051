"""Cleanups and archives that die at a chosen step: `python -m apps.tenders.tests.dying_archive` forks one per line.

The hooks are here, not in the application.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.parquet
from apps.tenders.tests.pushing import make_run
from tests.support.dying import Death, Steps, fork_for_each_line

from tenders.archiving import archive
from tenders.jobs import jobs

__all__ = ["pyarrow"]  # imported once for all that are forked

HOUR_US = 3_600_000_000


def clean_up(_: Steps) -> None:
    """Move old rows to the archive's tables."""
    jobs.cycle_specs["cleanup"].handler(make_run("cleanup", "w-9"))


def run_archive(steps: Steps) -> None:
    """Drop what may be dropped, then export what is closed."""
    report = archive.run(on_progress=lambda progress: steps.take(progress.step))
    assert report.errors == [], report.errors


WORKS: dict[str, Callable[[Steps], None]] = {"cleanup": clean_up, "archive": run_archive}


def watch_database(steps: Steps) -> None:
    """Take a step around each operation of Holdfast's, and around each commit of a transaction."""
    kind: Any = type(jobs.database)
    run, transaction = kind.run, kind.transaction

    def stepping(self: Any, op: Any) -> Any:
        steps.take("run")
        answer = run(self, op)
        steps.take("run done")
        return answer

    @contextmanager
    def committing(self: Any, *given: Any) -> Iterator[Any]:
        with transaction(self, *given) as tx:
            yield tx
            steps.take("commit")
        steps.take("committed")

    kind.run, kind.transaction = stepping, committing


async def work(death: Death) -> int:
    """Do one thing after the other, an hour between them; death comes at a step of the last one."""
    ahead_us = death.ahead_us
    jobs.bind(death.url, lambda: time.time_ns() // 1000 + ahead_us)
    steps = Steps(death)
    watch_database(steps)
    *before, last = death.work.split()
    for name in before:
        with steps.paused():
            WORKS[name](steps)
        ahead_us += HOUR_US
    WORKS[last](steps)
    await jobs.aclose()
    return 0


if __name__ == "__main__":
    fork_for_each_line(work)
