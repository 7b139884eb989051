"""A command as a child process: its lines are relayed with its name before them, and it ends with its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

import click

from holdfast.cli.guardian import Guardian
from holdfast.cli.talk import wants_colour

PATIENCE_S = 10.0


class Child:
    """One command that is started, restarted and stopped."""

    def __init__(self, name: str, colour: str, words: Sequence[str], guardian: Guardian) -> None:
        """Say what is run; nothing runs yet."""
        self.name = name
        self._colour = colour
        self._words = [sys.executable, "-m", "holdfast.cli", *words]
        self._guardian = guardian
        self._process: subprocess.Popen[str] | None = None
        self._relay: threading.Thread | None = None

    def start(self) -> None:
        """Run the command in a process group of its own."""
        self._process = subprocess.Popen(
            self._words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self._guardian.watch(self._process.pid)
        assert self._process.stdout is not None
        self._relay = threading.Thread(target=self._tell, args=[self._process.stdout], daemon=True)
        self._relay.start()

    def has_ended(self) -> int | None:
        """Return the exit code of a command that ended by itself, once."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._gone()
        return code

    def ask_to_stop(self) -> None:
        """Let the command end in order."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Let the command end in order, and by force if that takes too long."""
        self.ask_to_stop()
        if self._process is not None:
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        self._gone()

    def kill(self) -> None:
        """End the command now."""
        self._signal(signal.SIGKILL)
        self._gone()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _gone(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._guardian.forget(self._process.pid)
            self._process = None
        if self._relay is not None:
            self._relay.join()
            self._relay = None

    def _tell(self, lines: IO[str]) -> None:
        label = click.style(f"{self.name:<6} │", fg=self._colour)
        with lines:
            for line in lines:
                click.echo(f"{label} {line}", nl=False, color=wants_colour(sys.stdout))
