"""A command as a child process whose lines are relayed with its name before them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

import click

from holdfast.cli.guardian import Guardian
from holdfast.cli.process_group import ProcessGroup
from holdfast.cli.talk import wants_colour

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
