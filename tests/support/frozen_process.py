"""Stopping a process as a suspended machine would."""

import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from tests.support.until import PATIENCE_S


def freeze(process: "subprocess.Popen[bytes] | subprocess.Popen[str]", file: Path) -> None:
    """Stop a process while it has no lock on a SQLite file, if there is one: until it goes on, no other writes."""
    with closing(sqlite3.connect(file if file.exists() else ":memory:", PATIENCE_S)) as ours:
        ours.execute("begin exclusive")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
