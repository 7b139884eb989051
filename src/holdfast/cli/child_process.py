"""A command as a process in a group of its own, told to stop or killed, and never outliving whoever started it.

A command as a child process whose lines are relayed with its name before them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

import click

from holdfast.cli.console import wants_colour
from holdfast.cli.orphan_guard import Guardian


class ProcessGroup:
    """At most one process at a time."""

    def __init__(self, guardian: Guardian) -> None:
        """Take whoever ends what is left behind; nothing runs yet."""
        self._guardian = guardian
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """The present process, if there is one."""
        return None if self._process is None else self._process.pid

    def has_ended(self) -> int | None:
        """Return the exit code of a process that ended by itself, once."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._gone()
        return code

    def ask_to_stop(self) -> None:
        """Let the process end in order."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process now, in the middle of whatever it does."""
        self._signal(signal.SIGKILL)
        self._gone()

    def wait(self, seconds: float) -> bool:
        """Wait for the end; say whether it came."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._gone()
        return True

    def _begin(
        self, words: Sequence[str], environment: Mapping[str, str], output: int | IO[bytes]
    ) -> IO[str] | None:
        """Run a command of ours; return what it writes, if `output` is a pipe."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=environment,
        )
        self._guardian.watch(self._process.pid)
        return self._process.stdout

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _gone(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._guardian.forget(self._process.pid)
            self._process = None


PATIENCE_S = 10.0


class Child(ProcessGroup):
    """One command that is started, restarted and stopped."""

    def __init__(self, name: str, colour: str, words: Sequence[str], guardian: Guardian) -> None:
        """Say what is run; nothing runs yet."""
        super().__init__(guardian)
        self.name = name
        self._colour = colour
        self._words = words
        self._relay: threading.Thread | None = None

    def start(self) -> None:
        """Run the command."""
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        lines = self._begin(self._words, environment, subprocess.PIPE)
        self._relay = threading.Thread(target=self._tell, args=[lines], daemon=True)
        self._relay.start()

    def stop(self) -> None:
        """Let the command end in order, and by force if that takes too long."""
        self.ask_to_stop()
        if not self.wait(PATIENCE_S):
            self.kill()

    def _gone(self) -> None:
        super()._gone()
        if self._relay is not None:
            self._relay.join()
            self._relay = None

    def _tell(self, lines: IO[str]) -> None:
        label = click.style(f"{self.name:<6} │", fg=self._colour)
        with lines:
            for line in lines:
                click.echo(f"{label} {line}", nl=False, color=wants_colour(sys.stdout))
