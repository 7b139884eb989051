"""A process that kills what a command leaves behind, however the command itself ended.

Its standard input is a pipe from the command. Lines `+PID` and `-PID` say which process groups are alive; when the pipe
closes, the remaining ones are killed. Run as a script, it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import IO, Self


class OrphanGuard:
    """The command's end of the pipe."""

    def __init__(self) -> None:
        """Start the process, in its own session, so that Ctrl-C does not reach it."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        """Kill a process group when the command ends."""
        self._send(f"+{group}")

    def forget(self, group: int) -> None:
        """Stop watching a process group: it has exited."""
        self._send(f"-{group}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what is left, and end the guard."""
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()


def kill_orphans(lines: IO[bytes]) -> None:
    """Read until the pipe closes, then kill the groups that are left."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    kill_orphans(sys.stdin.buffer)
