"""Commands as processes of their own, read line by line."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support.until import PATIENCE_S
from tests.support.warm_python import LIBRARIES, WarmProcess


class Command:
    """A running command; leaving its block ends it."""

    def __init__(
        self,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        is_warm: bool = True,
        joined: bool = False,
    ) -> None:
        """Fork it from a process that has imported what it needs, unless its start is what is tested.

        A cold one may have its messages `joined` to its data.
        """
        words = ("-m", "holdfast", *words)
        given = os.environ | {"PYTHONUNBUFFERED": "1"} | dict(env or {})
        self.process: WarmProcess | subprocess.Popen[str]
        if is_warm:
            self.process = LIBRARIES.open(words, cwd or Path.cwd(), given)
        else:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if joined else subprocess.PIPE,
                text=True,
                cwd=cwd,
                env=given,
            )

    def line(self) -> str:
        """Wait for the next line of data."""
        assert self.process.stdout is not None
        line: str = self.process.stdout.readline()
        assert line, f"the command ended: {self.error() if self.process.stderr else ''}"
        return line

    def wait_for_word(self, word: str) -> None:
        """Wait until something is said on stderr."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if word in line:
                return
        raise AssertionError(f"the command ended without saying {word!r}")

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit code."""
        return self.ended_by(signal.SIGINT)

    def ended_by(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def error(self) -> str:
        """Read what was said on stderr until the end."""
        assert self.process.stderr is not None
        said: str = self.process.stderr.read()
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
