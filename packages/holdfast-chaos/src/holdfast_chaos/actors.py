"""The processes of a campaign: workers and producers as children, each behind a proxy of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.cli.orphan_guard import OrphanGuard
from holdfast.settings.load import PREFIXES
from holdfast_chaos.errors import CampaignStalled
from holdfast_chaos.producer import ProducerOptions
from holdfast_chaos.proxy import FaultyProxy
from holdfast_chaos.subject import SubjectOptions

STOP_S = 60.0
SHUTDOWN_LEASES = 0.5
"""How long a worker that is asked to stop waits for its handlers, in leases; then it aborts them."""

END_OF_LOG = 12


class CampaignActor:
    """One process that is killed, stopped and started again under the same name."""

    def __init__(
        self,
        options: SubjectOptions,
        words: Sequence[str],
        proxy: FaultyProxy | None,
        guard: OrphanGuard,
        settings: dict[str, str],
    ) -> None:
        self.name = options.actor
        self.proxy = proxy
        self.lock = threading.Lock()
        """Held while a fault has this process."""
        self._folder = Path(options.journals)
        self._log = self._folder / f"{self.name}.log"
        self._words = [sys.executable, "-m", *words]
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None
        ours = {n: each for n, each in os.environ.items() if not n.startswith(PREFIXES)}
        self._environment = ours | settings | options.to_environment()

    @property
    def is_up(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, with all that it started."""
        if self.is_up and self._process is not None:
            os.killpg(self._process.pid, number)

    def pause(self) -> None:
        """Stop it as a suspended machine would, and wait until it has stopped."""
        if self.is_up and self._process is not None:
            self.send(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """Ask it to stop, and kill it if that takes too long."""
        self.send(signal.SIGTERM)
        if not self.wait():
            self.kill()

    def wait(self) -> bool:
        """Wait for its end; return whether it came."""
        if self._process is None:
            return True
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            return False
        self._guard.forget(self._process.pid)
        return True

    def check(self) -> None:
        """Raise when it has ended by itself. Raises: CampaignStalled."""
        if not self.is_up:
            lines = self._log.read_text(errors="replace").splitlines()[-END_OF_LOG:]
            raise CampaignStalled(f"{self.name} has ended by itself", details=lines)


def make_worker(
    options: SubjectOptions, proxy: FaultyProxy | None, guard: OrphanGuard, slots: int
) -> CampaignActor:
    """Return a worker: the real command, with a lease short enough for a campaign."""
    settings = {
        "OUTBOX_LEASE_DURATION_MS": str(options.lease_ms),
        "OUTBOX_REAPER_INTERVAL_MS": str(max(100, options.lease_ms // 4)),
        "HOLDFAST_STREAMS_TAKEOVER_MS": str(max(1_000, options.lease_ms)),
        "WORKER_SHUTDOWN_TIMEOUT_MS": str(int(options.lease_ms * SHUTDOWN_LEASES)),
    }
    words = ["holdfast", "worker", "holdfast_chaos.subject:app", "--slots", str(slots)]
    return CampaignActor(options, [*words, "--name", options.actor], proxy, guard, settings)


def make_producer(
    options: SubjectOptions,
    proxy: FaultyProxy | None,
    guard: OrphanGuard,
    producer: ProducerOptions,
) -> CampaignActor:
    """Return a producer."""
    words = ["holdfast_chaos.producer", msgspec.json.encode(producer).decode()]
    return CampaignActor(options, words, proxy, guard, {})
