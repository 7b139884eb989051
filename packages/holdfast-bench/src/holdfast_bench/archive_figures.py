"""Archiving ended jobs and bringing them back: rows a second, and how much memory the process needs at most."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.app import Holdfast
from holdfast.core.errors import HoldfastError
from holdfast.core.instants import to_instant
from holdfast_archive import Archive
from holdfast_archive.columns import to_arrow
from holdfast_bench.measurement import Bench, Result, make_result
from holdfast_bench.seeding import LoadCondition, seed

MIB = 1024 * 1024
MAX_MIB = 200
"""What archiving a million jobs may need beyond an idle process."""


def measure_archive(bench: Bench) -> list[Result]:
    """Measure one archive of many ended jobs, in a process of its own; a size needs no repetition."""
    jobs = bench.scale.memory_jobs
    with bench.server.database() as url, tempfile.TemporaryDirectory() as folder:
        seed(url, LoadCondition("finished", finished=jobs))
        command = [sys.executable, "-m", "holdfast_bench.archive_figures", url, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HoldfastError(f"the archive failed: {done.stderr.strip()[-500:]}")
        found = json.loads(done.stdout)
    return [
        make_result(
            "archive",
            "MiB",
            [found["mib"]],
            beside={
                "exported_rows_per_s": found["exported"],
                "dropped_rows_per_s": found["dropped"],
                "restored_rows_per_s": found["restored"],
                "file_mib": found["bytes"] / MIB,
            },
            floor=MAX_MIB,
            goal=MAX_MIB / 2,
        )
    ]


def _main(url: str, folder: str) -> dict[str, float]:
    """Export, drop and restore everything; return the rates, and the peak of memory above an idle process."""
    app = Holdfast(url)
    database = app.database
    later = datetime.now(UTC) + timedelta(days=400)
    archive = Archive(lambda: database, folder, now=lambda: to_instant(later))
    archive.jobs(period="month", keep="0s")
    database.check()
    # What every process with the archive in it has loaded.
    assert to_arrow is not None
    idle = _peak_bytes()
    began = time.monotonic()
    report = archive.run()
    exported = report.rows / (time.monotonic() - began)
    if report.errors or not report.rows:
        raise SystemExit(str(report))
    began = time.monotonic()
    archive.run()
    dropped = report.rows / (time.monotonic() - began)
    began = time.monotonic()
    restored = sum(archive.restore(each.id).inserted for each in archive.list())
    rate = restored / (time.monotonic() - began)
    app.close()
    return {
        "exported": exported,
        "dropped": dropped,
        "restored": rate,
        "bytes": report.bytes,
        "mib": (_peak_bytes() - idle) / MIB,
        "is_whole": float(restored == report.rows),
    }


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], str(Path(sys.argv[2])))))
