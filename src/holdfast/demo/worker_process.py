"""The shop's worker process: started, killed, replaced and stopped."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.cli.child_process import ProcessGroup
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.demo.shop import PAYMENT_VARIABLE, URL_VARIABLE, app, payment_ms
from holdfast.demo.tables import SCHEMA

APPLICATION = "holdfast.demo.shop:app"
SLOTS = 4
REAPER_INTERVAL_MS = 500

_FOREIGN = ("HOLDFAST_", "OUTBOX_", "WORKER_")


class WorkerProcess(ProcessGroup):
    """At most one worker at a time, numbered from 1. None outlives the demo."""

    def __init__(self, url: str, lease_ms: int, log: Path, guard: OrphanGuard) -> None:
        """Take the database and the lease; nothing runs yet."""
        super().__init__(guard)
        self._environment = _environment(url, lease_ms)
        self._log = log
        self._number = 0

    @property
    def name(self) -> str:
        """The current worker's name, the prefix of its id."""
        return f"w-{self._number}"

    def start(self) -> None:
        """Start the next worker."""
        self._number += 1
        words = ["worker", APPLICATION, "--slots", str(SLOTS), "--name", self.name]
        with self._log.open("ab") as log:
            self._run(words, self._environment, log)

    def worker_id(self) -> str | None:
        """Return the current worker's id, None until it has registered."""
        workers = app.database.read(app.database.store.workers.page(20))
        mine = (each.id for each in workers if each.pid == self.pid and each.name == self.name)
        return next(mine, None)


def _environment(url: str, lease_ms: int) -> dict[str, str]:
    """Return the worker's environment, without the settings of the user's own applications."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN)}
    return own | {
        URL_VARIABLE: url,
        PAYMENT_VARIABLE: str(payment_ms),
        "HOLDFAST_SCHEMA": SCHEMA,
        "OUTBOX_LEASE_DURATION_MS": str(lease_ms),
        "OUTBOX_REAPER_INTERVAL_MS": str(REAPER_INTERVAL_MS),
    }
