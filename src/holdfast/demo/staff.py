"""The shop's worker: a process of its own, started, killed, replaced and sent home."""

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
    """At most one worker at a time, numbered from 1. Whatever happens, none outlives the demo."""

    def __init__(self, url: str, lease_ms: int, log: Path, guardian: OrphanGuard) -> None:
        """Say where the shop is and how long a lease lasts; nobody works yet."""
        super().__init__(guardian)
        self._environment = _environment(url, lease_ms)
        self._log = log
        self._number = 0

    @property
    def name(self) -> str:
        """The present worker's name, the first part of its id."""
        return f"w-{self._number}"

    def hire(self) -> None:
        """Start the next worker."""
        self._number += 1
        words = ["worker", APPLICATION, "--slots", str(SLOTS), "--name", self.name]
        with self._log.open("ab") as log:
            self._begin(words, self._environment, log)

    def worker_id(self) -> str | None:
        """Return the id under which the present worker signed in, None before it has."""
        workers = app.database.read(app.database.store.workers.page(20))
        mine = (each.id for each in workers if each.pid == self.pid and each.name == self.name)
        return next(mine, None)


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
