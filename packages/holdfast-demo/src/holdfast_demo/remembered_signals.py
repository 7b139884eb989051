"""Signals that are remembered until a command waits.

Python drops a KeyboardInterrupt that is raised while a destructor runs, and nobody presses Ctrl-C twice. So the signal
is remembered, and raised again where the command waits.
"""

from __future__ import annotations

import signal
import time
from types import FrameType

_came: list[int] = []


def raise_on_signals(*numbers: signal.Signals) -> None:
    """Have these signals raise KeyboardInterrupt; without any, SIGINT and SIGTERM."""
    for number in numbers or (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)


def raise_if_interrupted() -> None:
    """Raise the KeyboardInterrupt of a signal that came before, if there was one."""
    if _came:
        raise KeyboardInterrupt


def forget_interrupts() -> None:
    """Wait for the next signal: the command has begun to stop."""
    _came.clear()


def sleep_unless_interrupted(seconds: float) -> None:
    """Sleep. Raises: KeyboardInterrupt, also for a signal that came before."""
    raise_if_interrupted()
    time.sleep(seconds)


def _on_signal(number: int, _: FrameType | None) -> None:
    _came.append(number)
    raise KeyboardInterrupt
