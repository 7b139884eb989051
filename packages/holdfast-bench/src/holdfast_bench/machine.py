"""What a figure depends on besides the code: the machine, the versions, and what its processes use."""

from __future__ import annotations

import os
import platform
import signal
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

PROC = Path("/proc")


def describe_machine() -> dict[str, Any]:
    """Return the machine as far as it explains a figure; other load shows in `load`."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "psycopg": _psycopg(),
        "sqlite": sqlite3.sqlite_version,
    }


def _processor() -> str:
    """Return the processor's name where the system tells it, else its architecture."""
    info = PROC / "cpuinfo"
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _psycopg() -> str:
    try:
        import psycopg
    except ImportError:
        return "not installed"
    return f"{psycopg.__version__} ({psycopg.pq.__impl__})"


class ProcessFacts(NamedTuple):
    """What the system knows of a process."""

    parent: int
    name: str
    memory_bytes: int
    cpu_seconds: float


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used so far, to the nanosecond where the system counts them."""
    threads = [each / "schedstat" for each in (PROC / str(pid) / "task").glob("*")]
    # A thread that has ended since takes its time with it.
    with suppress(OSError, IndexError):
        if threads:
            return sum(int(each.read_text().split()[0]) for each in threads) / 1e9
    facts = _list_processes([pid]).get(pid)
    return facts.cpu_seconds if facts else 0.0


def memory_bytes(pids: Iterable[int]) -> int:
    """Return how much memory processes have."""
    return sum(each.memory_bytes for each in _list_processes(pids).values())


def process_name(pid: int) -> str:
    """Return what a process is called; nothing when it is not on this machine."""
    facts = _list_processes([pid]).get(pid)
    return facts.name if facts else ""


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it, the eldest first."""
    parents = {each: facts.parent for each, facts in _list_processes().items()}
    found = [pid] if pid in parents else []
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes that may already have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _list_processes(pids: Iterable[int] | None = None) -> dict[int, ProcessFacts]:
    """Return these processes or all, as far as they are alive."""
    if not (PROC / "self" / "stat").exists():
        return _from_ps(pids)
    asked = [int(each.name) for each in PROC.glob("[0-9]*")] if pids is None else pids
    found = {}
    for pid in asked:
        with suppress(OSError):
            found[pid] = _from_proc((PROC / str(pid) / "stat").read_text())
    return found


def _from_proc(stat: str) -> ProcessFacts:
    # The name may hold anything, parentheses and spaces too.
    before, _, after = stat.rpartition(")")
    fields = after.split()
    return ProcessFacts(
        parent=int(fields[1]),
        name=before.partition("(")[2],
        memory_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    )


def _from_ps(pids: Iterable[int] | None) -> dict[int, ProcessFacts]:
    """Ask `ps`, which systems without /proc have."""
    asked = ["-A"] if pids is None else ["-p", ",".join(map(str, pids)) or "0"]
    answer = subprocess.run(
        ["ps", *asked, "-o", "pid=,ppid=,rss=,time=,comm="],
        capture_output=True,
        text=True,
        check=False,
    )
    found = {}
    for line in answer.stdout.splitlines():
        pid, parent, kib, time, name = line.split(maxsplit=4)
        found[int(pid)] = ProcessFacts(
            int(parent), Path(name).name, int(kib) * 1024, _seconds(time)
        )
    return found


def _seconds(time: str) -> float:
    """Read `[days-][hours:]minutes:seconds`."""
    days, _, clock = time.rpartition("-")
    parts = reversed([float(each) for each in clock.split(":")])
    return float(days or 0) * 86_400 + sum(part * 60.0**place for place, part in enumerate(parts))
