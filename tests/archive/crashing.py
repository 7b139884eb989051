"""Processes that run the archive and are killed at the n-th thing they report: one is forked per line of stdin."""

from __future__ import annotations

import os
import signal
import tempfile
from datetime import datetime
from pathlib import Path

import msgspec
import pyarrow.parquet

from holdfast import Holdfast
from holdfast.core.instants import to_instant
from holdfast_archive import Archive, Progress
from holdfast_files import open_files
from tests.support.forking import serve_forks

__all__ = ["pyarrow"]  # imported once for all that are forked

LEASE = "1s"


class Crash(msgspec.Struct):
    """One process: where it works, at what time, what it does, and before which of its reports it dies."""

    url: str
    root: str
    now: datetime
    act: str
    limit: int
    log: str


def archive_of(app: Holdfast, root: Path, now: datetime) -> Archive:
    """Return the archive of the table that these tests have, at a time of theirs."""
    archive = Archive(
        lambda: app.database, open_files(root), lease=LEASE, now=lambda: to_instant(now)
    )
    archive.table("deliveries", key="id", at="completed_at", keep="1d")
    return archive


async def work(crash: Crash) -> int:
    """Run or restore, or die before the report of that number."""
    app = Holdfast(crash.url)
    tempfile.tempdir = str(
        Path(crash.log).parent
    )  # what a killed process leaves goes with the test
    count = 0
    with Path(crash.log).open("wb", buffering=0) as log:  # noqa: ASYNC230

        def step(progress: Progress) -> None:
            nonlocal count
            count += 1
            log.write(f"{progress.step}\n".encode())
            if count == crash.limit:
                os.kill(os.getpid(), signal.SIGKILL)

        archive = archive_of(app, Path(crash.root), crash.now)
        if crash.act == "run":
            assert archive.run(on_progress=step).errors == []
        else:
            archive.restore(crash.act, on_progress=step)
    app.close()
    return 0


if __name__ == "__main__":
    serve_forks(Crash, work)
