"""Ctrl-C and SIGTERM for commands that run until one of them comes.

Python drops a KeyboardInterrupt that is raised while a destructor runs, and nobody presses Ctrl-C twice. So the signal
is remembered, and raised again where the command waits.
"""

from __future__ import annotations

import signal
import time
from types import FrameType

_came: list[int] = []


def raise_on_signals() -> None:
    """Have both signals raise KeyboardInterrupt."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)


def sleep_unless_interrupted(seconds: float) -> None:
    """Sleep. Raises: KeyboardInterrupt, also for a signal that came before."""
    if _came:
        raise KeyboardInterrupt
    time.sleep(seconds)


def _on_signal(number: int, _: FrameType | None) -> None:
    _came.append(number)
    raise KeyboardInterrupt
