"""A child process that runs the archive and is killed at the n-th thing it reports."""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime
from pathlib import Path

from holdfast import Holdfast
from holdfast.archive import Archive, Progress
from holdfast.core.records import to_instant
from holdfast.files import open_files

LEASE = "1s"


def archive_of(app: Holdfast, root: Path, now: datetime) -> Archive:
    """Return the archive of the table that these tests have, at a time of theirs."""
    archive = Archive(
        lambda: app.database, open_files(root), lease=LEASE, now=lambda: to_instant(now)
    )
    archive.table("deliveries", key="id", at="completed_at", keep="1d")
    return archive


def main(url: str, root: str, now: str, act: str, limit: int) -> None:
    """Run or restore, or die before the report of that number."""
    app = Holdfast(url)
    count = 0

    def step(progress: Progress) -> None:
        nonlocal count
        count += 1
        print(progress.step, flush=True)
        if count == limit:
            os.kill(os.getpid(), signal.SIGKILL)

    archive = archive_of(app, Path(root), datetime.fromisoformat(now))
    if act == "run":
        report = archive.run(on_progress=step)
        print(report.failed, report.errors, flush=True)
    else:
        archive.restore(act, on_progress=step)
    app.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
