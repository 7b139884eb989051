"""The application's processes: started with the same environment, killed, replaced, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.cli.orphan_guard import OrphanGuard

APPLICATION = "invoicing.worker:jobs"
STOP_TIMEOUT_S = 10.0

_OTHERS = ("HOLDFAST_", "OUTBOX_", "WORKER_", "INVOICING_", "INVOICE_", "CLASSES_", "PDF_")


def clean_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the settings of the user's other applications."""
    rest = {name: text for name, text in os.environ.items() if not name.startswith(_OTHERS)}
    return rest | dict(own)


class Processes:
    """One API and any number of workers. None outlives the command."""

    def __init__(self, environment: Mapping[str, str], log: Path, guard: OrphanGuard) -> None:
        """Take the environment and where everything is logged; nothing runs yet."""
        self._environment = dict(environment)
        self._log = log
        self._guard = guard
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._workers = 0

    def run(self, *words: str) -> None:
        """Run a Python module to its end. Raises: CalledProcessError."""
        with self._log.open("ab") as log:
            subprocess.run(
                [sys.executable, "-m", *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )

    def start_api(self, listening: socket.socket) -> None:
        """Serve the API on a socket."""
        number = listening.fileno()
        self._start("api", ["invoicing.local.api_process", str(number)], [number])

    def start_worker(self) -> str:
        """Start one more worker and return its name."""
        self._workers += 1
        name = f"w-{self._workers}"
        self._start(name, ["holdfast", "worker", APPLICATION, "--name", name])
        return name

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL, in the middle of whatever it does."""
        process = self._running.pop(name)
        self._signal(process, signal.SIGKILL)
        process.wait()
        self._guard.forget(process.pid)

    def exited(self) -> list[tuple[str, int]]:
        """Return the processes that exited by themselves, each once, with their codes."""
        found = [(name, each.poll()) for name, each in self._running.items()]
        gone = [(name, code) for name, code in found if code is not None]
        for name, _ in gone:
            self._guard.forget(self._running.pop(name).pid)
        return gone

    def stop(self) -> None:
        """Stop everything; kill what takes too long."""
        for process in self._running.values():
            self._signal(process, signal.SIGTERM)
        for name, process in list(self._running.items()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
            self.kill(name)

    def _start(self, name: str, words: Sequence[str], inherited: Sequence[int] = ()) -> None:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=inherited,
            )
        self._guard.watch(process.pid)
        self._running[name] = process

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
