"""Single keys from a terminal, without waiting for Enter and without showing them."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager


class Keyboard:
    """Reads one key at a time."""

    def __init__(self, descriptor: int) -> None:
        """Take the terminal's descriptor."""
        self._descriptor = descriptor

    def read(self, seconds: float) -> str | None:
        """Wait for a key, at most so long."""
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, seconds))
        if not ready:
            return None
        return os.read(self._descriptor, 1).decode("ascii", "ignore").lower()


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Let keys through one by one; the terminal is put back as it was."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
