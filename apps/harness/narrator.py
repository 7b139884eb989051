"""Tells a story line by line while its processes run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from apps.harness.books import Fault
from apps.harness.command import LocalProcesses

from holdfast_demo.remembered_signals import sleep_unless_interrupted

FIGURES_S = 1.0
POLL_S = 0.1
LISTED = 5


class Narrator:
    """Replaces workers that exit, prints figures once a second, and lists what the books found."""

    def __init__(self, processes: LocalProcesses, say: Callable[[str], None]) -> None:
        """Take the running processes and where the lines go."""
        self._processes = processes
        self._say = say
        self._figures_due = 0.0

    def keep_running(self) -> NoReturn:
        """Replace workers that die, until interrupted."""
        while True:
            self.look(None)
            self.pause()

    def look(self, figures: Callable[[], str] | None) -> None:
        """Replace what exited since the last look; print the figures if they are due."""
        for name, code in self._processes.take_exited():
            if name == "web":
                raise RuntimeError(f"the web server exited with code {code}")
            self._say(f"{name} exited with code {code}; {self._processes.start_worker()} started")
        if figures is not None and time.monotonic() >= self._figures_due:
            self._figures_due = time.monotonic() + FIGURES_S
            self._say(figures())

    def pause(self) -> None:
        """Wait for the next look. Raises: KeyboardInterrupt."""
        sleep_unless_interrupted(POLL_S)

    def close_books(self, faults: Sequence[Fault], summary: str, not_killed: str | None) -> bool:
        """List the first faults and the summary; return whether everything was as it should be.

        `not_killed` says why no worker was killed although one should have been.
        """
        for fault in faults[:LISTED]:
            self._say(f"{fault.kind}: {fault.text}")
        if len(faults) > LISTED:
            self._say(f"and {len(faults) - LISTED} more")
        if not_killed is not None:
            self._say(not_killed)
        self._say(summary)
        return not faults and not_killed is None
