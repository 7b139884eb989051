"""A program in a terminal of its own: what it shows is read, keys are pressed."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path
from typing import Self

import psutil

from tests.support.until import SLOWNESS

PATIENCE_S = 90 * SLOWNESS
SIZE = (40, 110)

_SIZES = ("COLUMNS", "LINES")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal with a module in it, the demo unless another is named; leaving its block ends it."""

    def __init__(
        self, cwd: Path, *words: str, size: tuple[int, int] = SIZE, module: str = "holdfast_demo"
    ) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            # readline adds a size to the real environment, behind Python's back.
            env = {name: text for name, text in os.environ.items() if name not in _SIZES}
            # This is one, wherever the tests themselves run.
            env["TERM"] = "xterm"
            os.execve(sys.executable, [sys.executable, "-m", module, *words], env)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self._shown = ""
        self.painted = ""
        self._read_to = 0
        self._code: int | None = None

    def press(self, key: str) -> None:
        """Press a key."""
        os.write(self._descriptor, key.encode())

    def wait_for(self, pattern: str) -> str:
        """Wait until something new matches; return it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            match = re.compile(pattern).search(self._shown, self._read_to)
            if match is not None:
                self._read_to = match.end()
                return match.group()
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self._shown[-3000:]}"
            assert self._read(), f"no {pattern!r} before the end:\n{self._shown[-3000:]}"

    def find(self, pattern: str) -> list[str]:
        """Return everything that has been shown and matches."""
        return re.findall(pattern, self._shown)

    def end(self) -> int:
        """Wait for the program's end; return its exit code."""
        while self._read():
            pass
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def worker(self) -> psutil.Process:
        """Return the worker's process."""
        children = psutil.Process(self.pid).children()
        return next(each for each in children if "worker" in each.cmdline())

    def kill(self) -> None:
        """Kill the program itself."""
        os.kill(self.pid, signal.SIGKILL)

    def _read(self) -> bool:
        """Read what is shown next; False at the end."""
        ready, _, _ = select.select([self._descriptor], [], [], 1)
        if not ready:
            return True
        try:
            new = os.read(self._descriptor, 65_536)
        except OSError:
            return False
        self.painted += new.decode("utf-8", "replace")
        self._shown += _ESCAPE.sub("", new.decode("utf-8", "replace"))
        return bool(new)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            self.kill()
            self.end()
        os.close(self._descriptor)
