"""A command as a process in a group of its own, told to stop or killed, and never outliving whoever started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

from holdfast.cli.guardian import Guardian


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
