"""A process of its own that ends what a command leaves behind, whatever way the command itself ended.

Its standard input is a pipe from the command. Lines `+PID` and `-PID` say which process groups are alive; when the pipe
closes, those that are left are killed. Run as a script, it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import IO, Self


class Guardian:
    """The command's side of it."""

    def __init__(self) -> None:
        """Start the process, in a session of its own, so that Ctrl-C does not reach it."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        """Have a process group ended with the command."""
        self._say(f"+{group}")

    def forget(self, group: int) -> None:
        """Leave a process group alone: it has ended."""
        self._say(f"-{group}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what is left, and the guardian."""
        self._process.communicate()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()


def stand_guard(orders: IO[bytes]) -> None:
    """Listen until the pipe closes, then kill whoever is left."""
    groups: set[int] = set()
    for line in orders:
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    stand_guard(sys.stdin.buffer)
