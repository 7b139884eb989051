"""The interpreter of a process that is all ours: a worker or a server that was started from the command line."""

from __future__ import annotations

import gc
import sys

TURN_S = 0.0001
"""How long a thread keeps the interpreter while another waits for it. At Python's own 5 ms the thread that writes to
SQLite stands still while handlers run: with shorter turns a SQLite worker ends 5 % more jobs. Threads that only compute
lose as much."""


def make_ours() -> None:
    """Set it up for long service; to be called when everything is loaded."""
    # What is loaded stays: a collection that walked it again and again would hold up every handler and every page.
    gc.freeze()
    sys.setswitchinterval(TURN_S)
