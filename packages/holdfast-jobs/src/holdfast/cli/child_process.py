"""Child processes, each in its own process group, that never outlive the command that started them."""

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
from holdfast.cli.orphan_guard import OrphanGuard

STOP_TIMEOUT_S = 10.0


class ProcessGroup:
    """At most one process at a time; the guard kills it if this one dies."""

    def __init__(self, guard: OrphanGuard) -> None:
        self._guard = guard
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """The current process, if there is one."""
        return None if self._process is None else self._process.pid

    def poll(self) -> int | None:
        """Return the exit code of a process that exited by itself, once."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._on_exit()
        return code

    def terminate(self) -> None:
        """Ask the process to stop gracefully."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process now, in the middle of whatever it does."""
        self._signal(signal.SIGKILL)
        self._on_exit()

    def wait(self, seconds: float) -> bool:
        """Wait for the exit; return whether it came."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._on_exit()
        return True

    def wait_or_kill(self) -> None:
        """Wait for a process that was asked to stop; kill it if that takes too long.

        It is not asked again: a second SIGTERM aborts the handlers of a worker.
        """
        if not self.wait(STOP_TIMEOUT_S):
            self.kill()

    def run(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        output: int | IO[bytes],
        inherited: Sequence[int] = (),
    ) -> IO[str] | None:
        """Run a Python module; return its output, if `output` is a pipe. `inherited` files are open in it too."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=environment,
            pass_fds=inherited,
        )
        self._guard.watch(self._process.pid)
        return self._process.stdout

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _on_exit(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._guard.forget(self._process.pid)
            self._process = None


class RelayedProcess(ProcessGroup):
    """A command whose output is shown line by line behind its name."""

    def __init__(self, name: str, colour: str, words: Sequence[str], guard: OrphanGuard) -> None:
        super().__init__(guard)
        self.name = name
        self._colour = colour
        self._words = words
        self._relay: threading.Thread | None = None

    def start(self) -> None:
        """Run the command."""
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        if wants_colour(sys.stdout):
            # The child writes to a pipe, and what comes out of it is shown here.
            environment["FORCE_COLOR"] = "1"
        lines = self.run(["holdfast", *self._words], environment, subprocess.PIPE)
        self._relay = threading.Thread(target=self._print_lines, args=[lines], daemon=True)
        self._relay.start()

    def _on_exit(self) -> None:
        super()._on_exit()
        if self._relay is not None:
            self._relay.join()
            self._relay = None

    def _print_lines(self, lines: IO[str]) -> None:
        label = click.style(f"{self.name:<6} │", fg=self._colour)
        with lines:
            for line in lines:
                click.echo(f"{label} {line}", nl=False, color=wants_colour(sys.stdout))
