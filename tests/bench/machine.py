"""What a figure depends on besides the code: the machine, the versions, the server's settings."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path
from typing import Any

import psutil
import psycopg

SETTINGS = {
    "shared_buffers": "1GB",
    "fsync": "on",
    "synchronous_commit": "on",
    # Checkpoints in the middle of one contender's run would measure the disk instead of the loop.
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
}


def describe_machine() -> dict[str, Any]:
    """Return the machine as far as it explains a figure; other load shows in `load`."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "sqlite": sqlite3.sqlite_version,
    }


def _processor() -> str:
    """Return the processor's name where the system tells it, else its architecture."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used so far, to the nanosecond where the system counts them."""
    threads = [each / "schedstat" for each in Path(f"/proc/{pid}/task").glob("*")]
    if threads and all(each.exists() for each in threads):
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
