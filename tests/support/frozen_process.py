"""Stopping a process as a suspended machine would."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol

import psutil

from tests.support.until import PATIENCE_S, wait_until


class Signalled(Protocol):
    """A process that can be sent signals."""

    @property
    def pid(self) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


def freeze(process: Signalled, file: Path) -> None:
    """Stop a process while it has no lock on a SQLite file, if there is one: until it goes on, no other writes."""
    with closing(sqlite3.connect(file if file.exists() else ":memory:", PATIENCE_S)) as ours:
        ours.execute("begin exclusive")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: _is_stopped(process.pid))


def _is_stopped(pid: int) -> bool:
    """Whether every thread is stopped; where that cannot be seen, whether the process is."""
    threads = [each.read_text() for each in Path("/proc").glob(f"{pid}/task/*/stat")]
    if not threads:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return all(each.rpartition(")")[2].split()[0] == "T" for each in threads)
