"""The shop's worker: a process of its own, started, killed, replaced and sent home."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from holdfast.cli.guardian import Guardian
from holdfast.demo.shop import PAYMENT_VARIABLE, URL_VARIABLE, app, payment_ms
from holdfast.demo.tables import SCHEMA

APPLICATION = "holdfast.demo.shop:app"
SLOTS = 4
REAPER_INTERVAL_MS = 500

_FOREIGN = ("HOLDFAST_", "OUTBOX_", "WORKER_")


class Staff:
    """At most one worker at a time, numbered from 1. Whatever happens, none outlives the demo."""

    def __init__(self, url: str, lease_ms: int, log: Path, guardian: Guardian) -> None:
        """Say where the shop is and how long a lease lasts; nobody works yet."""
        self._environment = _environment(url, lease_ms)
        self._log = log
        self._guardian = guardian
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0

    @property
    def name(self) -> str:
        """The present worker's name, the first part of its id."""
        return f"w-{self._number}"

    @property
    def pid(self) -> int | None:
        """The present worker's process, if there is one."""
        return None if self._process is None else self._process.pid

    def hire(self) -> None:
        """Start the next worker, in a process group of its own."""
        self._number += 1
        words = ["worker", APPLICATION, "--slots", str(SLOTS), "--name", self.name]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        self._guardian.watch(self._process.pid)

    def kill(self) -> None:
        """Kill the worker in the middle of whatever it does."""
        self._signal(signal.SIGKILL)
        self._gone()

    def has_died(self) -> int | None:
        """Return the exit code of a worker that ended by itself, once."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._gone()
        return code

    def ask_to_stop(self) -> None:
        """Let the worker finish what it runs and end."""
        self._signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait for the worker's end; say whether it came."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._gone()
        return True

    def worker_id(self) -> str | None:
        """Return the id under which the present worker signed in, None before it has."""
        workers = app.database.read(app.database.store.workers.page(20))
        mine = (each.id for each in workers if each.pid == self.pid and each.name == self.name)
        return next(mine, None)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _gone(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._guardian.forget(self._process.pid)
            self._process = None


def _environment(url: str, lease_ms: int) -> dict[str, str]:
    """The worker's environment: settings of the user's own applications are none of the shop's."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN)}
    return own | {
        URL_VARIABLE: url,
        PAYMENT_VARIABLE: str(payment_ms),
        "HOLDFAST_SCHEMA": SCHEMA,
        "OUTBOX_LEASE_DURATION_MS": str(lease_ms),
        "OUTBOX_REAPER_INTERVAL_MS": str(REAPER_INTERVAL_MS),
    }
